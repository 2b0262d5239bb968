//! What passes through tunnels: pings, TCP connections, UDP packets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sennit_lab::{Host, Running};

use crate::world::{PATIENCE, wait_for};

/// Three pings, all answered.
#[track_caller]
pub(crate) fn ping(from: &Host, to: &str) {
    let line = ["ping", "-n", "-q", "-c", "3", "-i", "0.1", "-W", "3", to];
    let mut failure = String::new();
    if let Err(error) = from.exec(&line) {
        write!(failure, "{error}").unwrap();
    }
    assert_eq!(failure, "", "every ping is answered");
}

/// After its last packet `ping` waits for twice the longest round trip, which a host that is late
/// takes by itself. So many more leave after those that count.
const TRAILING: u32 = 30;

/// A ping every 10 ms, in the background.
pub(crate) struct Pings {
    process: Running,
    count: u32,
}

/// What became of pings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) received: usize,
    /// Numbers of those that were not answered, from 1.
    pub(crate) lost: Vec<u32>,
    pub(crate) duplicates: usize,
}

impl Answers {
    /// All answered, each once.
    pub(crate) fn all(count: usize) -> Self {
        Self {
            received: count,
            ..Self::default()
        }
    }
}

impl Pings {
    pub(crate) fn start(from: &Host, to: &str, count: u32) -> Self {
        let mut command = from.command("ping");
        let sent = (count + TRAILING).to_string();
        command.args(["-n", "-D", "-i", "0.01", "-W", "5", "-c", &sent, to]);
        let process = from
            .spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))
            .unwrap();
        Self { process, count }
    }

    /// Waits for the last answer.
    pub(crate) fn finish(mut self) -> Answers {
        let text = self.text();
        let number = |line: &str| -> Option<u32> {
            let (_, rest) = line.split_once("icmp_seq=")?;
            rest.split(' ').next()?.parse().ok()
        };
        let counts = |number: &u32| *number <= self.count;
        let answers: Vec<u32> = text.lines().filter_map(number).filter(counts).collect();
        let distinct: BTreeSet<u32> = answers.iter().copied().collect();
        Answers {
            received: distinct.len(),
            lost: (1..=self.count)
                .filter(|number| !distinct.contains(number))
                .collect(),
            duplicates: answers.len() - distinct.len(),
        }
    }
}

impl Pings {
    fn text(&mut self) -> String {
        let mut text = String::new();
        let mut stdout = self.process.child().stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits for the last answer; the longest time between two of them, in seconds.
    pub(crate) fn longest_gap(mut self) -> f64 {
        let text = self.text();
        let time = |line: &str| -> Option<f64> {
            let (time, _) = line.strip_prefix('[')?.split_once(']')?;
            line.contains("icmp_seq=").then(|| time.parse().ok())?
        };
        let times: Vec<f64> = text.lines().filter_map(time).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.fold(0.0, f64::max)
    }
}

/// A TCP connection to a server that sends back what it gets, kept busy until it is finished.
pub(crate) struct Conversation {
    echoed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    client: JoinHandle<io::Result<Report>>,
    server: JoinHandle<()>,
}

/// How a conversation went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// The longest time in which nothing came back.
    pub(crate) longest_gap: Duration,
}

impl Conversation {
    /// Connects from one host to an address of another.
    #[track_caller]
    pub(crate) fn start(client: &Host, server: &Host, address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let listener = server
            .netns()
            .run(|| TcpListener::bind((address, 0)))
            .unwrap()
            .unwrap();
        let to = SocketAddr::new(address, listener.local_addr().unwrap().port());
        let server = thread::spawn(move || echo(&listener));
        let stream = client
            .netns()
            .run(|| TcpStream::connect_timeout(&to, PATIENCE))
            .unwrap();
        let stream = stream.unwrap_or_else(|error| panic!("cannot connect to {to}: {error}"));
        let (echoed, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let shared = (Arc::clone(&echoed), Arc::clone(&stop));
        let client = thread::spawn(move || talk(&stream, &shared.0, &shared.1));
        Self {
            echoed,
            stop,
            client,
            server,
        }
    }

    /// Waits until `bytes` more have come back, so the connection lives.
    #[track_caller]
    pub(crate) fn expect_progress(&self, bytes: u64) {
        let wanted = self.echoed.load(Ordering::Relaxed) + bytes;
        let echoed = || self.echoed.load(Ordering::Relaxed);
        wait_for("the TCP connection to go on", echoed, |echoed| {
            *echoed >= wanted
        });
    }

    /// Ends it; every byte has come back as it was sent.
    #[track_caller]
    pub(crate) fn finish(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.client.join().unwrap();
        let report = report.unwrap_or_else(|error| panic!("the TCP connection broke: {error}"));
        self.server.join().unwrap();
        report
    }
}

/// A megabyte goes there and comes back.
#[track_caller]
pub(crate) fn assert_tcp(client: &Host, server: &Host, address: &str) {
    let conversation = Conversation::start(client, server, address);
    conversation.expect_progress(1 << 20);
    conversation.finish();
}

/// The byte at this place of every conversation; no two pieces of it are alike.
fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
}

fn talk(stream: &TcpStream, echoed: &AtomicU64, stop: &AtomicBool) -> io::Result<Report> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| pour(stream, stop));
        let longest_gap = drink(stream, echoed)?;
        let bytes = writer.join().unwrap()?;
        let back = echoed.load(Ordering::Relaxed);
        if back != bytes {
            return Err(io::Error::other(format!(
                "{back} of {bytes} bytes came back"
            )));
        }
        Ok(Report { longest_gap })
    })
}

/// Sends until it is told to stop.
fn pour(mut stream: &TcpStream, stop: &AtomicBool) -> io::Result<u64> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let piece: Vec<u8> = (sent..sent + 4096).map(byte_at).collect();
        stream.write_all(&piece)?;
        sent += 4096;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Reads to the end and compares.
fn drink(mut stream: &TcpStream, echoed: &AtomicU64) -> io::Result<Duration> {
    let (mut buffer, mut offset) = (vec![0; 1 << 16], 0);
    let (mut last, mut longest_gap) = (Instant::now(), Duration::ZERO);
    loop {
        let count = stream.read(&mut buffer)?;
        longest_gap = longest_gap.max(last.elapsed());
        last = Instant::now();
        if count == 0 {
            return Ok(longest_gap);
        }
        let expected = (offset..).map(byte_at);
        if !buffer[..count].iter().copied().eq(expected.take(count)) {
            return Err(io::Error::other(format!(
                "other bytes came back from {offset} on"
            )));
        }
        offset += count as u64;
        echoed.store(offset, Ordering::Relaxed);
    }
}

/// Sends one client back what it sends.
fn echo(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut back = stream.try_clone().unwrap();
    // Ends with an error when the client gives up, who says so itself.
    let _ = io::copy(&mut stream, &mut back);
    let _ = back.shutdown(Shutdown::Write);
}

/// A UDP socket that waits for packets at an address of a host.
pub(crate) struct Receiver {
    socket: UdpSocket,
    pub(crate) address: SocketAddr,
}

impl Receiver {
    pub(crate) fn bind(host: &Host, address: &str) -> Self {
        let ip: IpAddr = address.parse().unwrap();
        let socket = host
            .netns()
            .run(|| UdpSocket::bind((ip, 0)))
            .unwrap()
            .unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, address }
    }

    /// The next packet, which has to come.
    #[track_caller]
    pub(crate) fn receive(&self) -> (Vec<u8>, SocketAddr) {
        self.receive_within(PATIENCE).expect("a packet arrives")
    }

    /// Answers from its own address.
    #[track_caller]
    pub(crate) fn send_to(&self, packet: &[u8], to: SocketAddr) {
        self.socket.send_to(packet, to).unwrap();
    }

    /// The next packet, if one comes in this time.
    pub(crate) fn receive_within(&self, time: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let (len, from) = self.socket.recv_from(&mut buffer).ok()?;
        buffer.truncate(len);
        Some((buffer, from))
    }
}

/// A UDP socket of a host, connected, so that it hears of errors.
pub(crate) fn udp_to(host: &Host, to: SocketAddr) -> UdpSocket {
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let connect = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok::<_, io::Error>(socket)
    };
    host.netns().run(connect).unwrap().unwrap()
}
