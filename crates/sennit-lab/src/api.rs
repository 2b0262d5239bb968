//! What daemons answer over HTTP on their control sockets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon that is slower than this has not answered.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest that a viewer waits before it looks at its clock.
const LOOK: Duration = Duration::from_millis(200);

/// Asks for a resource over a connection of its own; gives the body of a 200.
pub(crate) fn get(control: &Path, path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(&mut stream, path, "close")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(body.to_owned()),
        false => {
            let first = head.lines().next().unwrap_or("no answer");
            Err(std::io::Error::other(first.to_owned()))
        }
    }
}

/// Follows `/v1/live` until then; when each status came.
pub(crate) fn follow(control: &Path, until: Instant) -> std::io::Result<Vec<Instant>> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(LOOK))?;
    ask(&mut stream, "/v1/live?flows=true&paths=true", "keep-alive")?;
    let (mut reader, mut line, mut seen) = (BufReader::new(stream), Vec::new(), Vec::new());
    while Instant::now() < until {
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if line.ends_with(b"\n") => {
                if line.starts_with(b"event: status") {
                    seen.push(Instant::now());
                }
                line.clear();
            }
            // A part of a line stays, and the rest comes later.
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

fn ask(stream: &mut UnixStream, path: &str, connection: &str) -> std::io::Result<()> {
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(head.as_bytes())
}
