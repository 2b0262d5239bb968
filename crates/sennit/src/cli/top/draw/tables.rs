//! The tables: links and classes of an edge, or the sites of a hub. Which columns there are goes by
//! the width of the terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, HighlightSpacing, Row, Table};

use super::color;
use crate::cli::top::app::App;
use crate::cli::top::entries::{Entry, Kind, More, OfLink, Order};
use crate::policy::Policy;
use crate::status;

/// Names get so many columns at least.
const NAME: u16 = 8;
/// A terminal of this width has room for whole names.
const ROOMY: u16 = 12;

struct Column {
    title: &'static str,
    width: u16,
    /// The narrowest terminal that has room for it.
    from: u16,
    text: fn(&Entry) -> String,
}

const fn column(title: &'static str, width: u16, from: u16, text: fn(&Entry) -> String) -> Column {
    Column {
        title,
        width,
        from,
        text,
    }
}

/// What rows of all kinds have, in front.
static SHARED: [Column; 5] = [
    column("PATHS", 5, 70, |it| {
        format!("{}/{}", it.row.paths_up, it.row.paths)
    }),
    column("SENDS", 10, 31, |it| {
        status::rate(it.row.sent_bytes_per_second)
    }),
    column("RECEIVES", 10, 42, |it| {
        status::rate(it.row.received_bytes_per_second)
    }),
    column("RTT", 9, 52, |it| ms(it.row.rtt_seconds)),
    column("LOSS", 7, 60, |it| percent(it.row.loss_ratio)),
];

static OF_LINKS: [Column; 7] = [
    column("SHARE", 7, 78, |it| of_link(it, |link| percent(link.share))),
    column("RTT MIN", 9, 88, |it| of_link(it, |link| ms(link.rtt_min))),
    column("RTT 95 %", 9, 98, |it| {
        of_link(it, |link| ms(link.rtt_high))
    }),
    column("RATE", 10, 109, |it| of_link(it, |link| rate(link.rate))),
    column("LIMIT", 10, 120, |it| {
        of_link(it, |link| rate(link.up_limit))
    }),
    column("CWND", 8, 129, |it| {
        of_link(it, |link| status::bytes(link.cwnd_bytes))
    }),
    column("FLIGHT", 7, 137, |it| {
        of_link(it, |link| percent(filled(link)))
    }),
];

static OF_CLASSES: [Column; 2] = [
    column("QUEUE", 8, 79, |it| match it.more {
        More::Class { queue_seconds, .. } => ms(Some(queue_seconds)),
        More::Link(_) | More::Site { .. } => String::new(),
    }),
    column("POLICY", 9, 89, |it| match &it.more {
        More::Class { policy, .. } => policy.map_or("", Policy::as_str).into(),
        More::Link(_) | More::Site { .. } => String::new(),
    }),
];

static OF_SITES: [Column; 1] = [column("LAST HERE", 11, 78, |it| match &it.more {
    // Of a date like 2026-11-26T21:30:00Z.
    More::Site { last_seen } => match last_seen.as_ref().and_then(|seen| seen.get(5..16)) {
        Some(minute) => minute.replace('T', " "),
        None if it.row.paths > 0 => "now".into(),
        None => "-".into(),
    },
    More::Link(_) | More::Class { .. } => String::new(),
})];

fn of_link(entry: &Entry, text: fn(&OfLink) -> String) -> String {
    match &entry.more {
        More::Link(link) => text(link),
        More::Class { .. } | More::Site { .. } => String::new(),
    }
}

/// How full the congestion windows are, 0 to 1.
fn filled(link: &OfLink) -> Option<f64> {
    let cwnd = link.cwnd_bytes as f64;
    (cwnd > 0.0).then(|| link.in_flight_bytes as f64 / cwnd)
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn ms(seconds: Option<f64>) -> String {
    known(seconds.map(|seconds| format!("{:.1} ms", seconds * 1e3)))
}

fn percent(ratio: Option<f64>) -> String {
    known(ratio.map(|ratio| format!("{:.1} %", ratio * 100.0)))
}

fn rate(bytes_per_second: Option<f64>) -> String {
    known(bytes_per_second.map(status::rate))
}

/// Draws the links above the classes, or the sites alone.
pub(super) fn draw(app: &mut App, area: Rect, frame: &mut Frame<'_>) {
    let mut states = std::mem::take(&mut app.tables);
    let rows = app.rows();
    let cursor = app.cursor(&rows);
    let split = rows.iter().filter(|it| it.key.kind == Kind::Link).count();
    let (links, others) = rows.split_at(split);
    let wanted = |rows: usize| u16::try_from(rows + 1).unwrap_or(u16::MAX);
    let upper = match split {
        0 => 0,
        // The classes keep half of the room, if they want that much.
        _ => wanted(split).min(area.height - wanted(others.len()).min(area.height / 2)),
    };
    let halves = [Constraint::Length(upper), Constraint::Fill(1)];
    let [above, below] = Layout::vertical(halves).areas(area);
    let is_link = cursor < split;
    states[0].select(is_link.then_some(cursor));
    states[1].select((!is_link && !others.is_empty()).then(|| cursor - split));
    let has_sites = others.iter().any(|it| it.key.kind == Kind::Site);
    let (title, own) = match has_sites {
        true => ("SITE", &OF_SITES[..]),
        false => ("CLASS", &OF_CLASSES[..]),
    };
    let width = frame.area().width;
    if split > 0 {
        let table = table(&heading("LINK", app.order), links, &OF_LINKS, width);
        frame.render_stateful_widget(table, above, &mut states[0]);
    }
    let table = table(&heading(title, app.order), others, own, width);
    frame.render_stateful_widget(table, below, &mut states[1]);
    app.tables = states;
}

fn heading(title: &str, order: Order) -> String {
    match order {
        Order::Usual => title.into(),
        _ => format!("{title} {}", order.word()),
    }
}

fn table(title: &str, rows: &[&Entry], own: &'static [Column], width: u16) -> Table<'static> {
    let fits = |column: &&Column| width >= column.from;
    let columns: Vec<&Column> = SHARED.iter().chain(own).filter(fits).collect();
    let others: u16 = columns.iter().map(|column| column.width + 1).sum();
    // The mark and the state stand around the name.
    let room = width.saturating_sub(others + 1 + STATE + 1);
    let longest = rows.iter().map(|entry| entry.key.name.chars().count());
    let longest = longest
        .chain([title.chars().count(), usize::from(ROOMY)])
        .max();
    let name = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let name = name.min(room.max(NAME));
    let widths = [name, STATE].into_iter();
    let widths = widths.chain(columns.iter().map(|column| column.width));
    let titles = columns.iter().map(|column| right(column.title.into()));
    let names = [fitted(title, name), "STATE".into()].map(Cell::from);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let head = Row::new(names.into_iter().chain(titles)).style(dim);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let lines: Vec<Row<'static>> = rows
        .iter()
        .map(|entry| line(entry, name, &columns))
        .collect();
    Table::new(lines, widths.map(Constraint::Length))
        .header(head)
        .row_highlight_style(reversed)
        .highlight_symbol(">")
        .highlight_spacing(HighlightSpacing::Always)
}

/// Columns of the state: `connecting`.
const STATE: u16 = 10;

fn line(entry: &Entry, name: u16, columns: &[&Column]) -> Row<'static> {
    let own = [
        Cell::from(fitted(&entry.key.name, name)),
        Cell::from(entry.state).style(color(entry.mood)),
    ];
    let others = columns.iter().map(|column| right((column.text)(entry)));
    Row::new(own.into_iter().chain(others))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// A name without its middle where there is no room for it: names of a fleet begin alike.
pub(super) fn fitted(name: &str, room: u16) -> String {
    let (room, length) = (usize::from(room), name.chars().count());
    if length <= room {
        return name.into();
    }
    let tail = room / 2;
    let head = room.saturating_sub(tail + 1);
    let parts = name.chars().take(head).chain(['…']);
    parts.chain(name.chars().skip(length - tail)).collect()
}
