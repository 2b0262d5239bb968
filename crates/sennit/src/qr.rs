//! QR codes: squares that a telephone reads.

use qrcode::{Color, EcLevel, QrCode, render::unicode::Dense1x2};

/// A line on a terminal, black on white whatever its own colours are.
const PAPER: &str = "\x1b[38;5;16;48;5;231m";
const RESET: &str = "\x1b[0m";

/// What is shown is seen whole or not at all, so little of it is there twice.
fn code(text: &str) -> Option<QrCode> {
    QrCode::with_error_correction_level(text, EcLevel::L).ok()
}

/// The squares, row by row: `1` is dark. A margin of four has to stand around it. Nothing if the
/// text is too long for one.
pub(crate) fn rows(text: &str) -> Option<Vec<String>> {
    let code = code(text)?;
    let digit = |color: &Color| color.select('1', '0');
    let colors = code.to_colors();
    let rows = colors.chunks(code.width());
    Some(rows.map(|row| row.iter().map(digit).collect()).collect())
}

/// The code for a terminal, with its margin.
pub(crate) fn on_terminal(text: &str) -> Option<String> {
    let image = code(text)?.render::<Dense1x2>().build();
    let lines = image.lines().map(|line| format!("{PAPER}{line}{RESET}\n"));
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_square_with_its_three_marks() {
        let text = "sennit_".repeat(30);

        let rows = rows(&text).unwrap();

        let size = rows.len();
        assert!(rows.iter().all(|row| row.len() == size));
        for (row, column) in [(0, 0), (0, size - 7), (size - 7, 0)] {
            assert_eq!(rows[row][column..column + 7], *"1111111");
        }
        let shown = on_terminal(&text).unwrap();
        // Two rows are one line, and the margin is four on each side.
        assert_eq!(shown.lines().count(), (size + 8).div_ceil(2));
        assert_eq!(super::rows(&"x".repeat(5000)), None);
    }
}
