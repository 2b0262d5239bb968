//! The same amount over and over, each time over a TCP connection of its own: how long it takes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::Schedule;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Context, FetchFigures, far};
use crate::error::{Doing, Error};
use crate::flag::Raised;
use crate::scenario::Fetch;

/// A fetch without any progress for so long has failed.
const STALLED: Duration = Duration::from_secs(10);

/// How often the server asks whether anybody may still come.
const LOOK_UP: Duration = Duration::from_millis(50);

pub(super) fn run(fetch: &Fetch, context: &Context<'_>) -> Result<FetchFigures, Error> {
    let port = fetch.port.unwrap_or(context.port);
    let address = SocketAddr::new(far(fetch.to, &fetch.via).ip(fetch.ipv6), port);
    let listener = context
        .host(fetch.to)
        .netns()
        .run(|| listen(address, &fetch.congestion));
    let listener = listener
        .and_then(|it| it)
        .doing(|| format!("listen on {address}"))?;
    let over = AtomicBool::new(false);
    let near = context.host(fetch.from);
    let times = thread::scope(|scope| {
        let _over = Raised(&over);
        scope.spawn(|| serve(&listener, fetch.bytes, &over));
        fetch_all(fetch.every_s.0, context.span(), || {
            let fetched = near.netns().run(|| fetch_once(address, fetch.bytes));
            fetched.is_ok_and(|it| it.is_ok())
        })
    });
    Ok(times.figures(fetch.bytes, context.seconds))
}

/// How long fetches took, from when each was due: one that waits for a slow one before it is slow
/// too.
#[derive(Debug, Default)]
struct Fetches {
    /// Those that were begun, `None` for one that failed.
    begun: Vec<Option<f64>>,
    /// How long the others had waited when the time was up.
    waiting: Vec<f64>,
}

/// One after the other, each when it is due or once the one before has ended; `fetch` says whether
/// all of it came.
fn fetch_all(every: Duration, span: Duration, mut fetch: impl FnMut() -> bool) -> Fetches {
    let start = Instant::now();
    let end = start + span;
    let mut schedule = Schedule::new(every, start);
    let mut times = Fetches::default();
    while Instant::now() < end && schedule.next_at() < end {
        thread::sleep(schedule.next_at().saturating_duration_since(Instant::now()));
        if let Some(due) = schedule.take(Instant::now()) {
            let whole = fetch();
            let time = whole.then(|| due.elapsed().as_secs_f64());
            times.begun.push(time);
        }
    }
    while schedule.next_at() < end {
        let due = schedule.take(end);
        times
            .waiting
            .extend(due.map(|due| (end - due).as_secs_f64()));
    }
    times
}

/// From the first packet of the connection to the last byte.
fn fetch_once(address: SocketAddr, bytes: u32) -> std::io::Result<()> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.connect_timeout(&address.into(), STALLED)?;
    socket.set_read_timeout(Some(STALLED))?;
    let mut stream = TcpStream::from(socket);
    let mut block = vec![0; 64 * 1024];
    let mut left = u64::from(bytes);
    loop {
        match stream.read(&mut block) {
            Ok(0) if left == 0 => return Ok(()),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => left = left.saturating_sub(count as u64),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn listen(address: SocketAddr, congestion: &str) -> std::io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    // It holds for accepting as well (socket(7)).
    socket.set_read_timeout(Some(LOOK_UP))?;
    Ok(socket)
}

/// Gives whoever connects so many bytes.
fn serve(listener: &Socket, bytes: u32, over: &AtomicBool) {
    thread::scope(|scope| {
        while !over.load(Ordering::Relaxed) {
            if let Ok((socket, _)) = listener.accept() {
                scope.spawn(move || give(socket, bytes));
            }
        }
    });
}

/// What goes wrong the near end sees too.
fn give(socket: Socket, bytes: u32) -> std::io::Result<()> {
    socket.set_write_timeout(Some(STALLED))?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(&vec![0x5a; bytes as usize])?;
    stream.shutdown(Shutdown::Write)
}

impl Fetches {
    fn figures(self, bytes: u32, seconds: u32) -> FetchFigures {
        let fetched = self.begun.iter().flatten().count() as u64;
        let figures = FetchFigures {
            tried: self.begun.len() as u64,
            fetched,
            goodput: (fetched * u64::from(bytes)) as f64 / f64::from(seconds.max(1)),
            times_seconds: self.begun,
            waiting_seconds: self.waiting,
            ..FetchFigures::default()
        };
        figures.with_quantiles()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fetches_that_failed_are_counted_and_have_no_time() {
        let figures = |begun: &[Option<f64>]| {
            let begun = begun.to_vec();
            let waiting = Vec::new();
            Fetches { begun, waiting }.figures(1000, 4)
        };
        let found = figures(&[Some(0.5), None, Some(0.7), Some(0.6)]);

        assert_eq!((found.tried, found.fetched, found.goodput), (4, 3, 750.0));
        assert_eq!(found.p50_seconds, Some(0.6));
        assert_eq!(found.p95_seconds, Some(0.7));
        assert_eq!(figures(&[None]).p50_seconds, None);
    }

    #[test]
    fn who_was_just_due_at_the_end_says_nothing() {
        let begun = vec![Some(0.4)];
        let waiting = vec![0.9, 0.3, 0.2, 0.1];
        let found = Fetches { begun, waiting }.figures(1000, 4);

        assert_eq!(found.p50_seconds, Some(0.4));
        assert_eq!(found.max_seconds, Some(0.9));
    }

    #[test]
    fn those_that_wait_for_a_slow_one_are_slow_too() {
        let mut slow = true;
        let times = fetch_all(10 * MS, 100 * MS, || {
            if std::mem::take(&mut slow) {
                thread::sleep(60 * MS);
            }
            true
        });

        let second = times.begun.get(1).copied().flatten();
        let second = second.or(times.waiting.first().copied());
        assert!(
            second >= Some(0.05),
            "due 50 ms before the first ended: {times:?}"
        );
    }

    #[test]
    fn those_that_never_began_have_waited() {
        let times = fetch_all(10 * MS, 100 * MS, || {
            thread::sleep(60 * MS);
            true
        });

        assert_eq!(times.begun.len() + times.waiting.len(), 10);
        let found = times.figures(1000, 1);
        assert_eq!(found.tried, found.fetched, "none of them is lost");
        assert!(found.waiting_seconds.first() > Some(&0.07), "{found:?}");
    }
}
