//! The picture: on a terminal, or as text.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Cell, Table, Widget};

use super::rates::{Now, Row};
use crate::status::{self, Role, State};

/// Narrower than this, there is no column for reasons.
const WIDE: u16 = 100;

/// Draws on a terminal; so many rows of the lists are left out.
pub(super) fn draw(now: &Now, skipped: u16, frame: &mut Frame<'_>) {
    let area = frame.area();
    paint(now, skipped, area, frame.buffer_mut());
}

/// The whole picture as lines, with the reasons below it.
pub(super) fn text(now: &Now, width: u16) -> String {
    let rows = now.links.len() + now.tunnels.len();
    let height = u16::try_from(rows).unwrap_or(u16::MAX - 7) + 7;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    paint(now, 0, area, &mut buffer);
    let line = |y| -> String {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let lines: Vec<String> = (0..height).map(line).collect();
    let mut text = lines.join("\n").trim_end().to_owned() + "\n";
    let told = now.links.iter().chain(&now.tunnels);
    let told: Vec<&Row> = told.filter(|row| !row.why.is_empty()).collect();
    if width < WIDE && !told.is_empty() {
        text += "\n";
        for row in told {
            text += &format!("{}: {}\n", row.name, row.why);
        }
    }
    text
}

fn paint(now: &Now, skipped: u16, area: Rect, buffer: &mut Buffer) {
    let skipped = usize::from(skipped);
    let links = now.links.iter().skip(skipped);
    let links: Vec<&Row> = links.collect();
    let tunnels = now.tunnels.iter();
    let tunnels: Vec<&Row> = tunnels
        .skip(skipped.saturating_sub(now.links.len()))
        .collect();
    let height = |rows: &[&Row]| u16::try_from(rows.len() + 1).unwrap_or(u16::MAX);
    let of_links = if links.is_empty() { 0 } else { height(&links) };
    let [head, _, upper, _, lower] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(of_links),
        Constraint::Length(u16::from(of_links > 0)),
        Constraint::Fill(1),
    ])
    .areas(area);
    heading(now, head, buffer);
    if of_links > 0 {
        Widget::render(table("LINK", &links, area.width), upper, buffer);
    }
    let title = match now.role {
        Role::Edge => "CLASS",
        Role::Hub => "SITE",
    };
    Widget::render(table(title, &tunnels, area.width), lower, buffer);
}

fn heading(now: &Now, area: Rect, buffer: &mut Buffer) {
    let (word, color) = match now.state {
        State::Up => ("up", Color::Green),
        State::Connecting => ("connecting", Color::Yellow),
        State::Degraded => ("degraded", Color::Yellow),
        State::Down => ("down", Color::Red),
    };
    let role = match now.role {
        Role::Edge => "edge",
        Role::Hub => "hub",
    };
    let uptime = status::duration(now.uptime_seconds);
    let rest = format!("  {role} on {}, running for {uptime}", now.device);
    let line = Line::from_iter([Span::styled(word, Style::new().fg(color)), rest.into()]);
    let sites = (now.role == Role::Hub).then(|| sites(&now.tunnels));
    let reason = now.reason.clone().or(sites).unwrap_or_default();
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    line.render(first, buffer);
    Line::from(reason).render(second, buffer);
}

/// How many sites there are, and what passes between them and the hub.
fn sites(rows: &[Row]) -> String {
    let sum = |of: fn(&Row) -> f64| status::rate(rows.iter().map(of).sum());
    format!(
        "{} of {} sites up, sends {}, receives {}",
        rows.iter().filter(|row| row.up).count(),
        rows.len(),
        sum(|row| row.sent_bytes_per_second),
        sum(|row| row.received_bytes_per_second),
    )
}

fn table<'a>(title: &'a str, rows: &[&'a Row], width: u16) -> Table<'a> {
    let numbers = ["PATHS", "SENDS", "RECEIVES", "RTT", "LOSS"].map(right);
    let head = [Cell::from(title), Cell::from("STATE")]
        .into_iter()
        .chain(numbers);
    let why = if width < WIDE { 0 } else { width };
    let widths = [12, 5, 5, 10, 10, 9, 7, why].map(Constraint::Max);
    let lines = rows.iter().map(|row| line(row));
    Table::new(lines, widths).header(head.chain([Cell::from("WHY")]).collect())
}

fn right<'a>(text: impl Into<Line<'a>>) -> Cell<'a> {
    Cell::from(text.into().right_aligned())
}

fn line(row: &Row) -> widgets::Row<'_> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let (word, color) = if row.up {
        ("up", Color::Green)
    } else {
        ("down", Color::Red)
    };
    widgets::Row::new([
        Cell::from(row.name.as_str()),
        Cell::from(word).style(Style::new().fg(color)),
        right(format!("{}/{}", row.paths_up, row.paths)),
        right(status::rate(row.sent_bytes_per_second)),
        right(status::rate(row.received_bytes_per_second)),
        right(known(
            row.rtt_seconds.map(|rtt| format!("{:.1} ms", rtt * 1e3)),
        )),
        right(known(
            row.loss_ratio.map(|loss| format!("{:.1} %", loss * 100.0)),
        )),
        Cell::from(row.why.as_str()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_says_how_many_sites_there_are() {
        let row = |name: &str, up: bool| Row {
            name: name.into(),
            up,
            sent_bytes_per_second: 625_000.0,
            ..Row::default()
        };
        let now = Now {
            schema: "sennit.top/1",
            role: Role::Hub,
            state: State::Up,
            reason: None,
            device: "hub".into(),
            uptime_seconds: 90.0,
            links: Vec::new(),
            tunnels: vec![row("van", false), row("ship", true)],
        };

        let text = text(&now, 120);

        assert!(text.contains("1 of 2 sites up, sends 10.0 Mb/s"), "{text}");
        let van = text.lines().find(|line| line.starts_with("van")).unwrap();
        assert!(van.contains("down"), "{text}");
    }

    #[test]
    fn a_look_as_text_has_a_line_for_each_link_and_class() {
        let row = |name: &str, sent: f64| Row {
            name: name.into(),
            up: sent > 0.0,
            paths: 1,
            paths_up: usize::from(sent > 0.0),
            sent_bytes_per_second: sent,
            rtt_seconds: Some(0.0123),
            ..Row::default()
        };
        let now = Now {
            schema: "sennit.top/1",
            role: Role::Edge,
            state: State::Degraded,
            reason: Some("1 of 2 links, 1 of 1 tunnels".into()),
            device: "sennit0".into(),
            uptime_seconds: 90.0,
            links: vec![row("starlink", 1_250_000.0), row("lte", 0.0)],
            tunnels: vec![row("default", 1_250_000.0)],
        };

        let text = text(&now, 80);

        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("degraded").contains("edge on sennit0"), "{text}");
        assert!(line("starlink").contains("10.0 Mb/s"), "{text}");
        assert!(line("lte").contains("down"), "{text}");
        assert!(line("default").contains("12.3 ms"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
