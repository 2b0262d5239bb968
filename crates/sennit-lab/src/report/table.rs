//! A plain table for a terminal.

use std::fmt::Write as _;

/// Columns as wide as their widest cell; the first two are texts, the others numbers.
pub(super) struct Table {
    rows: Vec<[String; 9]>,
}

impl Table {
    pub(super) fn new(head: [&str; 9]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub(super) fn add(&mut self, row: [String; 9]) {
        self.rows.push(row);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
        };
        let widths: Vec<_> = (0..9).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 | 1 => write!(line, "{cell:<width$}  "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_their_cells() {
        let mut table = Table::new(["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        table.add(["long", "x", "1234", "-", "-", "-", "-", "-", "9"].map(str::to_owned));

        let text = table.to_string();

        assert_eq!(
            text,
            "a     b     c  d  e  f  g  h  i\nlong  x  1234  -  -  -  -  -  9\n"
        );
    }
}
