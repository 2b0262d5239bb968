//! Tables.

use crate::html::escaped;

/// One field of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What stands there.
    pub text: String,
    /// Whether it is as it should be, if that can be said.
    pub good: Option<bool>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, good: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A field that says whether it is as it should be.
    pub fn judged(text: impl Into<String>, good: bool) -> Self {
        let (text, good) = (text.into(), Some(good));
        Self { text, good }
    }
}

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// One for each column.
    pub head: Vec<String>,
    /// The first column is text, the others are numbers if they begin with one.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub fn new<const N: usize>(caption: impl Into<String>, head: [&str; N]) -> Self {
        Self {
            caption: caption.into(),
            head: head.map(str::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(crate) fn html(&self) -> String {
        // Above numbers stands their title, at the same side.
        let is_number = |column: usize| {
            let first = self.rows.first().and_then(|row| row.get(column));
            first.is_some_and(|cell| is_number(&cell.text))
        };
        let head = self.head.iter().enumerate().map(|(column, title)| {
            let class = if is_number(column) {
                " class=\"num\""
            } else {
                ""
            };
            format!("<th{class}>{}</th>", escaped(title))
        });
        let head: String = head.collect();
        let rows: String = self.rows.iter().map(|row| html_row(row)).collect();
        let caption = match self.caption.is_empty() {
            true => String::new(),
            false => format!("<caption>{}</caption>", escaped(&self.caption)),
        };
        format!(
            "<div class=\"scroll\"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}\
             </tbody></table></div>\n"
        )
    }
}

fn is_number(text: &str) -> bool {
    let begins = text.trim_start_matches(['-', '+', '−', '<', '>', '±']);
    begins.starts_with(|c: char| c.is_ascii_digit())
}

fn html_row(row: &[Cell]) -> String {
    let cell = |Cell { text, good }: &Cell| {
        let class = match (good, is_number(text)) {
            (Some(true), true) => " class=\"num good\"",
            (Some(true), false) => " class=\"good\"",
            (Some(false), true) => " class=\"num bad\"",
            (Some(false), false) => " class=\"bad\"",
            (None, true) => " class=\"num\"",
            (None, false) => "",
        };
        format!("<td{class}>{}</td>", escaped(text))
    };
    let cells: String = row.iter().map(cell).collect();
    format!("<tr>{cells}</tr>\n")
}
