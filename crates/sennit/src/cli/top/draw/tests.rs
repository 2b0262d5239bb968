use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::*;
use crate::cli::top::errands::{Errand, Outcome};
use crate::cli::top::rates::Seen;
use crate::cli::top::{app::Wish, picture::TOTAL};
use crate::history::{History, Series};
use crate::journal::Record;
use crate::status::Status;

// ---- a daemon -----------------------------------------------------------------------------------

/// An edge with two links and two classes.
fn edge() -> Value {
    let full = include_str!("../../../../tests/parts/schema/full.json");
    let mut edge: Value = serde_json::from_str(full).unwrap();
    let lte = edge["links"][0].clone();
    let starlink = json!({
        "name": "starlink", "interface": "eth1", "tier": 1, "weight": 1, "state": "up",
        "rtt_seconds": 0.04,
    });
    edge["links"] = json!([starlink, lte]);
    let tunnel = &mut edge["tunnels"][0];
    tunnel["reason"] = Value::Null;
    let path = &mut tunnel["paths"][0];
    path["link"] = json!("starlink");
    path["state"] = json!("up");
    path["why"] = json!("it is the fastest");
    let mut voice = tunnel.clone();
    voice["class"] = json!("voice");
    voice["paths"][0]["why"] = json!("it is the nearest");
    voice["flows"] = json!([]);
    edge["tunnels"].as_array_mut().unwrap().push(voice);
    edge["sites"] = json!([]);
    edge
}

/// A hub with a site that is here and one that is away.
fn hub() -> Value {
    let mut hub = edge();
    hub["role"] = json!("hub");
    hub["links"] = json!([]);
    let here = json!({
        "name": "van-07", "state": "up", "classes": ["default"], "sent_bytes": 1,
        "received_bytes": 2, "links": [],
    });
    let mut away = here.clone();
    away["name"] = json!("ship");
    away["classes"] = json!([]);
    away["last_seen"] = json!("2026-11-26T21:30:00Z");
    hub["sites"] = json!([here, away]);
    hub
}

fn seen(status: &Value, at: Instant) -> Seen {
    let status: Status = serde_json::from_value(status.clone()).unwrap();
    Seen::new(status, at)
}

/// Somebody watches for a second in which the first path carried 1 MB.
fn watched(mut status: Value) -> App {
    let start = Instant::now();
    let mut app = App::new(seen(&status, start), Duration::from_secs(1), true);
    let tunnel = &mut status["tunnels"][0];
    tunnel["sent_bytes"] = json!(1_000_001);
    tunnel["paths"][0]["sent_bytes"] = json!(1_000_001);
    tunnel["paths"][0]["sent_packets"] = json!(1100);
    tunnel["paths"][0]["lost_packets"] = json!(21);
    app.live()
        .handle_look(Ok(seen(&status, start + Duration::from_secs(1))));
    app.live()
        .handle_events(vec![record(1, "link lte is down: it has no address")]);
    app
}

fn record(id: u64, text: &str) -> Record {
    serde_json::from_value(json!({
        "id": id, "time": "2026-11-26T21:30:00.123Z", "text": text, "event": "link_down",
        "link": "lte", "cause": "no_address", "reason": "", "millis": 0,
    }))
    .unwrap()
}

fn press(app: &mut App, code: KeyCode) -> Option<Wish> {
    app.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(app: &mut App, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(app, KeyCode::Char(letter)), None, "{text}");
    }
}

fn buffer(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn shown(app: &mut App, width: u16, height: u16) -> String {
    let buffer = buffer(app, width, height);
    let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n")
}

#[track_caller]
fn has(picture: &str, words: &[&str]) {
    for word in words {
        assert!(picture.contains(word), "{word}:\n{picture}");
    }
}

// ---- what is shown ------------------------------------------------------------------------------

#[test]
fn eighty_columns_and_twenty_four_lines_have_all_panes() {
    let picture = shown(&mut watched(edge()), 80, 24);

    println!("{picture}");
    has(
        &picture,
        &[
            "degraded  van-07 on sennit0",
            "sends 8.0 Mb/s",
            "LAST 120 S SENDS 8.0 Mb/s",
            "LOSS 2.0 %",
            ">starlink     up",
            " lte          down",
            " default      up",
            "why link starlink is so",
            "default 50 %: it is the fastest",
            "voice 50 %: it is the nearest",
            "flows to the hub (2)",
            "tcp 10.200.0.2:40000",
            "lte 100 %",
            "21:30:00 link lte is down: it has no address",
            "q quit  ? help",
        ],
    );
}

#[test]
fn a_wide_terminal_has_more_columns_and_flows_beside_events() {
    let picture = shown(&mut watched(edge()), 160, 50);

    println!("{picture}");
    has(
        &picture,
        &[
            "SHARE", "RTT MIN", "RTT 95 %", "LIMIT", "FLIGHT", "POLICY", "bond",
        ],
    );
    let mut lines = picture.lines();
    let line = lines
        .find(|line| line.contains("flows to the hub"))
        .unwrap();
    assert!(line.contains("events (UTC)"), "{picture}");
}

#[test]
fn a_hub_shows_sites_and_when_they_were_here() {
    let picture = shown(&mut watched(hub()), 80, 24);

    println!("{picture}");
    has(
        &picture,
        &[
            "hub on sennit0",
            "sites 1/2",
            "all sites",
            "van-07",
            "11-26 21:30",
            "now",
            "away, last here 2026-11-26T21:30:00Z",
            "van-07/default",
        ],
    );
    assert!(!picture.contains("d drill"), "{picture}");
}

#[test]
fn any_size_has_a_picture() {
    for status in [edge(), hub()] {
        let mut app = watched(status);
        let pages = [None, Some('?'), Some('w'), Some('f'), Some('e')];
        for page in pages {
            page.iter()
                .for_each(|key| typed(&mut app, &key.to_string()));
            for width in [1, 2, 3, 9, 10, 11, 12, 21, 30, 40, 60, 80, 110, 200] {
                for height in (1..14).chain([24, 50]) {
                    let _ = buffer(&mut app, width, height);
                }
            }
            page.iter()
                .for_each(|_| assert_eq!(press(&mut app, KeyCode::Esc), None));
        }
        app.handle_outcome(Outcome::Told("one line\nand another that is longer".into()));
        let _ = buffer(&mut app, 1, 1);
        let _ = buffer(&mut app, 9, 3);
    }
}

#[test]
fn hundreds_of_sites_leave_room_for_the_rest_and_the_selected_one_is_shown() {
    let mut status = hub();
    let sites = (0..500).map(|number| {
        json!({
            "name": format!("van-{number:03}"), "state": "down", "classes": [], "sent_bytes": 0,
            "received_bytes": 0, "links": [], "last_seen": "2026-11-26T21:30:00Z",
        })
    });
    status["sites"] = sites.collect();
    status["tunnels"] = json!([]);
    let mut app = watched_as_is(&status);
    press(&mut app, KeyCode::End);

    let picture = shown(&mut app, 80, 24);

    has(
        &picture,
        &[">van-499", "why site van-499 is so", "events (UTC)"],
    );
}

fn watched_as_is(status: &Value) -> App {
    App::new(seen(status, Instant::now()), Duration::from_secs(1), true)
}

#[test]
fn without_colours_the_picture_says_the_same() {
    let mut app = watched(edge());
    let with = shown(&mut app, 80, 24);
    let colors = |buffer: &Buffer| {
        let cells = buffer.content.iter();
        cells
            .filter(|it| (it.fg, it.bg) != (Color::Reset, Color::Reset))
            .count()
    };
    assert!(colors(&buffer(&mut app, 80, 24)) > 0);

    app.color = false;

    assert_eq!(colors(&buffer(&mut app, 80, 24)), 0);
    assert_eq!(shown(&mut app, 80, 24), with);
}

#[test]
fn plots_begin_with_what_the_daemon_has_kept() {
    let mut app = watched(edge());
    let series = |name: &str| Series {
        name: name.into(),
        time: (880..1000).collect(),
        sent_bytes_per_second: vec![2e6; 120],
        ..Series::default()
    };
    let history = History {
        schema: "sennit.history/1".into(),
        step_seconds: 1,
        series: [TOTAL, "link/starlink"].map(series).into(),
    };
    let before = shown(&mut app, 80, 24);
    let at = app.picture().at();
    app.live().handle_history(&history, 1001.0, at);

    let after = shown(&mut app, 80, 24);

    assert!(!before.contains("████"), "{before}");
    has(&after, &["SENDS 16.0 Mb/s", "starlink   ████████████"]);
}

#[test]
fn a_daemon_that_is_away_is_told_and_what_it_said_last_stays() {
    let mut app = watched(edge());
    let trouble = "no daemon answers at /run/x";
    app.live().handle_look(Err(trouble.into()));

    let picture = shown(&mut app, 80, 24);

    has(
        &picture,
        &["no answer", trouble, "trying again", "starlink"],
    );
    let later = seen(&edge(), Instant::now() + Duration::from_secs(60));
    app.live().handle_look(Ok(later));
    let picture = shown(&mut app, 80, 24);
    assert!(!picture.contains("no answer"), "{picture}");
}

// ---- what keys do -------------------------------------------------------------------------------

#[test]
fn the_selection_goes_over_links_and_classes_and_ends_at_the_last() {
    let mut app = watched(edge());
    let mut names = Vec::new();
    for _ in 0..5 {
        names.push(app.selected().unwrap().key.name.clone());
        press(&mut app, KeyCode::Down);
    }
    assert_eq!(names, ["starlink", "lte", "default", "voice", "voice"]);

    press(&mut app, KeyCode::Home);
    has(&shown(&mut app, 80, 24), &["why link starlink"]);
}

#[test]
fn a_filter_hides_rows_flows_and_events_until_it_is_lifted() {
    let mut app = watched(edge());

    typed(&mut app, "/STAR");
    has(&shown(&mut app, 80, 24), &["/STAR_"]);
    press(&mut app, KeyCode::Enter);

    let picture = shown(&mut app, 80, 24);
    has(&picture, &[">starlink", "only /STAR"]);
    for hidden in [" lte ", "10.200.0.2:40000", "it has no address"] {
        assert!(!picture.contains(hidden), "{hidden}:\n{picture}");
    }
    assert_eq!(press(&mut app, KeyCode::Esc), None);
    has(&shown(&mut app, 80, 24), &["10.200.0.2:40000"]);
    assert_eq!(press(&mut app, KeyCode::Esc), Some(Wish::End));
}

#[test]
fn sorting_keeps_what_is_selected() {
    let mut app = watched(edge());
    press(&mut app, KeyCode::Down);
    typed(&mut app, "ssss");

    let rows: Vec<String> = app.rows().iter().map(|it| it.key.name.clone()).collect();
    assert_eq!(rows, ["lte", "starlink", "default", "voice"]);
    has(&shown(&mut app, 80, 24), &["LINK by name", ">lte"]);

    typed(&mut app, "ss");
    assert_eq!(app.rows()[0].key.name, "starlink", "it sends most");
}

#[test]
fn a_frozen_picture_stands_still_and_then_shows_what_came_meanwhile() {
    let mut app = watched(edge());
    typed(&mut app, "p");
    app.live().handle_events(vec![record(2, "link lte is up")]);

    let frozen = shown(&mut app, 80, 24);
    assert!(!frozen.contains("lte is up"), "{frozen}");
    has(&frozen, &["FROZEN"]);

    typed(&mut app, "p");
    has(&shown(&mut app, 80, 24), &["lte is up"]);
}

#[test]
fn links_are_paused_drilled_and_measured_only_once_somebody_agrees() {
    let drill = Errand::Drill("starlink".into());
    let measure = |metered| Errand::Measure {
        link: Some("starlink".into()),
        metered,
    };
    for (key, errand) in [
        ('o', Errand::Pause("starlink".into())),
        ('d', drill.clone()),
        ('t', measure(false)),
    ] {
        let mut app = watched(edge());
        typed(&mut app, &key.to_string());
        has(&shown(&mut app, 80, 24), &["`starlink`", "[y/N]"]);
        assert_eq!(press(&mut app, KeyCode::Enter), None, "no is usual");
        typed(&mut app, &key.to_string());
        let wish = press(&mut app, KeyCode::Char('y'));
        assert_eq!(wish, Some(Wish::Errand(errand)));
    }

    let mut app = watched(edge());
    typed(&mut app, "d");
    press(&mut app, KeyCode::Char('y'));
    typed(&mut app, "t");
    assert_eq!(press(&mut app, KeyCode::Char('y')), None, "one runs");
    has(&shown(&mut app, 80, 24), &["one thing at a time"]);
    assert_eq!(press(&mut app, KeyCode::Char('x')), Some(Wish::Stop));
    let question = "link starlink has a cap. Measure?".into();
    let errand = measure(true);
    app.handle_outcome(Outcome::Asks { question, errand });
    has(&shown(&mut app, 80, 24), &["has a cap. Measure? [y/N]"]);
    let wish = press(&mut app, KeyCode::Char('y'));
    assert_eq!(wish, Some(Wish::Errand(measure(true))));
}

#[test]
fn a_paused_link_is_resumed_and_a_hub_has_nothing_to_pause() {
    let mut status = edge();
    status["links"][1]["cause"] = json!("paused");
    let mut app = watched(status);
    press(&mut app, KeyCode::Down);
    let wish = press(&mut app, KeyCode::Char('o'));
    assert_eq!(wish, Some(Wish::Errand(Errand::Resume("lte".into()))));

    let mut app = watched(hub());
    typed(&mut app, "o");
    has(&shown(&mut app, 80, 24), &["run `sennit top` there"]);
}

#[test]
fn what_came_of_a_test_stays_until_a_key_and_help_names_every_key() {
    let mut app = watched(edge());
    app.handle_outcome(Outcome::Told("starlink was lost for 5.0 s".into()));
    has(&shown(&mut app, 80, 24), &["starlink was lost for 5.0 s"]);
    assert_eq!(press(&mut app, KeyCode::Char('q')), None);

    typed(&mut app, "?");
    let help = shown(&mut app, 80, 30);
    for key in [
        "q,", "?,", "enter", "f ", "e ", "/ ", "s ", "p,", "o ", "d ", "t ", "x ",
    ] {
        let mut lines = help.lines();
        assert!(lines.any(|line| line.starts_with(key)), "{key}:\n{help}");
    }
    assert_eq!(press(&mut app, KeyCode::Char('q')), None);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.handle_key(interrupt), Some(Wish::End));
}
