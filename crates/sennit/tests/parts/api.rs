//! The HTTP API: what it answers, and what it does about those who mean it ill.

mod hostile;
mod tls;
mod world;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sennit::api::openapi;
use sennit::config::ApiConfig;
use serde_json::Value;

use crate::is_committed;
use world::{OPERATOR, READER, World, secret, status, talk};

#[test]
fn the_status_is_the_same_over_both_sockets_and_the_control_protocol_goes_on() {
    let world = World::new();

    let tcp = world.get("/v1/status");
    let unix = talk(
        world.unix(),
        "GET /v1/status HTTP/1.1\r\nhost: sennit\r\nconnection: close\r\n\r\n",
    );
    let mut control = world.unix();
    control.write_all(b"{\"command\":\"status\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(control).read_line(&mut line).unwrap();

    let expected = serde_json::to_value(status()).unwrap();
    assert_eq!((tcp.code, tcp.json()), (200, expected.clone()));
    assert_eq!((unix.code, unix.json()), (200, expected.clone()));
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
}

#[test]
fn parts_of_the_status_are_to_be_had_by_name() {
    let world = World::new();

    assert_eq!(world.get("/v1/sites").json()["sites"][0]["name"], "van-07");
    assert_eq!(world.get("/v1/sites/van-07").json()["state"], "up");
    assert_eq!(world.get("/v1/links").json()["schema"], "sennit.links/1");
    for missing in [
        "/v1/sites/bike",
        "/v1/links/lte",
        "/v1/classes/x",
        "/v2",
        "/v1/statuses",
    ] {
        let answer = world.get(missing);
        assert_eq!(
            (answer.code, answer.problem()),
            (404, "not_found".into()),
            "{missing}"
        );
    }
}

#[test]
fn the_page_is_for_everybody_and_may_load_nothing_of_others() {
    let world = World::new();

    let page = world.ask("GET /", None, "");

    assert_eq!(page.code, 200);
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
    let head = page.head.to_lowercase();
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{head}"
    );
}

#[test]
fn the_page_comes_with_the_status_for_whoever_may_look_only() {
    let world = World::new();
    let block = r#"<script type="application/json" id="status" data-role="read">"#;

    let known = world.ask("GET /", Some(READER), "");
    let (_, data) = known.body.split_once(block).expect("it is there");
    let (data, _) = data.split_once("</script>").unwrap();
    let status: Value = serde_json::from_str(data).unwrap();
    assert_eq!(status["schema"], "sennit.status/1");
    let paths = status["tunnels"][0]["paths"].as_array();
    assert!(paths.is_none_or(Vec::is_empty), "as the page asks");
    assert!(
        known
            .head
            .to_lowercase()
            .contains("cache-control: no-store")
    );

    let unknown = world.ask("GET /", None, "");
    assert!(!unknown.body.contains("sennit.status/1"), "{unknown:?}");
}

#[test]
fn who_follows_a_link_of_another_page_gets_the_page_and_nothing_else() {
    // Without tokens whoever is on this host may read, and so may the pages that it looks at.
    let world = World::with(|_| ApiConfig::default());
    let followed = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    let ask = |what: &str, more: &str| world.ask(what, None, more).code;

    let page = world.ask("GET /", None, followed);
    assert_eq!(page.code, 200, "{page:?}");
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
    assert!(!page.body.contains("sennit.status/1"), "{page:?}");

    for path in [
        "GET /v1/status",
        "GET /metrics",
        "GET /v1",
        "POST /",
        "POST /v1/command",
    ] {
        assert_eq!(ask(path, followed), 403, "{path}");
    }
    for mode in ["no-cors", "cors", "websocket"] {
        let other = followed.replace("navigate", mode);
        assert_eq!(ask("GET /", &other), 403, "{mode}");
    }
    let sent = format!("{followed}origin: http://evil.example\r\n");
    assert_eq!(ask("GET /", &sent), 403, "a form");
    let renamed = format!("{followed}host: evil.example\r\n");
    assert_eq!(ask("GET /", &renamed), 421, "DNS rebinding");
}

#[test]
fn what_a_caller_may_do_is_told() {
    let world = World::new();
    let role = |token| world.ask("GET /v1", token, "").json()["role"].clone();

    assert_eq!(role(Some(world::READER)), "read");
    assert_eq!(role(Some(OPERATOR)), "operate");
    assert_eq!(role(None), Value::Null);
    let unix = "GET /v1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(talk(world.unix(), unix).json()["role"], "admin");
    assert_eq!(world.ask("GET /healthz", None, "").code, 200);
    assert_eq!(world.ask("GET /readyz", None, "").json()["state"], "up");
}

#[test]
fn a_command_needs_its_role() {
    let world = World::new();
    let path = "POST /v1/sites/van-07/disconnect";
    let length = "content-length: 0\r\n";

    let none = world.ask(path, None, length);
    let reader = world.ask(path, Some(world::READER), length);
    assert_eq!(world.fake.done.load(Ordering::Relaxed), 0);
    let operator = world.ask(path, Some(OPERATOR), length);

    assert_eq!((none.code, none.problem()), (401, "unauthorized".into()));
    assert!(none.head.contains("www-authenticate: bearer"), "{none:?}");
    assert_eq!((reader.code, reader.problem()), (403, "forbidden".into()));
    assert_eq!(operator.code, 200, "{operator:?}");
    assert_eq!(world.fake.done.load(Ordering::Relaxed), 1);
    let missing = world.ask("POST /v1/sites/bike/disconnect", Some(OPERATOR), length);
    assert_eq!(missing.code, 404);
    let bad = world.ask("POST /v1/sites/-/disconnect", Some(OPERATOR), length);
    assert_eq!(bad.problem(), "bad_request");
}

#[test]
fn any_command_of_the_control_socket_is_taken_from_those_who_may() {
    let world = World::new();
    let command = |token, body: &str| {
        let length = body.len();
        let head = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        world.ask("POST /v1/command", Some(token), &(head + body))
    };
    let disconnect = r#"{"command":"disconnect","site":"van-07"}"#;

    assert_eq!(
        command(world::READER, r#"{"command":"status"}"#).json()["role"],
        "hub"
    );
    assert_eq!(command(world::READER, disconnect).problem(), "forbidden");
    assert_eq!(command(OPERATOR, disconnect).code, 200);
    assert_eq!(world.fake.done.load(Ordering::Relaxed), 1);
    for bad in ["", "{}", "[", r#"{"command":"stat"}"#] {
        assert_eq!(command(OPERATOR, bad).problem(), "bad_request", "{bad}");
    }
}

#[test]
fn a_reader_holds_no_thread_and_has_the_daemon_asked_no_more_often_than_others() {
    let world = World::new();
    let command = |body: &str| {
        let length = body.len();
        let head = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        world.ask("POST /v1/command", Some(world::READER), &(head + body))
    };
    let asked = || world.fake.asked.load(Ordering::Relaxed) as u128;

    let waits = r#"{"command":"events","wanted":{"after":18446744073709551615,"wait_seconds":20}}"#;
    assert_eq!(command(waits).problem(), "bad_request");
    assert_eq!(command(r#"{"command":"events"}"#).code, 200);

    let (began, before) = (Instant::now(), asked());
    for _ in 0..20 {
        assert_eq!(command(r#"{"command":"status"}"#).code, 200);
        assert_eq!(command(r#"{"command":"summary"}"#).code, 200);
    }
    // Each of the two five times a second, and the history once.
    let most = 3 + began.elapsed().as_millis() * 11 / 1000;
    assert!(
        asked() - before <= most,
        "{} and not {most}",
        asked() - before
    );

    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(world.get("/v1/flows?match=10.9.0.2:5201").code, 200);
        let flow = r#"{"command":"flow","flow":"10.9.0.2:5201"}"#;
        assert_eq!(command(flow).code, 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(600));
}

#[test]
fn the_config_and_invitations_are_for_administrators() {
    let world = World::new();
    let length = "content-length: 0\r\n";
    for path in [
        "GET /v1/config",
        "PUT /v1/config",
        "POST /v1/config/check",
        "POST /v1/config/keep",
        "POST /v1/config/revert",
        "GET /v1/invitations",
        "POST /v1/invitations",
        "DELETE /v1/invitations/van",
    ] {
        let [nobody, operator] = [None, Some(OPERATOR)].map(|token| world.ask(path, token, length));
        assert_eq!((nobody.code, operator.code), (401, 403), "{path}");
    }
    let start = "POST /v1/speedtest";
    assert_eq!(world.ask(start, Some(world::READER), length).code, 403);
    let foreign = format!("{length}origin: http://evil.example\r\n");
    assert_eq!(world.ask(start, Some(OPERATOR), &foreign).code, 403);
    assert_eq!(world.ask(start, Some(OPERATOR), length).code, 200);
}

#[test]
fn a_config_may_be_longer_than_other_bodies() {
    let world = World::new();
    let post = |path: &str, bytes: usize| {
        let body = serde_json::json!({ "text": "#".repeat(bytes) }).to_string();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        let about = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        talk(world.unix(), &format!("{head}{about}\r\n{body}")).code
    };
    assert_eq!(post("/v1/config/check", 1 << 20), 200);
    assert_eq!(post("/v1/invitations", 100_000), 413);
}

#[test]
fn live_data_come_as_events() {
    let world = World::new();
    let mut stream = world.connect();
    let head = format!(
        "GET /v1/live HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        world::READER
    );
    stream.write_all(head.as_bytes()).unwrap();

    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);

    assert!(lines.any(|line| line == "content-type: text/event-stream"));
    for _ in 0..2 {
        assert!(lines.any(|line| line == "event: status"));
        let line = lines.next().unwrap();
        let document: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(document["schema"], "sennit.status/1");
    }
}

#[test]
fn a_token_that_was_replaced_in_its_file_is_good_for_nothing_after_a_reload() {
    let world = World::new();
    let watch = |token: &str| {
        let mut stream = world.connect();
        let head = format!(
            "GET /v1/live HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "event: status"));
        lines
    };
    let (mut reads, mut operates) = (watch(READER), watch(OPERATOR));
    assert_eq!(world.reload(), [""; 0], "nothing has changed");
    let file = world.config.read_token.clone().unwrap();
    let other = READER.replace("reader", "rotate");
    std::fs::write(&file, &other).unwrap();
    assert_eq!(world.get("/v1/status").code, 200, "until it is read");

    assert_eq!(world.reload(), [file.display().to_string()]);

    assert_eq!(world.get("/v1/status").code, 401);
    assert_eq!(world.ask("GET /v1/status", Some(&other), "").code, 200);
    // Of chunks the last one is empty.
    assert!(reads.any(|line| line == "0"));
    assert!(operates.any(|line| line == "event: status"), "it stays");
}

#[test]
fn paths_are_left_out_where_nobody_wants_them() {
    let world = World::new();

    let whole = world.get("/v1/status").json();
    let slim = world.get("/v1/status?paths=false").json();
    let own = world.get("/v1/status?paths=own").json();

    assert_eq!(whole["tunnels"].as_array().unwrap().len(), 1);
    assert_ne!(whole["tunnels"][0]["paths"], serde_json::json!([]));
    assert_eq!(slim["tunnels"][0]["paths"], serde_json::json!([]));
    assert_eq!(own["tunnels"][0]["paths"], serde_json::json!([]), "a hub");
    let shares = serde_json::json!([{ "link": "lte", "share_ratio": 0.5 }]);
    assert_eq!(own["tunnels"][0]["shares"], shares, "what a page shows");
    assert_eq!(slim["tunnels"][0]["class"], whole["tunnels"][0]["class"]);
    assert_eq!(world.get("/v1/status?paths=some").problem(), "bad_request");
}

#[test]
fn events_are_listed_and_streamed_from_where_a_viewer_was_cut_off() {
    let world = World::new();
    let up = |link: &str| sennit::journal::Event::LinkUp { link: link.into() };
    for link in ["a", "b"] {
        world.keeper.journal().note(up(link));
    }
    let listed = loop {
        let listed = world.get("/v1/events").json();
        if listed["events"].as_array().unwrap().len() == 2 {
            break listed;
        }
        // Who asks without a pause is turned away.
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(listed["schema"], "sennit.events/1");
    assert_eq!(listed["events"][1]["text"], "link b is up");
    assert_eq!(
        world.get("/v1/events?limit=1").json()["events"][0]["link"],
        "b"
    );
    assert_eq!(world.get("/v1/events?limit=x").problem(), "bad_request");

    let first = &listed["events"][0]["id"];
    let mut stream = world.connect();
    let head = format!(
        "GET /v1/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
         last-event-id: {first}\r\nauthorization: Bearer {}\r\n\r\n",
        world::READER
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = || {
        assert!(lines.any(|line| line == "event: event"));
        let data = lines.find(|line| line.starts_with("data: ")).unwrap();
        let record: Value = serde_json::from_str(&data["data: ".len()..]).unwrap();
        record["link"].clone()
    };
    assert_eq!(next(), "b");
    world.keeper.journal().note(up("c"));
    assert_eq!(next(), "c");
}

#[test]
fn history_and_metrics_are_to_be_had() {
    let world = World::new();
    let metrics = world.get("/metrics");
    assert!(
        metrics.head.contains("text/plain; version=0.0.4"),
        "{metrics:?}"
    );
    assert!(
        metrics
            .body
            .contains("\nsennit_site_up{site=\"van-07\"} 1\n"),
        "{metrics:?}"
    );
    let accept = "accept: application/openmetrics-text; version=1.0.0\r\n";
    let open = world.ask("GET /metrics", Some(world::READER), accept);
    assert!(
        open.head.contains("application/openmetrics-text"),
        "{open:?}"
    );
    assert!(open.body.ends_with("# EOF\n"), "{open:?}");

    let history = loop {
        let history = world.get("/v1/history?series=total");
        if history.code == 200 && !history.json()["series"].as_array().unwrap().is_empty() {
            break history.json();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(history["series"][0]["name"], "total");
    assert_eq!(world.get("/v1/history?step=week").problem(), "bad_request");
}

#[test]
fn a_daemon_that_does_not_answer_is_a_problem_of_its_own() {
    let world = World::of(true, |_| ApiConfig::default());

    let answer = world.ask("GET /v1/status", None, "");

    assert_eq!((answer.code, answer.problem()), (503, "busy".into()));
    assert_eq!(world.ask("GET /readyz", None, "").code, 503);
}

#[test]
fn however_many_ask_the_daemon_is_asked_seldom() {
    let world = World::new();
    let start = std::time::Instant::now();

    for _ in 0..100 {
        assert_eq!(world.get("/v1/status").code, 200);
    }

    let asked = world.fake.asked.load(Ordering::Relaxed);
    let fifths = start.elapsed().as_millis() as usize / 200 + 1;
    assert!(asked <= fifths, "{asked} in {fifths} fifths of a second");
}

#[test]
fn token_files_that_others_may_read_or_that_hold_no_good_token_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let start = |path: &Path| {
        let config = ApiConfig {
            read_token: Some(path.into()),
            ..ApiConfig::default()
        };
        struct Nobody;
        impl sennit::control::Ask for Nobody {
            fn status(
                &self,
                _: &sennit::control::Request,
            ) -> Result<sennit::status::Status, sennit::control::Refused> {
                Err(sennit::control::Refused::new("busy", "nobody is here"))
            }

            fn answer(&self, _: sennit::control::Request) -> sennit::control::Response {
                sennit::control::Response::done()
            }
        }
        let (_, visitors) = sennit::api::door();
        let keeper = sennit::journal::Keeper::start(&dir.path().join("j.db")).unwrap();
        let nobody: std::sync::Arc<dyn sennit::control::Ask> = std::sync::Arc::new(Nobody);
        let history = dir.path().join("h.db");
        let recorder = sennit::history::Recorder::start(&history, nobody.clone()).unwrap();
        let books = (keeper.journal().clone(), recorder.archive().clone());
        let started = sennit::api::Keys::load(&config)
            .and_then(|keys| sennit::api::Api::start(keys, nobody, books, visitors));
        started.map_err(|error| error.to_string()).unwrap_err()
    };
    let open = secret(&dir, "open", world::READER);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();

    assert!(start(&open).contains("others may read it"));
    assert!(start(&secret(&dir, "empty", "# nothing\n")).contains("holds no token"));
    assert!(start(&secret(&dir, "short", "1234")).contains("can be guessed"));
    assert!(start(&dir.path().join("missing")).contains("cannot read"));
}

/// All references of a document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                found.insert(target.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_in_the_book_and_whole() {
    let description = openapi();
    let made = serde_json::to_string_pretty(&description).unwrap() + "\n";
    is_committed("docs/src/schemas/openapi.json", &made);
    let mut found = BTreeSet::new();
    references(&description, &mut found);
    assert!(!found.is_empty());
    for target in found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{target}");
    }
    let world = World::new();
    assert_eq!(
        world.ask("GET /v1/openapi.json", None, "").json(),
        description
    );
    let paths = description["paths"].as_object().unwrap();
    for path in paths.keys().filter(|path| path.as_str() != "/v1/live") {
        let asked = path.replace("{name}", "van-07");
        let answer = world.ask(&format!("OPTIONS {asked}"), Some(OPERATOR), "");
        assert_eq!(answer.problem(), "method_not_allowed", "{path} is there");
    }
}
