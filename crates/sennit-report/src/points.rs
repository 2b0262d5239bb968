//! Two numbers at a time, such as latency against throughput, with the ellipse that they lie in.

use std::f64::consts::TAU;

use crate::axis::Axis;
use crate::stats::ellipse;
use crate::svg::{Canvas, class};

/// Corners of an ellipse.
const CORNERS: u32 = 48;

/// Points of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Cloud {
    /// What it is called.
    pub name: String,
    /// In any order.
    pub points: Vec<(f64, f64)>,
}

/// Several clouds.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// What they show.
    pub caption: String,
    /// Along the bottom.
    pub x: Axis,
    /// Up the side.
    pub y: Axis,
    /// Over each other.
    pub clouds: Vec<Cloud>,
}

impl Points {
    pub(crate) fn svg(&self) -> String {
        let all = || self.clouds.iter().flat_map(|cloud| &cloud.points);
        let x = self.x.range(all().map(|point| point.0));
        let y = self.y.range(all().map(|point| point.1));
        let mut canvas = Canvas::new([(&self.x, x), (&self.y, y)]);
        for (index, cloud) in self.clouds.iter().enumerate() {
            let class = class(index);
            for point in canvas
                .points(cloud.points.iter().copied())
                .split_whitespace()
            {
                let (x, y) = point.split_once(',').unwrap_or_default();
                canvas.write(&format!(
                    "<circle class=\"{class} faint\" cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>"
                ));
            }
            if let Some(ellipse) = ellipse(&cloud.points) {
                let corner = |n: u32| ellipse.at(TAU * f64::from(n) / f64::from(CORNERS));
                let corners = canvas.points((0..CORNERS).map(corner));
                canvas.write(&format!(
                    "<polygon class=\"{class} ring\" points=\"{corners}\"/>"
                ));
            }
        }
        let names = self.clouds.iter().enumerate();
        canvas.legend(names.map(|(index, cloud)| (cloud.name.as_str(), class(index) + " area")));
        canvas.finish(&self.caption)
    }
}
