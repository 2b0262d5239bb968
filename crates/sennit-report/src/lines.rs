//! Curves over an axis of numbers.

use crate::axis::Axis;
use crate::svg::{Canvas, class};

/// Marks have their words in so many rows, so that neighbours can be read.
const MARK_ROWS: usize = 3;

/// Points joined by a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// What it is called; empty for one that the legend leaves out.
    pub name: String,
    /// In order.
    pub points: Vec<(f64, f64)>,
    /// Each point has a dot too.
    pub dots: bool,
    /// It looks like the curve at this index, dashed: what is expected of it.
    pub like: Option<usize>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where on the horizontal axis.
    pub at: f64,
    /// What, in a word or two.
    pub what: String,
}

/// Several curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What they show.
    pub caption: String,
    /// Along the bottom.
    pub x: Axis,
    /// Up the side.
    pub y: Axis,
    /// Over each other.
    pub curves: Vec<Curve>,
    /// In order of place.
    pub marks: Vec<Mark>,
}

impl Curve {
    /// A line through points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            ..Self::default()
        }
    }
}

impl Lines {
    /// Curves without marks.
    pub fn new(caption: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>) -> Self {
        Self {
            caption: caption.into(),
            x,
            y,
            curves,
            marks: Vec::new(),
        }
    }

    pub(crate) fn svg(&self) -> String {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let marks = self.marks.iter().map(|mark| mark.at);
        let x = self.x.range(points().map(|point| point.0).chain(marks));
        let y = self.y.range(points().map(|point| point.1));
        let mut canvas = Canvas::new([(&self.x, x), (&self.y, y)]);
        for (index, curve) in self.curves.iter().enumerate() {
            let line = canvas.points(curve.points.iter().copied());
            let class = self.class(index);
            canvas.write(&format!("<polyline class=\"{class}\" points=\"{line}\"/>"));
            for point in line.split_whitespace().filter(|_| curve.dots) {
                let (x, y) = point.split_once(',').unwrap_or_default();
                canvas.write(&format!(
                    "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>"
                ));
            }
        }
        draw_marks(&mut canvas, &self.marks);
        let names = self.curves.iter().enumerate();
        canvas.legend(names.map(|(index, curve)| (curve.name.as_str(), self.class(index))));
        canvas.finish(&self.caption)
    }

    fn class(&self, index: usize) -> String {
        match self.curves[index].like {
            Some(other) => format!("{} expected", class(other)),
            None => class(index),
        }
    }
}

pub(crate) fn draw_marks(canvas: &mut Canvas, marks: &[Mark]) {
    for (index, mark) in marks.iter().enumerate() {
        canvas.mark(mark.at, &mark.what, index % MARK_ROWS);
    }
}
