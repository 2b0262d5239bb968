//! Flows and events: the first of each, in a line.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};

use super::pane;
use crate::cli::top::app::App;
use crate::cli::top::why;
use crate::journal::Record;
use crate::status::{self, FlowReason, Role};

/// Columns of classes, at a hub with their sites, at most.
const CLASSES: u16 = 20;

/// The flows that the filter lets pass, those that send most first.
pub(super) fn shown_flows(app: &App) -> Vec<FlowReason> {
    let mut flows = why::flows(&app.picture().seen.status);
    flows.retain(|it| {
        let text = format!(
            "{} {} {}",
            it.flow.flow,
            why::class_of(it),
            why::links_of(&it.flow)
        );
        app.lets_pass(&text)
    });
    flows
}

/// The events that the filter lets pass, the newest first.
pub(super) fn shown_events(app: &App) -> impl Iterator<Item = &Record> {
    let events = app.picture().events.iter();
    events.filter(|record| app.lets_pass(&record.text))
}

pub(super) fn flows(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let mut flows = shown_flows(app);
    flows.truncate(area.height.into());
    let classes = flows.iter().map(|it| why::class_of(it).chars().count());
    let classes = u16::try_from(classes.max().unwrap_or(0)).unwrap_or(CLASSES);
    let lines = flows.iter().map(|it| {
        Row::new([
            format!("{:>10}", status::rate(it.flow.rate_bytes_per_second)),
            it.flow.flow.clone(),
            why::class_of(it),
            why::links_of(&it.flow),
        ])
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(5),
        Constraint::Length(classes.min(CLASSES)),
        Constraint::Fill(3),
    ];
    let count: u64 = app
        .picture()
        .seen
        .status
        .tunnels
        .iter()
        .map(|it| it.flow_count)
        .sum();
    let to = match app.picture().now.role {
        Role::Edge => "hub",
        Role::Hub => "sites",
    };
    let title = format!(" flows to the {to} ({count}): rate, flow, class, links ");
    frame.render_widget(Table::new(lines, widths).block(pane(title)), area);
}

pub(super) fn events(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let room = usize::from(area.height);
    let lines = shown_events(app).take(room);
    // Of a date like 2026-11-26T21:30:00.123Z.
    let lines = lines.map(|it| format!("{} {}", it.time.get(11..19).unwrap_or_default(), it.text));
    let lines: Vec<Line<'_>> = lines.map(Line::from).collect();
    let paragraph = Paragraph::new(lines).block(pane(" events (UTC), the newest first "));
    frame.render_widget(paragraph, area);
}
