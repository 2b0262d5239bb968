//! The same amount over and over, each time over a TCP connection of its own: how long it takes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::{Schedule, quantile};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Context, FetchFigures, far};
use crate::error::{Doing, Error};
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
    let times = thread::scope(|scope| {
        scope.spawn(|| serve(&listener, fetch.bytes, &over));
        let times = fetch_all(fetch, address, context);
        over.store(true, Ordering::Relaxed);
        times
    });
    Ok(figures(times, fetch.bytes, context.seconds))
}

/// One after the other, each when it is due or once the one before has ended.
fn fetch_all(fetch: &Fetch, address: SocketAddr, context: &Context<'_>) -> Vec<Option<f64>> {
    let start = Instant::now();
    let end = start + context.span();
    let mut schedule = Schedule::new(fetch.every_s.0, start);
    let mut times = Vec::new();
    while Instant::now() < end && schedule.next_at() < end {
        thread::sleep(schedule.next_at().saturating_duration_since(Instant::now()));
        if schedule.take(Instant::now()).is_none() {
            continue;
        }
        let near = context.host(fetch.from);
        let begun = Instant::now();
        let fetched = near.netns().run(|| fetch_once(address, fetch.bytes));
        let whole = fetched.is_ok_and(|it| it.is_ok());
        times.push(whole.then(|| begun.elapsed().as_secs_f64()));
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

fn figures(times: Vec<Option<f64>>, bytes: u32, seconds: u32) -> FetchFigures {
    let known: Vec<f64> = times.iter().copied().flatten().collect();
    let fetched = known.len() as u64;
    FetchFigures {
        tried: times.len() as u64,
        fetched,
        goodput: (fetched * u64::from(bytes)) as f64 / f64::from(seconds.max(1)),
        p50_seconds: quantile(&known, 0.5),
        p95_seconds: quantile(&known, 0.95),
        max_seconds: quantile(&known, 1.0),
        times_seconds: times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_that_failed_are_counted_and_have_no_time() {
        let found = figures(vec![Some(0.5), None, Some(0.7), Some(0.6)], 1000, 4);

        assert_eq!((found.tried, found.fetched, found.goodput), (4, 3, 750.0));
        assert_eq!(found.p50_seconds, Some(0.6));
        assert_eq!(found.p95_seconds, Some(0.7));
        assert_eq!(figures(vec![None], 1000, 4).p50_seconds, None);
    }
}
