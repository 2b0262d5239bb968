//! Figures of the running test for Prometheus, over plain HTTP.
//!
//! One thread answers one question at a time: it is there for one scraper.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::{fec::Symbols, lately::Lately, second::Second};

/// A scraper that says nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first line and the headers of a request are shorter.
const LONGEST: u64 = 8 << 10;

/// Answers `GET /metrics` until the program ends.
#[derive(Debug)]
pub struct Exporter {
    address: SocketAddr,
    newest: Arc<Mutex<Option<Second>>>,
}

impl Exporter {
    /// Listens at an address.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let exporter = Self {
            address: listener.local_addr()?,
            newest: Arc::default(),
        };
        let newest = Arc::clone(&exporter.newest);
        thread::Builder::new()
            .name("prometheus".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Who goes away without the answer did not want it.
                    let _ = answer(&stream, &newest);
                }
            })?;
        Ok(exporter)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another second is over.
    pub fn tell(&self, second: &Second) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(second.clone());
    }
}

fn answer(stream: &TcpStream, newest: &Mutex<Option<Second>>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(LONGEST)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = first.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            let newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
            ("200 OK", page(newest.as_ref()))
        }
        (Some("GET"), _) => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", String::new()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Values of one name, each with its labels.
type Values<'a> = &'a [(&'a str, Option<f64>)];

const UP: &str = "{direction=\"up\"}";
const DOWN: &str = "{direction=\"down\"}";

/// The page of a second; what is not known is left out.
fn page(second: Option<&Second>) -> String {
    let mut page = String::new();
    let mut gauge = |name, what, values: Values<'_>| write(&mut page, "gauge", name, what, values);
    gauge(
        "running",
        "1 from the first second of load on.",
        &[("", Some(if second.is_some() { 1.0 } else { 0.0 }))],
    );
    let Some(second) = second else { return page };
    gauge(
        "elapsed_seconds",
        "Since the load began.",
        &[("", Some(second.elapsed_seconds))],
    );
    gauge(
        "goodput_bits_per_second",
        "Payload at its receiver in the last second.",
        &[
            (UP, second.up_bits_per_second),
            (DOWN, second.down_bits_per_second),
        ],
    );
    gauge(
        "rtt_seconds",
        "Round trips of the probes that left in the last second.",
        &[
            ("{quantile=\"0.5\"}", second.rtt.p50_seconds),
            ("{quantile=\"0.95\"}", second.rtt.p95_seconds),
            ("{quantile=\"1\"}", second.rtt.max_seconds),
        ],
    );
    gauge(
        "probes",
        "Probes that left in the last second.",
        &[("", Some(second.probes as f64))],
    );
    gauge(
        "probes_unanswered",
        "Probes of these that are not answered yet.",
        &[("", Some(second.unanswered as f64))],
    );
    let ended = [
        ("request", "Requests", second.requests),
        ("handshake", "Handshakes", second.handshakes),
    ];
    for (name, what, lately) in ended {
        write_ended(&mut page, (name, what), lately);
    }
    write_symbols(&mut page, second);
    page
}

/// What ended in the last second, if anything of the kind is measured.
fn write_ended(page: &mut String, (name, what): (&str, &str), lately: Option<Lately>) {
    let Some(lately) = lately else { return };
    let counts = [
        ("{result=\"done\"}", Some(lately.done as f64)),
        ("{result=\"failed\"}", Some(lately.failed as f64)),
    ];
    let ended = format!("{what} that ended in the last second.");
    write(page, "gauge", &format!("{name}s"), &ended, &counts);
    let times = [
        ("{quantile=\"0.5\"}", lately.p50_seconds),
        ("{quantile=\"0.95\"}", lately.p95_seconds),
    ];
    let long = format!("{what} that were done in the last second took so long.");
    write(page, "gauge", &format!("{name}_seconds"), &long, &times);
}

/// One that counts, as a number of some symbols.
type Count = fn(&Symbols) -> u64;

/// What error correction did, if messages are protected.
fn write_symbols(page: &mut String, second: &Second) {
    let counters: [(&str, &str, Count); 9] = [
        ("sources_sent", "Protected messages that left.", |it| {
            it.sources_sent
        }),
        (
            "sources_received",
            "Protected messages that arrived.",
            |it| it.sources_received,
        ),
        ("repairs_sent", "Repairs that left.", |it| it.repairs_sent),
        ("repairs_received", "Repairs that arrived.", |it| {
            it.repairs_received
        }),
        ("recovered", "Messages that repairs brought back.", |it| {
            it.recovered
        }),
        (
            "arrived_later",
            "Messages of these that arrived later.",
            |it| it.arrived_later,
        ),
        (
            "unneeded",
            "Repairs that came when nothing was missing.",
            |it| it.unneeded,
        ),
        ("failed", "Repairs that could not be solved.", |it| {
            it.failed
        }),
        (
            "malformed",
            "Datagrams that cannot be part of the load.",
            |it| it.malformed,
        ),
    ];
    for (name, what, count) in counters {
        let of_way = |way: &Option<Symbols>| way.as_ref().map(|it| count(it) as f64);
        let values = [
            (UP, of_way(&second.up_fec)),
            (DOWN, of_way(&second.down_fec)),
        ];
        write(page, "counter", &format!("fec_{name}_total"), what, &values);
    }
}

fn write(page: &mut String, kind: &str, name: &str, what: &str, values: Values<'_>) {
    let known: Vec<_> = values.iter().filter(|(_, value)| value.is_some()).collect();
    if known.is_empty() {
        return;
    }
    let _ = writeln!(page, "# HELP sennit_test_{name} {what}");
    let _ = writeln!(page, "# TYPE sennit_test_{name} {kind}");
    for (label, value) in known {
        let value = value.unwrap_or_default();
        let _ = writeln!(page, "sennit_test_{name}{label} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sennit_load::TimeFigures;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it is there");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn a_scraper_gets_the_newest_second_and_others_are_told_where_it_is() {
        let exporter = Exporter::listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        let before = ask(exporter.address(), get);
        assert!(before.contains("sennit_test_running 0\n"), "{before}");

        exporter.tell(&Second {
            schema: String::new(),
            elapsed_seconds: 3.0,
            seconds: 1.0,
            up_bits_per_second: None,
            down_bits_per_second: Some(5e6),
            rtt: TimeFigures::default(),
            probes: 50,
            unanswered: 2,
            up_fec: None,
            down_fec: Some(Symbols {
                recovered: 7,
                ..Symbols::default()
            }),
            requests: Some(Lately {
                done: 7,
                p95_seconds: Some(0.5),
                ..Lately::default()
            }),
            handshakes: None,
            round: None,
            configuration: None,
        });

        let page = ask(exporter.address(), get);
        let (head, body) = page.split_once("\r\n\r\n").expect("there is a body");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(
            body.contains("goodput_bits_per_second{direction=\"down\"} 5000000\n"),
            "{body}"
        );
        assert!(
            body.contains("fec_recovered_total{direction=\"down\"} 7\n"),
            "{body}"
        );
        assert!(!body.contains("direction=\"up\""), "{body}");
        for part in [
            "sennit_test_requests{result=\"done\"} 7\n",
            "sennit_test_request_seconds{quantile=\"0.95\"} 0.5\n",
        ] {
            assert!(body.contains(part), "{body}");
        }
        assert!(!body.contains("test_handshake"), "{body}");
        let other = ask(exporter.address(), "GET / HTTP/1.1\r\n\r\n");
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
        let post = ask(exporter.address(), "POST /metrics HTTP/1.1\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    }
}
