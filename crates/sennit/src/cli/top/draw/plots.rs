//! What passed of late: a line for each link, class or site, with all its plots over one time.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Sparkline;

use super::tables;
use crate::cli::top::app::App;
use crate::cli::top::entries::Entry;
use crate::cli::top::picture::TOTAL;
use crate::cli::top::trace::Sample;
use crate::status::{self, Role};

/// Columns of names: for `LAST 120 S` above them at least, and at most so many.
const NAMES: (u16, u16) = (10, 16);

/// One figure over time.
struct Plot {
    title: &'static str,
    color: Color,
    /// How much more room it gets than others.
    room: u16,
    value: fn(&Sample) -> Option<f64>,
    words: fn(f64) -> String,
}

static PLOTS: [Plot; 4] = [
    Plot {
        title: "SENDS",
        color: Color::Magenta,
        room: 3,
        value: |sample| Some(sample.sent),
        words: status::rate,
    },
    Plot {
        title: "RECEIVES",
        color: Color::Cyan,
        room: 3,
        value: |sample| Some(sample.received),
        words: status::rate,
    },
    Plot {
        title: "RTT",
        color: Color::Blue,
        room: 2,
        value: |sample| sample.rtt,
        words: |rtt| format!("{:.0} ms", rtt * 1e3),
    },
    Plot {
        title: "LOSS",
        color: Color::Red,
        room: 2,
        value: |sample| sample.loss,
        words: |loss| format!("{:.1} %", loss * 100.0),
    },
];

/// How many lines there are to plot.
pub(super) fn count(app: &App, rows: &[&Entry]) -> usize {
    rows.len() + usize::from(has_sum(app))
}

/// The sites of a hub have a sum above them, of which the hub has a history.
fn has_sum(app: &App) -> bool {
    app.picture().now.role == Role::Hub
}

pub(super) fn draw(app: &App, area: Rect, frame: &mut Frame<'_>) {
    if area.height < 2 {
        return;
    }
    let all = lines(app);
    let room = usize::from(area.height - 1);
    // The one that is selected is among those that are shown.
    let rows = app.rows();
    let cursor = app.cursor(&rows) + usize::from(has_sum(app));
    let first = (cursor + 1).saturating_sub(room);
    let shown: Vec<&(String, String)> = all.iter().skip(first).take(room).collect();
    let height = (room / shown.len().max(1)).max(1) as u16;
    let longest = shown.iter().map(|(name, _)| name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let names = longest.clamp(NAMES.0, NAMES.1).min(area.width);
    let plots = plots_within(area.width.saturating_sub(names));
    let widths = plots.iter().map(|plot| Constraint::Fill(plot.room));
    let widths = [Constraint::Length(names)].into_iter().chain(widths);
    let columns = Layout::horizontal(widths).spacing(1).split(area);
    name_lines(app, &shown, (columns[0], height), frame);
    for (plot, column) in plots.iter().zip(columns.iter().skip(1)) {
        draw_plot(app, plot, &shown, (*column, height), frame);
    }
}

/// What is plotted, with the name of its series.
fn lines(app: &App) -> Vec<(String, String)> {
    let sum = has_sum(app).then(|| ("all sites".to_owned(), TOTAL.to_owned()));
    let rows = app.rows();
    let rows = rows.iter();
    let rows = rows.map(|entry| (entry.key.name.clone(), entry.key.series()));
    sum.into_iter().chain(rows).collect()
}

/// Those for which so many columns are enough.
fn plots_within(width: u16) -> &'static [Plot] {
    match width {
        0..10 => &PLOTS[..0],
        10..26 => &PLOTS[..1],
        26..50 => &PLOTS[..2],
        _ => &PLOTS,
    }
}

/// The line of one row, counted from 0.
fn line_of(index: usize, (column, height): (Rect, u16)) -> Rect {
    let y = column.y + 1 + index as u16 * height;
    Rect::new(column.x, y, column.width, height).intersection(column)
}

fn name_lines(app: &App, shown: &[&(String, String)], place: (Rect, u16), frame: &mut Frame<'_>) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let head = Rect {
        height: 1,
        ..place.0
    };
    let seconds = app.picture().trace.span_seconds();
    let title = match seconds < 600.0 {
        true => format!("LAST {seconds:.0} S"),
        false => format!("LAST {:.0} MIN", seconds / 60.0),
    };
    frame.render_widget(Line::styled(title, dim), head);
    for (index, (name, _)) in shown.iter().enumerate() {
        let line = line_of(index, place);
        frame.render_widget(tables::fitted(name, line.width), line);
    }
}

/// One figure of all rows, by one scale, which is written above them.
fn draw_plot(
    app: &App,
    plot: &Plot,
    shown: &[&(String, String)],
    place: (Rect, u16),
    frame: &mut Frame<'_>,
) {
    let picture = app.picture();
    let columns = shown.iter().map(|(_, series)| {
        let width = place.0.width;
        picture
            .trace
            .columns(series, width, picture.at(), plot.value)
    });
    let columns: Vec<Vec<Option<f64>>> = columns.collect();
    let known = columns.iter().flatten().flatten().copied();
    let top = known.fold(0.0, f64::max);
    let head = Rect {
        height: 1,
        ..place.0
    };
    let words = if top > 0.0 {
        (plot.words)(top)
    } else {
        String::new()
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Line::styled(format!("{} {words}", plot.title), dim), head);
    for (index, values) in columns.iter().enumerate() {
        let bars = values.iter().map(|value| Some(scaled((*value)?, top)));
        let sparkline = Sparkline::default()
            .data(bars)
            .max(SCALE)
            .absent_value_symbol(" ")
            .style(Style::new().fg(plot.color));
        frame.render_widget(sparkline, line_of(index, place));
    }
}

/// Bars are whole numbers up to this.
const SCALE: u64 = 10_000;

fn scaled(value: f64, top: f64) -> u64 {
    if top > 0.0 {
        (value / top * SCALE as f64) as u64
    } else {
        0
    }
}
