//! Looking up the hub's name, over each link.
//!
//! A thread asks the resolvers that the host knows, by a socket of each link, so that the question
//! leaves by that link and the answer is the one that its network gives; a resolver of the host
//! itself is asked without. Whoever has found addresses last has them kept in the state directory,
//! for when no resolver answers. The packet threads only ever hear of the result, by letter.

mod host;

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use sennit_engine::{HubName, SocketId};
use sennit_linux::{Draft, confine, inquiry};

pub(super) use self::host::{Resolver, resolvers};
use super::{
    letter::Letter,
    way::{Resolved, Way},
};
use crate::{
    config::EdgeConfig,
    daemon::{at_once::at_once, mailbox::Slot},
    dns,
    exit::Failure,
    remote::Remote,
};

/// A question that was not answered by then is given up; it is asked twice.
const PATIENCE: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// For the other family's answer, once one is there.
const OTHER_FAMILY: Duration = Duration::from_millis(300);
/// Between two looks at sockets that wait for an answer.
const LOOK: Duration = Duration::from_millis(20);
/// Addresses of one name; a hub has a few.
const MOST_ADDRESSES: usize = 8;
/// A lookup that found nothing is repeated after this, and later after the double, up to the
/// second.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// While there is no tunnel, the hub may have moved.
const NO_TUNNEL: Duration = Duration::from_secs(15);
/// While there is one, only the file of known addresses becomes old.
const TUNNEL: Duration = Duration::from_secs(3600);
/// File of the state directory with the addresses that were found last.
const KNOWN: &str = "hub-addresses.json";

/// A name that is not found, beside others that are, is asked for as often as if there were no
/// other, up to so many times: it may be that to which all tunnels are to move.
const SOUGHT: u32 = 10;
/// It is asked for this often afterwards: it may be misspelt, or not be in the DNS yet.
const SOUGHT_ON: Duration = Duration::from_secs(600);

/// How long to wait after so many looks at which a name was not found, if others were with this
/// much until the next look.
fn pause_after(failures: u32, others: Option<Duration>) -> Duration {
    let again = RETRY.saturating_mul(1 << failures.min(8)).min(RETRY_MAX);
    match others {
        Some(usual) if failures >= SOUGHT => usual.min(SOUGHT_ON),
        Some(usual) => again.min(usual),
        None => again,
    }
}

/// What the thread is told.
enum Word {
    /// The names of the hub that the config has, in place of those before.
    Names(Vec<Remote>),
    Ways(Vec<Way>),
    /// Whether there is a tunnel.
    Tunnel(bool),
}

/// The worker's end of the thread.
#[derive(Debug)]
pub(super) struct Names(Sender<Word>);

impl Names {
    /// Starts the thread, which sleeps while the hub has no name. What was found last is there at
    /// once.
    pub(super) fn start(
        config: &EdgeConfig,
        workers: Arc<[Slot<Letter>]>,
    ) -> Result<Self, Failure> {
        let (sender, words) = mpsc::channel();
        let lookup = Lookup {
            names: names(&config.hub),
            file: config.state.join(KNOWN),
            workers,
            known: BTreeMap::new(),
            ways: Vec::new(),
            told: Resolved::new(),
            failures: 0,
            tunnel: false,
        };
        thread::Builder::new()
            .name("names".into())
            .spawn(move || lookup.run(&words))
            .map_err(Failure::runtime)?;
        Ok(Self(sender))
    }

    /// One without a thread, and what it is told of tunnels.
    #[cfg(test)]
    pub(super) fn overheard() -> (Self, impl Fn() -> Vec<bool>) {
        let (sender, words) = mpsc::channel();
        let tunnel = |word| match word {
            Word::Tunnel(up) => Some(up),
            Word::Ways(_) | Word::Names(_) => None,
        };
        (Self(sender), move || {
            words.try_iter().filter_map(tunnel).collect()
        })
    }

    /// The hub is at these, of which the names are looked up anew even if they are those of before.
    pub(super) fn set_hubs(&self, hubs: Vec<Remote>) {
        // The thread ends with the daemon only.
        let _ = self.0.send(Word::Names(hubs));
    }

    pub(super) fn set_ways(&self, ways: Vec<Way>) {
        // The thread ends with the daemon only.
        let _ = self.0.send(Word::Ways(ways));
    }

    pub(super) fn set_tunnel(&self, up: bool) {
        let _ = self.0.send(Word::Tunnel(up));
    }
}

/// The names among these hubs: as the config has them, and their ports.
fn names(hubs: &[Remote]) -> Vec<Named> {
    let named = hubs.iter().filter_map(|remote| match remote {
        Remote::Name { host, port } => Some(Named {
            told: remote.to_string().into(),
            host: host.clone(),
            port: *port,
        }),
        Remote::Address(_) => None,
    });
    named.collect()
}

/// A name of the hub.
struct Named {
    /// What the engines know it by.
    told: HubName,
    host: String,
    port: u16,
}

/// The thread's state.
struct Lookup {
    names: Vec<Named>,
    file: PathBuf,
    workers: Arc<[Slot<Letter>]>,
    /// Addresses that each name had last.
    known: BTreeMap<String, Vec<IpAddr>>,
    ways: Vec<Way>,
    told: Resolved,
    failures: u32,
    tunnel: bool,
}

impl Lookup {
    fn run(mut self, words: &Receiver<Word>) {
        self.known = read_known(&self.file);
        let mut next = Instant::now();
        loop {
            match self.wait(words, next) {
                Ok(Word::Names(hubs)) => {
                    self.names = names(&hubs);
                    self.failures = 0;
                    self.tell(&BTreeMap::new());
                    next = Instant::now();
                }
                Ok(Word::Ways(ways)) => {
                    self.ways = ways;
                    self.failures = 0;
                    self.tell(&BTreeMap::new());
                    next = Instant::now();
                }
                Ok(Word::Tunnel(up)) => {
                    if self.tunnel && !up {
                        next = next.min(Instant::now() + RETRY);
                    }
                    self.tunnel = up;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let pause = self.look_up();
                    next = Instant::now() + pause;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The next word, if there is one until then; without a name there is nothing else to do.
    fn wait(&self, words: &Receiver<Word>, until: Instant) -> Result<Word, RecvTimeoutError> {
        if self.names.is_empty() {
            return words.recv().map_err(RecvTimeoutError::from);
        }
        words.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    /// Asks over all links at once, and tells the workers; how long to wait before the next time.
    fn look_up(&mut self) -> Duration {
        let resolvers = resolvers();
        let names: Vec<String> = self.names.iter().map(|it| it.host.clone()).collect();
        let answered = at_once(&self.ways, |way| ask_all(way, &resolvers, &names));
        let sockets = self.ways.iter().map(|way| way.socket);
        let found: BTreeMap<SocketId, BTreeMap<String, Vec<IpAddr>>> = sockets
            .zip(answered)
            .filter_map(|(socket, found)| Some((socket, found?)))
            .collect();
        let any = self.remember(&found);
        self.tell(&found);
        let mut missing = names.clone();
        missing.retain(|name| !any || !self.known.contains_key(name));
        let usual = if self.tunnel { TUNNEL } else { NO_TUNNEL };
        if missing.is_empty() {
            self.failures = 0;
            return usual;
        }
        if self.failures == 0 && !self.ways.is_empty() {
            let known = self.told.values().any(|hubs| !hubs.is_empty());
            tracing::warn!(
                names = ?missing,
                ?resolvers,
                known,
                "no resolver knows the hub's name"
            );
        }
        self.failures += 1;
        pause_after(self.failures, any.then_some(usual))
    }

    /// Keeps what was found; whether that is anything.
    fn remember(&mut self, found: &BTreeMap<SocketId, BTreeMap<String, Vec<IpAddr>>>) -> bool {
        let mut now: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (name, addresses) in found.values().flatten() {
            let all = now.entry(name.clone()).or_default();
            all.extend(addresses);
            all.sort();
            all.dedup();
            all.truncate(MOST_ADDRESSES);
        }
        now.retain(|_, addresses| !addresses.is_empty());
        let changed = now
            .iter()
            .any(|(name, addresses)| self.known.get(name) != Some(addresses));
        let any = !now.is_empty();
        self.known.extend(now);
        if changed {
            tracing::info!(addresses = ?self.known, "the hub's name was looked up");
            if let Err(error) = write_known(&self.file, &self.known) {
                tracing::warn!(%error, "cannot keep the hub's addresses");
            }
        }
        any
    }

    /// Tells the workers what each link knows, or else what the others do, or what was known last.
    fn tell(&mut self, found: &BTreeMap<SocketId, BTreeMap<String, Vec<IpAddr>>>) {
        for way in &self.ways {
            let own = found.get(&way.socket);
            let mut hubs = Vec::new();
            for Named { told, host, port } in &self.names {
                let here = own
                    .and_then(|own| own.get(host))
                    .filter(|it| !it.is_empty());
                let addresses = here.or_else(|| self.known.get(host));
                let with_port = |ip: &IpAddr| (Arc::clone(told), SocketAddr::new(*ip, *port));
                hubs.extend(addresses.into_iter().flatten().map(with_port));
            }
            self.told.insert(way.socket, hubs);
        }
        let resolved = Arc::new(self.told.clone());
        for slot in self.workers.iter() {
            slot.post(Letter::Resolved(Arc::clone(&resolved)));
        }
    }
}

/// What the resolvers of this host answer over any of these links.
pub(super) fn look_up(ways: &[Way], names: &[String]) -> Vec<(String, Vec<IpAddr>)> {
    let resolvers = resolvers();
    let answered = at_once(ways, |way| ask_all(way, &resolvers, names));
    answered.into_iter().flatten().flatten().collect()
}

/// What the resolvers answer to this link about all names.
fn ask_all(way: &Way, resolvers: &[Resolver], names: &[String]) -> BTreeMap<String, Vec<IpAddr>> {
    let sockets = sockets_to(way, resolvers);
    // What comes back may be anybody's.
    confine::keep_files_only();
    let ask = |name: &String| (name.clone(), ask_or_read(&sockets, name));
    names.iter().map(ask).collect()
}

fn sockets_to(way: &Way, resolvers: &[Resolver]) -> Vec<UdpSocket> {
    let here = resolvers
        .iter()
        .filter(|it| it.is_behind(&way.device, way.index));
    let sockets = here.filter_map(|resolver| socket_to(way, resolver.address).ok());
    sockets.collect()
}

/// The addresses of a name that the first resolver knows which knows any. All are asked at once.
pub(super) fn ask(way: &Way, resolvers: &[Resolver], name: &str) -> Vec<IpAddr> {
    ask_or_read(&sockets_to(way, resolvers), name)
}

/// As for other programs, the host's own file comes before what resolvers say.
fn ask_or_read(sockets: &[UdpSocket], name: &str) -> Vec<IpAddr> {
    let mut known = host::addresses(name);
    if known.is_empty() {
        return ask_over(sockets, name);
    }
    known.truncate(MOST_ADDRESSES);
    known
}

fn ask_over(sockets: &[UdpSocket], name: &str) -> Vec<IpAddr> {
    let started = Instant::now();
    let (mut addresses, mut families) = (Vec::new(), [false; 2]);
    let (mut ask_at, mut end) = (started, started + PATIENCE);
    // The first question may be answered after it was asked again.
    let Some(ids) = ids() else { return addresses };
    while Instant::now() < end && !sockets.is_empty() {
        if Instant::now() >= ask_at {
            send_questions(sockets, ids, name);
            ask_at += ASK_AGAIN;
        }
        thread::sleep(LOOK);
        for (family, found) in sockets.iter().flat_map(|socket| answers(socket, ids, name)) {
            if families[family] {
                continue;
            }
            families[family] = true;
            if !found.is_empty() {
                end = end.min(Instant::now() + OTHER_FAMILY);
            }
            addresses.extend(found);
        }
        if families == [true; 2] {
            break;
        }
    }
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

/// A socket of the link, or of no link for a resolver of the host itself.
fn socket_to(way: &Way, resolver: IpAddr) -> Result<UdpSocket, io::Error> {
    let to = SocketAddr::new(resolver, 53);
    let socket = if resolver.is_loopback() {
        let any = match resolver {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket
    } else {
        let binding = way.binding(resolver).ok_or(io::ErrorKind::Unsupported)?;
        inquiry::udp(&binding, to).map_err(io::Error::other)?
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The numbers of the questions for both families.
fn ids() -> Option<[u16; 2]> {
    let mut random = [0; 2];
    aws_lc_rs::rand::fill(&mut random).ok()?;
    let id = u16::from_be_bytes(random);
    // Unlike ones: an answer says by its number which family it is of.
    Some([id, id ^ 1])
}

/// Asks for both families.
fn send_questions(sockets: &[UdpSocket], ids: [u16; 2], name: &str) {
    for question in dns::questions(ids, name) {
        for socket in sockets {
            // One that cannot be asked does not answer either.
            let _ = socket.send(&question);
        }
    }
}

/// The answers that have come: 0 for IPv4 or 1 for IPv6, and the addresses.
fn answers(socket: &UdpSocket, ids: [u16; 2], name: &str) -> Vec<(usize, Vec<IpAddr>)> {
    let mut buffer = [0; dns::ANSWER];
    let mut all = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        all.extend(dns::answer(&buffer[..length], ids, name));
    }
    all
}

fn read_known(file: &Path) -> BTreeMap<String, Vec<IpAddr>> {
    let text = fs::read(file).unwrap_or_default();
    // A file that makes no sense is as good as none.
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Puts a new file in place of the old one.
fn write_known(file: &Path, known: &BTreeMap<String, Vec<IpAddr>>) -> io::Result<()> {
    Draft::begin(file)?.finish(&serde_json::to_string_pretty(known)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "vpn.example.org";

    /// One misspelt name had all names looked up each minute for ever.
    #[test]
    fn a_name_that_is_never_found_is_not_sought_for_ever_beside_others() {
        let paused = |failures, others| pause_after(failures, others).as_secs();
        assert_eq!((paused(1, None), paused(9, None)), (4, 60));
        assert_eq!(
            (paused(1, Some(NO_TUNNEL)), paused(9, Some(NO_TUNNEL))),
            (4, 15)
        );
        assert_eq!(
            (paused(9, Some(TUNNEL)), paused(10, Some(TUNNEL))),
            (60, 600)
        );
    }

    #[test]
    fn what_was_known_survives_and_garbage_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(KNOWN);
        let known = BTreeMap::from([(HUB.to_owned(), vec!["203.0.113.10".parse().unwrap()])]);
        assert_eq!(read_known(&file), BTreeMap::new());

        write_known(&file, &known).unwrap();
        assert_eq!(read_known(&file), known);

        fs::write(&file, "{").unwrap();
        assert_eq!(read_known(&file), BTreeMap::new());
    }
}
