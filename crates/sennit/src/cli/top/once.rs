//! One look as text, which `--once` prints.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{self, Cell, Table, Widget};

use super::entries;
use super::rates::{Now, Row};
use crate::status::{self, Role};

/// Columns behind the name.
const NUMBERS: [u16; 6] = [5, 5, 10, 10, 9, 7];
/// Columns of all of them, with the gaps around.
const MIDDLE: u16 = 46 + 7;
/// The least that names get.
const NAME: u16 = 12;

/// The whole picture as lines with whole names, and the reasons below it.
pub(super) fn text(now: &Now, width: u16) -> String {
    let name = longest_name(now);
    let width = width.max(MIDDLE + name);
    let height = u16::try_from(now.rows()).unwrap_or(u16::MAX - 7) + 7;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    paint(now, name, area, &mut buffer);
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

fn longest_name(now: &Now) -> u16 {
    let rows = now.links.iter().chain(&now.tunnels);
    let longest = rows.map(|row| row.name.chars().count()).max();
    u16::try_from(longest.unwrap_or(0))
        .unwrap_or(NAME)
        .max(NAME)
}

fn paint(now: &Now, name: u16, area: Rect, buffer: &mut Buffer) {
    let of_links = match now.links.len() {
        0 => 0,
        links => u16::try_from(links + 1).unwrap_or(u16::MAX),
    };
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
        Widget::render(table("LINK", &now.links, name), upper, buffer);
    }
    let title = match now.role {
        Role::Edge => "CLASS",
        Role::Hub => "SITE",
    };
    Widget::render(table(title, &now.tunnels, name), lower, buffer);
}

fn heading(now: &Now, area: Rect, buffer: &mut Buffer) {
    let (word, _) = entries::word(now.state);
    let role = match now.role {
        Role::Edge => "edge",
        Role::Hub => "hub",
    };
    let uptime = status::duration(now.uptime_seconds);
    let line = format!("{word}  {role} on {}, running for {uptime}", now.device);
    let sites = (now.role == Role::Hub).then(|| sites(&now.tunnels));
    let reason = now.reason.clone().or(sites).unwrap_or_default();
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    Line::from(line).render(first, buffer);
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

fn table<'a>(title: &'a str, rows: &'a [Row], name: u16) -> Table<'a> {
    let numbers = ["PATHS", "SENDS", "RECEIVES", "RTT", "LOSS"].map(right);
    let head = [Cell::from(title), Cell::from("STATE")].into_iter();
    let widths = [Constraint::Length(name)].into_iter();
    let widths = widths.chain(NUMBERS.map(Constraint::Max));
    Table::new(rows.iter().map(line), widths).header(head.chain(numbers).collect())
}

fn right<'a>(text: impl Into<Line<'a>>) -> Cell<'a> {
    Cell::from(text.into().right_aligned())
}

fn line(row: &Row) -> widgets::Row<'_> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    widgets::Row::new([
        Cell::from(row.name.as_str()),
        Cell::from(if row.up { "up" } else { "down" }),
        right(format!("{}/{}", row.paths_up, row.paths)),
        right(status::rate(row.sent_bytes_per_second)),
        right(status::rate(row.received_bytes_per_second)),
        right(known(
            row.rtt_seconds.map(|rtt| format!("{:.1} ms", rtt * 1e3)),
        )),
        right(known(
            row.loss_ratio.map(|loss| format!("{:.1} %", loss * 100.0)),
        )),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::State;

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
        assert_eq!(
            line("LINK"),
            "LINK         STATE PATHS      SENDS   RECEIVES       RTT    LOSS"
        );
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
