//! Bad input.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::world::{OPERATOR, READER, World, talk};

const COMMAND: &str = "POST /v1/sites/van-07/disconnect";

#[test]
fn a_wrong_token_is_refused_and_who_goes_on_guessing_has_to_wait() {
    let world = World::new();
    let answers = (0..15).map(|_| world.ask("GET /v1/status", Some("guess"), ""));
    let codes: Vec<u16> = answers.map(|answer| answer.code).collect();

    assert_eq!(codes[..10], [401; 10]);
    assert!(codes.contains(&429), "{codes:?}");
    let told = world.ask("GET /v1/status", Some("guess"), "");
    assert!(
        told.code == 401 || told.head.contains("retry-after: "),
        "{told:?}"
    );
    assert_eq!(world.fake.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_wrong_method_is_refused_with_those_that_there_are() {
    let world = World::new();
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let answer = world.ask(&format!("{method} /v1/status"), Some(OPERATOR), "");
        assert_eq!(
            (answer.code, answer.problem().as_str()),
            (405, "method_not_allowed"),
            "{method}"
        );
        assert!(answer.head.contains("allow: get"), "{answer:?}");
    }
    assert_eq!(
        world
            .ask(&COMMAND.replace("POST", "GET"), Some(OPERATOR), "")
            .code,
        405
    );
}

#[test]
fn a_body_of_another_kind_or_too_long_is_refused() {
    let world = World::new();
    let form = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 3\r\n\r\na=b";
    let answer = world.ask(COMMAND, Some(OPERATOR), form);
    assert_eq!((answer.code, answer.problem().as_str()), (415, "not_json"));

    let long = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        1 << 30
    );
    let mut stream = world.connect();
    let head = format!(
        "{COMMAND} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPERATOR}\r\n{long}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; 70 << 10]).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(world.fake.done.load(Ordering::Relaxed), 0);
}

#[test]
fn a_query_that_means_nothing_is_refused() {
    let world = World::new();
    for path in [
        "/v1/status?flow=1",
        "/v1/status?flows=maybe",
        "/v1/flows?match=nonsense!",
    ] {
        let answer = world.get(path);
        assert_eq!(
            (answer.code, answer.problem().as_str()),
            (400, "bad_request"),
            "{path}"
        );
    }
    assert_eq!(world.get("/v1/status?flows=true").code, 200);
}

#[test]
fn a_head_too_long_or_no_http_is_refused() {
    let world = World::new();
    for request in [
        format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
            "y".repeat(64 << 10)
        ),
        "GET\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}".to_owned() + &"\u{1}".repeat(600) + "\r\n\r\n",
    ] {
        let mut stream = world.connect();
        // It may be cut off before all is written.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert_eq!(world.get("/v1/status").code, 200);
}

#[test]
fn pages_of_other_sites_and_names_that_point_here_are_refused() {
    let world = World::with(|_| sennit::config::ApiConfig::default());
    let own = format!("origin: http://{}\r\n", world.address);

    assert_eq!(world.ask("GET /v1/status", None, "").code, 200);
    assert_eq!(world.ask("GET /v1/status", None, &own).code, 200);
    let rebound = world.ask("GET /v1/status", None, "host: evil.example:80\r\n");
    assert_eq!(
        (rebound.code, rebound.problem().as_str()),
        (421, "unknown_host")
    );
    let absolute = world.ask("GET http://evil.example/v1/status", None, "");
    assert_eq!(absolute.problem(), "unknown_host");
    // `world` names one Host of its own where none is given.
    let two = "host: localhost\r\nhost: evil.example\r\n";
    assert_eq!(world.ask("GET /v1/status", None, two).code, 400);
    let cross = world.ask("GET /v1/status", None, "origin: https://evil.example\r\n");
    assert_eq!((cross.code, cross.problem().as_str()), (403, "forbidden"));
    let fetched = world.ask("GET /v1/status", None, "sec-fetch-site: cross-site\r\n");
    assert_eq!(fetched.code, 403);
    assert_eq!(
        world.fake.asked.load(Ordering::Relaxed),
        1,
        "the second was of the cache"
    );
}

#[test]
fn a_crowd_of_idle_and_slow_clients_keeps_nobody_out() {
    let world = World::new();
    let crowd: Vec<TcpStream> = (0..600)
        .map(|number| {
            let mut stream = world.connect();
            if number % 2 == 0 {
                // Whoever lost its seat meanwhile cannot write any more.
                let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nx: ");
            }
            stream
        })
        .collect();

    assert_eq!(world.get("/v1/status").code, 200);
    let unix = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(talk(world.unix(), unix).code, 200);
    let cut = crowd.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let gone = stream.peek(&mut byte);
        gone.map_or_else(
            |error| error.kind() != std::io::ErrorKind::WouldBlock,
            |read| read == 0,
        )
    });
    assert!(cut.count() >= 300, "those that came first had to leave");
}

#[test]
fn a_crowd_of_strangers_takes_nobody_the_stream_that_is_read() {
    let world = World::new();
    let mut viewer = world.connect();
    let host = world.address;
    let head =
        format!("GET /v1/live HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {READER}\r\n\r\n");
    viewer.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(viewer).lines();
    let mut status = || lines.any(|line| line.is_ok_and(|line| line == "event: status"));
    assert!(status());

    // Some ask for much and read nothing of it.
    let ask = format!(
        "GET /v1/openapi.json HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {READER}\r\n\r\n"
    );
    let much = ask.repeat(100);
    let crowd: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = world.connect();
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(much.as_bytes());
            stream
        })
        .collect();
    // Who has asked so often has to wait, and has a seat.
    let code = world.get("/v1/status").code;
    assert!([200, 429].contains(&code), "{code}");

    assert!((0..3).all(|_| status()));
    drop(crowd);
}

/// Asks for something and reads no more of the answer than its code.
fn glance(world: &World, path: &str) -> (u16, UnixStream) {
    let mut stream = world.unix();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    let code = str::from_utf8(&answer[9..]).unwrap();
    (code.parse().unwrap(), stream)
}

/// Asks again and again until it is answered.
#[track_caller]
fn glance_until_answered(world: &World, path: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while glance(world, path).0 != 200 {
        assert!(Instant::now() < deadline, "{path}: there is no room");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn streams_that_nobody_reads_give_way_to_one_that_is_read() {
    let world = World::new();
    // More than a socket holds.
    world.fake.weight.store(512 << 10, Ordering::Relaxed);

    let crowd: Vec<_> = (0..64).map(|_| glance(&world, "/v1/live")).collect();

    assert!(crowd.iter().all(|(code, _)| *code == 200));
    assert_eq!(glance(&world, "/v1/live").0, 429);
    glance_until_answered(&world, "/v1/live");
}

#[test]
fn large_answers_that_nobody_takes_are_few_and_are_not_kept() {
    let world = World::new();
    let long = 2 << 20;
    world.fake.weight.store(long, Ordering::Relaxed);
    let whole = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let note = talk(world.unix(), whole).json()["notes"][0].clone();
    assert_eq!(note.as_str().unwrap().len(), long);

    let crowd: Vec<_> = (0..16).map(|_| glance(&world, "/v1/status")).collect();

    assert!(crowd.iter().all(|(code, _)| *code == 200));
    for (path, code) in [("/v1/status", 503), ("/v1", 200)] {
        assert_eq!(glance(&world, path).0, code, "{path}");
    }
    glance_until_answered(&world, "/v1/status");
    let deadline = Instant::now() + Duration::from_secs(60);
    for (_, mut stream) in crowd {
        while stream.write_all(b"\r\n").is_ok() {
            assert!(Instant::now() < deadline, "it is not cut off");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

#[test]
fn a_head_that_does_not_end_is_waited_for_for_seconds_and_not_for_ever() {
    let world = World::new();
    let mut slow = world.connect();
    slow.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    slow.write_all(b"GET /v1/status HTTP/1.1\r\n").unwrap();
    let start = Instant::now();

    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer);

    assert!(start.elapsed() < Duration::from_secs(50), "it was cut off");
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
    let world = World::new();
    let mut stream = world.connect();
    let request =
        format!("GET /v1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {READER}\r\n\r\n");
    let mut writer = stream.try_clone().unwrap();
    let burst = request.repeat(3000);
    let written = std::thread::spawn(move || writer.write_all(burst.as_bytes()));
    let mut answers = String::new();
    let mut buffer = [0; 65536];
    while !answers.contains("HTTP/1.1 429") {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "not refused");
        answers += &String::from_utf8_lossy(&buffer[..read]);
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    let _ = written.join().unwrap();
    assert!(
        answers.matches("HTTP/1.1 200").count() >= 200,
        "a page is not refused"
    );
}

#[test]
fn a_site_that_is_no_name_is_shown_as_text() {
    let world = World::new();

    let answer = world.get("/v1/sites/%3Cscript%3E%1B%5B2J");

    assert_eq!(answer.code, 404);
    assert!(answer.head.contains("nosniff"), "{answer:?}");
    assert!(!answer.body.contains('\u{1b}'), "{answer:?}");
}
