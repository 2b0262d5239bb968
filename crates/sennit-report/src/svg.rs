//! The frame of every plot: axes, grid, legend, and a pen. Why no crate of others draws it is in
//! docs/decisions/0038.

use std::fmt::Write as _;

use crate::axis::{Axis, Range, number};
use crate::html::escaped;

/// A plot is so wide in units of which a phone shows one as 0.7 pixels.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// A line of the legend.
const LINE: f64 = 17.0;
/// A letter of the legend, about.
const LETTER: f64 = 6.6;
/// Colours before they come again, with another dash.
const COLOURS: usize = 8;

/// A plot that is being drawn.
pub(crate) struct Canvas {
    x: Range,
    y: Range,
    height: f64,
    out: String,
}

/// Classes of a series: its colour, and its dash where colours come again.
pub(crate) fn class(index: usize) -> String {
    match index / COLOURS {
        0 => format!("c{}", index % COLOURS),
        _ => format!("c{} dashed", index % COLOURS),
    }
}

impl Canvas {
    /// Axes for these ranges.
    pub(crate) fn new(axes: [(&Axis, Range); 2]) -> Self {
        let [(x_axis, x), (y_axis, y)] = axes;
        let mut canvas = Self {
            x,
            y,
            height: HEIGHT,
            out: String::new(),
        };
        canvas.draw_frame();
        canvas.draw_x_numbers();
        canvas.draw_labels(&x_axis.label, &y_axis.label);
        canvas
    }

    /// An axis of names instead of numbers along the bottom.
    pub(crate) fn named(names: &[String], y_axis: &Axis, y: Range) -> Self {
        let count = names.len().max(1) as f64;
        let x = Axis::new("").range([count].into_iter());
        let mut canvas = Self {
            x: x.unnumbered(),
            y,
            height: HEIGHT,
            out: String::new(),
        };
        canvas.draw_frame();
        canvas.draw_labels("", &y_axis.label);
        canvas
    }

    fn draw_frame(&mut self) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.ticks.clone() {
            let y = self.y(tick);
            self.write(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"n\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number(tick)
            ));
        }
        self.write(&format!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        ));
    }

    fn draw_x_numbers(&mut self) {
        let bottom = HEIGHT - BOTTOM;
        for tick in self.x.ticks.clone() {
            let x = self.x(tick);
            self.write(&format!(
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text class=\"n\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 4.0,
                bottom + 16.0,
                number(tick)
            ));
        }
    }

    fn draw_labels(&mut self, x: &str, y: &str) {
        let (x, y) = (escaped(x), escaped(y));
        let (middle, high) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        let low = HEIGHT - 6.0;
        self.write(&format!(
            "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{x}</text>\
             <text x=\"11\" y=\"{high}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 11 {high})\">{y}</text>"
        ));
    }

    /// Where a value of the horizontal axis stands.
    pub(crate) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    /// Where a value of the vertical axis stands.
    pub(crate) fn y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BOTTOM;
        bottom - self.y.place(value) * (bottom - TOP)
    }

    /// Where a share of the width stands.
    pub(crate) fn across(&self, share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    /// The bottom of the plot.
    pub(crate) fn bottom(&self) -> f64 {
        HEIGHT - BOTTOM
    }

    /// Points that can stand in it, as SVG writes them.
    pub(crate) fn points(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let known = points.filter(|(x, y)| self.x.takes(*x) && self.y.takes(*y));
        let mut text = String::new();
        for (x, y) in known {
            let _ = write!(text, "{:.1},{:.1} ", self.x(x), self.y(y));
        }
        text
    }

    /// Adds what is drawn.
    pub(crate) fn write(&mut self, svg: &str) {
        self.out.push_str(svg);
    }

    /// A mark across the plot at a time, with a word.
    pub(crate) fn mark(&mut self, at: f64, what: &str, row: usize) {
        let (x, bottom) = (self.x(at), self.bottom());
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        let (anchor, shift) = if x > middle {
            ("end", -4.0)
        } else {
            ("start", 4.0)
        };
        let y = TOP + 10.0 + 13.0 * row as f64;
        self.write(&format!(
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"mark\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x + shift,
            escaped(what)
        ));
    }

    /// Names of series below the plot, in as many lines as they need.
    pub(crate) fn legend<'a>(&mut self, names: impl Iterator<Item = (&'a str, String)>) {
        let (mut x, mut y) = (LEFT, HEIGHT + 12.0);
        for (name, class) in names.filter(|(name, _)| !name.is_empty()) {
            let width = 22.0 + LETTER * name.chars().count() as f64;
            if x > LEFT && x + width > WIDTH {
                (x, y) = (LEFT, y + LINE);
            }
            self.write(&format!(
                "<rect class=\"{class} key\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"10\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 9.0,
                x + 17.0,
                escaped(name)
            ));
            x += width + 8.0;
            self.height = y + 8.0;
        }
    }

    /// The picture; `described` is read to those who do not see it.
    pub(crate) fn finish(self, described: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.height,
            escaped(described),
            self.out
        )
    }
}
