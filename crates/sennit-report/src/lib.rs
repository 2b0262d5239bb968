//! Reports: figures in, one HTML file out that needs nothing else.
//!
//! A [`Report`] is a title, facts about how it was made, and [`Section`]s of [`Block`]s: text,
//! tables and plots. [`Report::html`] gives a page without scripts and without requests, light or
//! dark as its reader prefers, as wide as a phone, and fit to be printed. Plots are SVG inside of
//! it; each has a caption that says in words what it shows, and a table with the same figures where
//! there are few.
//!
//! ```
//! use sennit_report::{Axis, Block, Curve, Lines, Report, Section};
//!
//! let curve = Curve::new("link a", vec![(0.0, 1.0), (1.0, 3.0)]);
//! let plot = Lines::new("Goodput", Axis::new("time, s"), Axis::new("Mbit/s"), vec![curve]);
//! let section = Section::new("One link").with(Block::Lines(plot));
//! let page = Report::new("A test").with(section).html();
//! assert!(page.starts_with("<!doctype html>") && !page.contains("http://example"));
//! ```

mod axis;
mod bars;
mod html;
mod lines;
mod points;
mod stack;
mod stats;
mod svg;
mod table;

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars};
pub use lines::{Curve, Lines, Mark};
pub use points::{Cloud, Points};
pub use stack::{Layer, Stack};
pub use stats::{Ellipse, Interval, ccdf, cdf, difference, ellipse, interval};
pub use table::{Cell, Table};

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// What a reader takes away, in a sentence or two.
    pub lede: String,
    /// How it was made: what, and its value.
    pub facts: Vec<(String, String)>,
    /// One after the other.
    pub sections: Vec<Section>,
}

/// A part of a page with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Two plots stand side by side where there is room.
    pub blocks: Vec<Block>,
}

/// What stands in a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Text as it is, such as a scenario file, folded away behind its name.
    Source(String, String),
    /// Rows and columns.
    Table(Table),
    /// Curves.
    Lines(Lines),
    /// What adds up over time.
    Stack(Stack),
    /// One number each.
    Bars(Bars),
    /// Two numbers each.
    Points(Points),
}

/// A command as a shell takes it again: words of other than plain characters are quoted.
pub fn shell_command(words: impl IntoIterator<Item = String>) -> String {
    let plain = |c: char| c.is_alphanumeric() || "@%_+=:,./-≤≥±".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    words.join(" ")
}

impl Report {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// Says first what is to be taken away.
    #[must_use]
    pub fn lede(mut self, lede: impl Into<String>) -> Self {
        self.lede = lede.into();
        self
    }

    /// Adds how it was made.
    #[must_use]
    pub fn fact(mut self, what: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((what.into(), value.into()));
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The page.
    pub fn html(&self) -> String {
        html::page(self)
    }
}

impl Section {
    /// An empty section.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// Adds a block.
    #[must_use]
    pub fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::shell_command;

    #[test]
    fn a_command_is_what_a_shell_takes_for_the_same_words() {
        let words = ["sennit", "--gate", "loss < 1%", "it's", "", "-5/5%", "a;b"];
        let command = shell_command(words.map(str::to_owned));
        assert_eq!(
            command,
            r"sennit --gate 'loss < 1%' 'it'\''s' '' -5/5% 'a;b'"
        );
    }
}
