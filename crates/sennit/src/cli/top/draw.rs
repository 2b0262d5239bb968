//! The picture on the terminal: which panes there is room for, and what each shows.
//!
//! It is the same without colours: words say what colours do, and the selected row is marked.

mod lists;
mod pages;
mod plots;
mod tables;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::app::{App, Mode};
use super::entries::{self, Entry, Kind, Mood};
use super::rates::{Now, Row};
use super::why;
use crate::status::{self, Role};

/// With fewer columns than these, flows stand above events and not beside them.
const WIDE: u16 = 110;
/// Lines of a plot at most.
const TALL: u16 = 4;
const KEYS: &str = "q quit  ? help  / filter  s sort  p freeze  enter why";
const KEYS_OF_EDGE: &str = "  o pause  d drill  t test";

pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    if let Mode::Page(page, scrolled) = app.mode {
        let last = pages::draw(app, page, scrolled, frame);
        app.mode = Mode::Page(page, scrolled.min(last));
    } else {
        let panes = Panes::of(app, area);
        head(app, panes.head, frame);
        plots::draw(app, panes.plots, frame);
        tables::draw(app, panes.table, frame);
        reasons(app, panes.why, frame);
        let (flows, events) = halves(panes.bottom);
        lists::flows(app, flows, frame);
        lists::events(app, events, frame);
        foot(app, panes.foot, frame);
    }
    if let Some(told) = &app.told {
        pages::pop_up(told, frame);
    }
    if !app.color {
        for cell in &mut frame.buffer_mut().content {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
    }
}

/// Where things are; those for which there is no room are empty.
#[derive(Debug, PartialEq, Eq)]
struct Panes {
    head: Rect,
    plots: Rect,
    table: Rect,
    why: Rect,
    bottom: Rect,
    foot: Rect,
}

impl Panes {
    fn of(app: &App, area: Rect) -> Self {
        let rows = app.rows();
        let links = rows.iter().filter(|it| it.key.kind == Kind::Link).count();
        // Both tables have a heading.
        let headings = usize::from(links > 0) + 1;
        let table = u16::try_from(rows.len() + headings).unwrap_or(u16::MAX);
        let plots = u16::try_from(plots::count(app, &rows)).unwrap_or(u16::MAX);
        Self::share(area, table, plots)
    }

    /// What matters most comes first: a few rows, the lines around, reasons, plots, events; then
    /// more of each.
    fn share(area: Rect, rows: u16, plots: u16) -> Self {
        let mut room = Room(area.height);
        let mut table = room.take(1, rows.min(6));
        let mut head = room.take(1, 1);
        let foot = room.take(1, 1);
        head += room.take(1, 1);
        let mut why = room.take(3, 3);
        let mut plot = room.take(2, plots.min(4).saturating_add(1));
        let mut bottom = room.take(4, 4);
        // Of hundreds of sites not all are shown at once.
        table += room.take(1, rows.saturating_sub(table).min(room.0.div_ceil(2)));
        if bottom > 0 {
            let missing = plots.saturating_add(1).saturating_sub(plot);
            plot += room.take(1, missing.min(room.0 / 2));
            bottom += room.take(1, 6);
            why += room.take(1, 2);
            for _ in 1..TALL {
                plot += room.take(plots, plots);
            }
            bottom += room.take(1, u16::MAX);
        }
        table += room.take(1, u16::MAX);
        let heights = [head, plot, table, why, bottom, foot].map(Constraint::Length);
        let [head, plots, table, why, bottom, foot] = Layout::vertical(heights).areas(area);
        Self {
            head,
            plots,
            table,
            why,
            bottom,
            foot,
        }
    }
}

/// Lines that are not given away yet.
struct Room(u16);

impl Room {
    /// So many of them, or none if there are fewer than `least`.
    fn take(&mut self, least: u16, most: u16) -> u16 {
        let taken = if self.0 < least { 0 } else { most.min(self.0) };
        self.0 -= taken;
        taken
    }
}

/// Where flows and events are.
fn halves(area: Rect) -> (Rect, Rect) {
    let half = [Constraint::Fill(1); 2];
    let [flows, events] = match area.width < WIDE {
        true => Layout::vertical(half).areas(area),
        false => Layout::horizontal(half).spacing(1).areas(area),
    };
    (flows, events)
}

/// A pane with a title, and nothing else around it.
fn pane(title: impl Into<Line<'static>>) -> Block<'static> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    Block::new()
        .borders(Borders::TOP)
        .border_style(dim)
        .title(title)
}

fn color(mood: Mood) -> Style {
    Style::new().fg(match mood {
        Mood::Good => Color::Green,
        Mood::Uneasy => Color::Yellow,
        Mood::Bad => Color::Red,
    })
}

// ---- the lines around ---------------------------------------------------------------------------

fn head(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let picture = app.picture();
    let now = &picture.now;
    let (word, mood) = match picture.trouble {
        Some(_) => ("no answer", Mood::Bad),
        None => entries::word(now.state),
    };
    let sum = |of: fn(&Row) -> f64| status::rate(now.tunnels.iter().map(of).sum());
    let mut words = Vec::new();
    if app.is_frozen() {
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        words.extend([Span::styled("FROZEN", reversed), Span::raw("  ")]);
    }
    words.push(Span::styled(word, color(mood).add_modifier(Modifier::BOLD)));
    words.push(Span::raw(format!(
        "  {}  {}  sends {}  receives {}  {}",
        whom(app),
        status::duration(now.uptime_seconds),
        sum(|row| row.sent_bytes_per_second),
        sum(|row| row.received_bytes_per_second),
        paths(now),
    )));
    if picture.drops > 0.0 {
        let drops = format!("  drops {:.0}/s", picture.drops);
        words.push(Span::styled(drops, color(Mood::Uneasy)));
    }
    let trouble = picture.trouble.iter();
    let trouble = trouble.map(|why| format!("trying again, below is what it said last: {why}"));
    let reason = now.reason.iter().cloned();
    let notes = picture.seen.status.notes.iter().cloned();
    let second: Vec<String> = trouble.chain(reason).chain(notes).collect();
    let lines = vec![Line::from(words), Line::from(second.join("; "))];
    frame.render_widget(Paragraph::new(lines), area);
}

/// Which daemon this is.
fn whom(app: &App) -> String {
    let status = &app.picture().seen.status;
    let own = status.tunnels.first();
    match (status.role, own) {
        (Role::Edge, Some(tunnel)) => format!("{} on {}", tunnel.site, status.device),
        (Role::Edge, None) => format!("edge on {}", status.device),
        (Role::Hub, _) => format!("hub on {}", status.device),
    }
}

/// How much of it works.
fn paths(now: &Now) -> String {
    match now.role {
        Role::Edge => {
            let up: usize = now.tunnels.iter().map(|row| row.paths_up).sum();
            let all: usize = now.tunnels.iter().map(|row| row.paths).sum();
            format!("paths {up}/{all}")
        }
        Role::Hub => {
            let up = now.tunnels.iter().filter(|row| row.up).count();
            format!("sites {up}/{}", now.tunnels.len())
        }
    }
}

fn foot(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = match &app.mode {
        Mode::Filter => Line::styled(
            format!("/{}_  enter keeps it, esc drops it", app.filter),
            bold,
        ),
        Mode::Ask(question) => Line::styled(format!("{} [y/N]", question.text), bold),
        Mode::Watch | Mode::Page(..) => match (&app.busy, &app.said) {
            (Some(busy), None) => Line::styled(format!("{busy}  (x stops it)"), bold),
            (_, Some(said)) => Line::styled(said.clone(), bold),
            (None, None) => Line::raw(keys(app)),
        },
    };
    frame.render_widget(line, area);
}

/// The keys that matter most, behind what the filter hides.
fn keys(app: &App) -> String {
    let filtered = match app.filter.as_str() {
        "" => String::new(),
        filter => format!("only /{filter}, esc shows all  "),
    };
    let more = match app.picture().now.role {
        Role::Edge => KEYS_OF_EDGE,
        Role::Hub => "",
    };
    format!("{filtered}{KEYS}{more}")
}

fn reasons(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let Some(entry) = app.selected() else {
        return;
    };
    let lines = why::reasons(app.picture(), &entry.key);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: true });
    frame.render_widget(paragraph.block(pane(title_of(entry))), area);
}

fn title_of(entry: &Entry) -> String {
    let kind = match entry.key.kind {
        Kind::Link => "link",
        Kind::Class => "class",
        Kind::Site => "site",
    };
    format!(" why {kind} {} is so ", entry.key.name)
}

#[cfg(test)]
mod tests;
