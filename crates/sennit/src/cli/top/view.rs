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
/// Columns between the name and the reason.
const NUMBERS: [u16; 6] = [5, 5, 10, 10, 9, 7];
/// Columns of all of them, with the gaps around.
const MIDDLE: u16 = 46 + 7;
/// The least that names get, and reasons where there is room for a column of them.
const NAME: u16 = 12;
const REASON: u16 = 30;

/// Draws on a terminal; so many rows of the lists are left out.
pub(super) fn draw(now: &Now, skipped: u16, frame: &mut Frame<'_>) {
    let area = frame.area();
    let why = if area.width < WIDE { 0 } else { REASON };
    let room = area.width.saturating_sub(MIDDLE + why).max(NAME);
    let columns = Columns {
        name: longest_name(now).min(room),
        has_why: why > 0,
    };
    paint(now, skipped, columns, area, frame.buffer_mut());
}

/// The whole picture as lines with whole names, and the reasons below it.
pub(super) fn text(now: &Now, width: u16) -> String {
    let columns = Columns {
        name: longest_name(now),
        has_why: false,
    };
    let width = width.max(MIDDLE + columns.name);
    let height = u16::try_from(now.rows()).unwrap_or(u16::MAX - 7) + 7;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    paint(now, 0, columns, area, &mut buffer);
    let line = |y| -> String {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let lines: Vec<String> = (0..height).map(line).collect();
    let mut text = lines.join("\n").trim_end().to_owned() + "\n";
    let told = now.links.iter().chain(&now.tunnels);
    let told: Vec<&Row> = told.filter(|row| !row.why.is_empty()).collect();
    if !told.is_empty() {
        text += "\n";
        for row in told {
            text += &format!("{}: {}\n", row.name, row.why);
        }
    }
    text
}

/// How the width of the picture is shared.
#[derive(Clone, Copy)]
struct Columns {
    name: u16,
    has_why: bool,
}

fn longest_name(now: &Now) -> u16 {
    let rows = now.links.iter().chain(&now.tunnels);
    let longest = rows.map(|row| row.name.chars().count()).max();
    u16::try_from(longest.unwrap_or(0))
        .unwrap_or(NAME)
        .max(NAME)
}

fn paint(now: &Now, skipped: u16, columns: Columns, area: Rect, buffer: &mut Buffer) {
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
        Widget::render(table("LINK", &links, columns), upper, buffer);
    }
    let title = match now.role {
        Role::Edge => "CLASS",
        Role::Hub => "SITE",
    };
    Widget::render(table(title, &tunnels, columns), lower, buffer);
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
    let mut rest = format!("  {role} on {}", now.device);
    // One that does not answer may not run.
    if now.uptime_seconds > 0.0 {
        rest += &format!(", running for {}", status::duration(now.uptime_seconds));
    }
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

fn table<'a>(title: &'a str, rows: &[&'a Row], columns: Columns) -> Table<'a> {
    let numbers = ["PATHS", "SENDS", "RECEIVES", "RTT", "LOSS"].map(right);
    let head = [Cell::from(title), Cell::from("STATE")]
        .into_iter()
        .chain(numbers);
    let why = match columns.has_why {
        true => Constraint::Fill(1),
        false => Constraint::Length(0),
    };
    let widths = [Constraint::Length(columns.name)];
    let widths = widths
        .into_iter()
        .chain(NUMBERS.map(Constraint::Max))
        .chain([why]);
    let lines = rows.iter().map(|row| line(row, columns));
    Table::new(lines, widths).header(head.chain([Cell::from("WHY")]).collect())
}

/// A name without its middle where there is no room for it: names of a fleet begin alike.
fn fitted(name: &str, room: u16) -> String {
    let (room, length) = (usize::from(room), name.chars().count());
    if length <= room {
        return name.into();
    }
    let tail = room / 2;
    let head = room.saturating_sub(tail + 1);
    let parts = name.chars().take(head).chain(['…']);
    parts.chain(name.chars().skip(length - tail)).collect()
}

fn right<'a>(text: impl Into<Line<'a>>) -> Cell<'a> {
    Cell::from(text.into().right_aligned())
}

fn line(row: &Row, columns: Columns) -> widgets::Row<'_> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let (word, color) = if row.up {
        ("up", Color::Green)
    } else {
        ("down", Color::Red)
    };
    widgets::Row::new([
        Cell::from(fitted(&row.name, columns.name)),
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

    fn hub(tunnels: Vec<Row>) -> Now {
        Now {
            schema: "sennit.top/1",
            role: Role::Hub,
            state: State::Up,
            reason: None,
            device: "hub".into(),
            uptime_seconds: 90.0,
            links: Vec::new(),
            tunnels,
        }
    }

    #[test]
    fn long_names_of_a_fleet_are_told_apart() {
        let names = ["alpha", "omega"].map(|end| format!("{}-{end}", "n".repeat(57)));
        let row = |name: &String| Row {
            name: name.clone(),
            ..Row::default()
        };
        let now = hub(names.iter().map(row).collect());

        let text = text(&now, 80);

        for name in &names {
            let line = format!("{name} down ");
            assert!(text.lines().any(|it| it.starts_with(&line)), "{text}");
        }
        assert_eq!(fitted(&names[0], 12), "nnnnn…-alpha");
        assert_eq!(fitted(&names[1], 12), "nnnnn…-omega");
        assert_eq!(fitted("ship", 12), "ship");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_told_in_the_picture() {
        let now = hub(vec![Row::default()]);

        let text = text(&now.unanswered("connection refused".into()), 80);

        assert!(text.starts_with("down"), "{text}");
        assert!(text.contains("connection refused"), "{text}");
    }

    #[test]
    fn a_hub_says_how_many_sites_there_are() {
        let row = |name: &str, up: bool| Row {
            name: name.into(),
            up,
            sent_bytes_per_second: 625_000.0,
            ..Row::default()
        };
        let now = hub(vec![row("van", false), row("ship", true)]);

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
