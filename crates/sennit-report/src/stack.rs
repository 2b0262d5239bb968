//! What adds up over time, such as the load of several links.

use crate::axis::Axis;
use crate::lines::{Mark, draw_marks};
use crate::svg::{Canvas, class};

/// More points than pixels are drawn for nobody.
const POINTS: usize = 400;

/// One of those that add up.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// A value for each bin.
    pub values: Vec<f64>,
}

/// Layers on each other, with what happened meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// What it shows.
    pub caption: String,
    /// Along the bottom.
    pub x: Axis,
    /// Up the side.
    pub y: Axis,
    /// How wide a bin is.
    pub width: f64,
    /// From the bottom up.
    pub layers: Vec<Layer>,
    /// A line over all of them, from the same bins.
    pub line: Option<Layer>,
    /// In order of time.
    pub marks: Vec<Mark>,
}

impl Stack {
    pub(crate) fn svg(&self) -> String {
        let bins = self.layers.iter().chain(&self.line);
        let bins = bins.map(|layer| layer.values.len()).max().unwrap_or(0);
        let every = bins.div_ceil(POINTS).max(1);
        let width = self.width * every as f64;
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|it| it.thinned(every, bins))
            .collect();
        let line = self.line.as_ref().map(|it| it.thinned(every, bins));
        let mut sums = vec![vec![0.0; bins.div_ceil(every)]];
        for layer in &layers {
            let below = sums.last().expect("there is the ground");
            let sum = below.iter().zip(layer).map(|(below, own)| below + own);
            sums.push(sum.collect());
        }
        let top = sums.last().into_iter().chain(&line).flatten().copied();
        let y = self.y.range(top);
        let x = self.x.range([bins as f64 * self.width].into_iter());
        let mut canvas = Canvas::new([(&self.x, x), (&self.y, y)]);
        let at = |index: usize| (index as f64 + 0.5) * width;
        for (index, pair) in sums.windows(2).enumerate() {
            let upper = pair[1]
                .iter()
                .enumerate()
                .map(|(bin, value)| (at(bin), *value));
            let lower = pair[0].iter().enumerate().rev();
            let lower = lower.map(|(bin, value)| (at(bin), *value));
            let points = canvas.points(upper.chain(lower));
            canvas.write(&format!(
                "<polygon class=\"{} area\" points=\"{points}\"/>",
                class(index)
            ));
        }
        if let Some(line) = &line {
            let points = line
                .iter()
                .enumerate()
                .map(|(bin, value)| (at(bin), *value));
            let points = canvas.points(points);
            canvas.write(&format!("<polyline class=\"over\" points=\"{points}\"/>"));
        }
        draw_marks(&mut canvas, &self.marks);
        let names = self.layers.iter().enumerate();
        let names = names.map(|(index, layer)| (layer.name.as_str(), class(index) + " area"));
        let over = self
            .line
            .iter()
            .map(|line| (line.name.as_str(), "over".to_owned()));
        canvas.legend(names.chain(over));
        canvas.finish(&self.caption)
    }
}

impl Layer {
    /// Means of so many bins each, as if there were `bins` of them.
    fn thinned(&self, every: usize, bins: usize) -> Vec<f64> {
        let mut values = self.values.clone();
        values.resize(bins, 0.0);
        let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
        values.chunks(every).map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bins_become_means_of_neighbours() {
        let layer = Layer {
            name: "a".into(),
            values: vec![1.0, 3.0, 5.0],
        };
        assert_eq!(layer.thinned(2, 4), [2.0, 2.5]);
    }
}
