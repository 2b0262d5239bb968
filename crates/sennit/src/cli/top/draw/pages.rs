//! What has the whole screen for a while: help, all reasons, all flows, all events.

use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::{lists, pane, title_of};
use crate::cli::top::app::{App, Page};
use crate::cli::top::entries::Kind;
use crate::cli::top::why;
use crate::status::{self, FlowReason};

pub(super) const HELP: &str = "\
q, esc, Ctrl-C  end
?, h            this help
up, down, k, j  select a link, class or site; page up, page down, home, end as well
enter, w        all that there is to say about it
f               all flows, with the reasons for the way they go
e               all events that were heard of
/               show only what contains a text: rows, flows and events; esc shows all again
s               sort rows as usual, by rate, by round trip, by loss, by name
p, space        stop the picture, and go on

At an edge, and each but to carry again only once you have said y to it:
o               have the selected link carry nothing, as `sennit links pause`, or carry again
d               lose it on purpose while pings pass, as `sennit links drill`
t               measure it alone, as `sennit speedtest --link`; of a class: the tunnel
x               stop a drill or a speed test

SENDS and RECEIVES are in bits a second, as this side sees it. SHARE is of what all links send.
RTT 95 % is what 95 of 100 samples of the plots do not exceed. RATE is what one class can carry
on a link. FLIGHT is how full the congestion windows are. Times are UTC.";

/// Draws a page, so many lines scrolled; how many there are at most.
pub(super) fn draw(app: &App, page: Page, scrolled: u16, frame: &mut Frame<'_>) -> u16 {
    let (title, lines) = match page {
        Page::Help => ("help".into(), HELP.lines().map(str::to_owned).collect()),
        Page::Why => all_reasons(app),
        Page::Flows => {
            let flows = lists::shown_flows(app);
            ("flows".into(), flows.iter().flat_map(flow).collect())
        }
        Page::Events => ("events".into(), events(app)),
    };
    let last = u16::try_from(lines.len().saturating_sub(1)).unwrap_or(u16::MAX);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    let title = format!(" {}: the arrows scroll, other keys go back ", title.trim());
    let paragraph = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((scrolled.min(last), 0))
        .block(pane(title));
    frame.render_widget(paragraph, frame.area());
    last
}

/// Of a class also what its flows say.
fn all_reasons(app: &App) -> (String, Vec<String>) {
    let Some(entry) = app.selected() else {
        return ("why".into(), vec!["nothing is selected".into()]);
    };
    let mut lines = why::reasons(app.picture(), &entry.key);
    if entry.key.kind == Kind::Class {
        let flows = lists::shown_flows(app);
        let own = flows.iter().filter(|it| it.class == entry.key.name);
        lines.extend(own.flat_map(flow));
    }
    (title_of(entry), lines)
}

/// All that is known of a flow.
fn flow(it: &FlowReason) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        it.flow.flow.clone(),
        format!(
            "  class {}, {}, {} in {}, {}",
            why::class_of(it),
            status::rate(it.flow.rate_bytes_per_second),
            status::bytes(it.flow.sent_bytes),
            status::duration(it.flow.age_seconds),
            why::links_of(&it.flow),
        ),
    ];
    lines.extend(it.flow.why.iter().map(|why| format!("  - {why}")));
    lines
}

fn events(app: &App) -> Vec<String> {
    let records = lists::shown_events(app);
    records
        .map(|it| format!("{}  {}", it.time, it.text))
        .collect()
}

/// Several lines in the middle, until a key is pressed.
pub(super) fn pop_up(text: &str, frame: &mut Frame<'_>) {
    let longest = text.lines().map(|line| line.chars().count()).max();
    let (width, height) = (longest.unwrap_or(0) + 2, text.lines().count() + 2);
    let [width, height] = [width, height].map(|it| u16::try_from(it).unwrap_or(u16::MAX));
    let area = frame.area();
    // Lines that are too long are wrapped, each once or twice.
    let height = if width > area.width {
        height.saturating_mul(2)
    } else {
        height
    };
    let [width, height] =
        [(width, area.width), (height, area.height)].map(|(it, most)| it.min(most));
    let area = area.centered(Constraint::Length(width), Constraint::Length(height));
    let lines: Vec<Line<'_>> = text.lines().map(Line::from).collect();
    let block = Block::bordered().title_bottom(" any key goes back ");
    frame.render_widget(Clear, area);
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(paragraph.block(block), area);
}
