//! A plain table for a terminal; with `{:#}` one in Markdown.

use std::fmt::Write as _;

/// Columns as wide as their widest cell: texts to the left, numbers to the right.
pub(crate) struct Table<const N: usize> {
    numbers: std::ops::Range<usize>,
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// With the numbers in these columns.
    pub(crate) fn new(head: [&str; N], numbers: std::ops::Range<usize>) -> Self {
        Self {
            numbers,
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub(crate) fn add(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> Table<N> {
    fn write_markdown(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.each_ref().map(|cell| cell.replace('|', "\\|"));
            writeln!(f, "| {} |", cells.join(" | "))?;
            if index == 0 {
                let rule = |column| match self.numbers.contains(&column) {
                    true => "---:",
                    false => "---",
                };
                let rules: Vec<&str> = (0..N).map(rule).collect();
                writeln!(f, "| {} |", rules.join(" | "))?;
            }
        }
        Ok(())
    }
}

impl<const N: usize> std::fmt::Display for Table<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if f.alternate() {
            return self.write_markdown(f);
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..N).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match self.numbers.contains(&column) {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
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
        let mut table = Table::new(["a", "b", "c", "d", "e"], 2..4);
        table.add(["long", "x", "1234", "-", "text"].map(str::to_owned));

        let text = table.to_string();

        assert_eq!(text, "a     b     c  d  e\nlong  x  1234  -  text\n");
    }

    #[test]
    fn in_markdown_bars_of_a_cell_are_no_columns() {
        let mut table = Table::new(["step", "here"], 1..2);
        table.add(["a|b", "12"].map(str::to_owned));

        let text = format!("{table:#}");

        assert_eq!(text, "| step | here |\n| --- | ---: |\n| a\\|b | 12 |\n");
    }
}
