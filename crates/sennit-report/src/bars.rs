//! Bars, each with how sure it is.

use crate::axis::{Axis, number};
use crate::html::escaped;
use crate::svg::{Canvas, class};

/// Names longer than this are slanted into each other.
const NAME: usize = 14;

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its value.
    pub value: f64,
    /// Where it lies with some confidence.
    pub interval: Option<(f64, f64)>,
}

/// Groups of bars side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What they show.
    pub caption: String,
    /// Up the side.
    pub y: Axis,
    /// What the bars of each group are called; one name needs no legend.
    pub series: Vec<String>,
    /// The name of a group and its bars, in the order of the series.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

impl Bars {
    pub(crate) fn svg(&self) -> String {
        let bars = self
            .groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().flatten());
        let tops = bars.map(|bar| {
            bar.interval
                .map_or(bar.value, |(_, high)| high.max(bar.value))
        });
        let y = self.y.range(tops);
        let names: Vec<_> = self.groups.iter().map(|(name, _)| name.clone()).collect();
        let mut canvas = Canvas::named(&names, &self.y, y);
        let (groups, series) = (names.len().max(1) as f64, self.series.len().max(1) as f64);
        for (group, (name, bars)) in self.groups.iter().enumerate() {
            let middle = canvas.across((group as f64 + 0.5) / groups);
            let room = (canvas.across(1.0 / groups) - canvas.across(0.0)) * 0.76;
            let width = room / series;
            for (index, bar) in bars.iter().enumerate() {
                let left = middle - room / 2.0 + width * index as f64;
                if let Some(bar) = bar {
                    draw(&mut canvas, bar, &class(index), (left, width * 0.9));
                }
            }
            let row = if self.groups.len() > 4 { group % 2 } else { 0 };
            let y = canvas.bottom() + 15.0 + 13.0 * row as f64;
            let short: String = name.chars().take(NAME).collect();
            let short = if short.len() < name.len() {
                short + "…"
            } else {
                short
            };
            canvas.write(&format!(
                "<text class=\"n\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}\
                 <title>{}</title></text>",
                escaped(&short),
                escaped(name)
            ));
        }
        if self.series.len() > 1 {
            let names = self.series.iter().enumerate();
            canvas.legend(names.map(|(index, name)| (name.as_str(), class(index) + " area")));
        }
        canvas.finish(&self.caption)
    }
}

fn draw(canvas: &mut Canvas, bar: &Bar, class: &str, (left, width): (f64, f64)) {
    let (top, bottom) = (canvas.y(bar.value), canvas.bottom());
    let title = number(bar.value);
    canvas.write(&format!(
        "<rect class=\"{class} area\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
         height=\"{:.1}\"><title>{title}</title></rect>",
        (bottom - top).max(0.0)
    ));
    if let Some((low, high)) = bar.interval {
        let (x, cap) = (left + width / 2.0, (width / 4.0).min(5.0));
        // A few values say that it may also lie below zero, where nothing is drawn.
        let [low, high] = [low, high].map(|value| canvas.y(value));
        let cap = |y: f64| format!("M{:.1} {y:.1}h{:.1}", x - cap, cap * 2.0);
        let lower = if low <= bottom {
            cap(low)
        } else {
            String::new()
        };
        canvas.write(&format!(
            "<path class=\"whisker\" d=\"M{x:.1} {:.1}V{high:.1}{lower}{}\"/>",
            low.min(bottom),
            cap(high),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_lie_below_zero_is_not_drawn_over_what_stands_there() {
        let with = |low: f64| Bars {
            caption: "c".into(),
            y: Axis::new("y"),
            series: vec!["s".into()],
            groups: vec![(
                "g".into(),
                vec![Some(Bar {
                    value: 1.0,
                    interval: Some((low, 2.0)),
                })],
            )],
        };
        let whisker = |bars: Bars| {
            let svg = bars.svg();
            let start = svg.find("whisker").expect("there is one");
            let path = svg[start..]
                .split('"')
                .nth(2)
                .expect("a path has its steps");
            let from = path
                .split(['M', ' ', 'V'])
                .nth(2)
                .expect("it starts somewhere");
            (
                from.parse::<f64>().expect("it is a number"),
                path.matches('h').count(),
            )
        };

        let (inside, caps) = whisker(with(0.5));
        let (clipped, fewer) = whisker(with(-100.0));
        let (bottom, _) = whisker(with(0.0));

        assert!(inside < bottom);
        assert_eq!((clipped, caps, fewer), (bottom, 2, 1));
    }
}
