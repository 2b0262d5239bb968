//! The thread that has the sockets of proxied UDP flows (RFC 9298).
//!
//! Each flow has a socket of its own, connected to its target, so that the kernel drops what comes
//! from elsewhere. All of them are on one thread beside the workers: a client's flows, and floods
//! from their targets, cost tunnels no system call. Payloads pass between a worker and this thread
//! through two bounded boxes, and what finds one full is lost, as in any queue. Orders are never
//! lost; they are as few as requests.

mod allowance;
pub(super) mod window;

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_engine::{Credential, RequestId, UdpRefusal};
use sennit_linux::{
    confine,
    netlink::Netlink,
    poller::{Events, Interest, Poller},
};
use sennit_packet::Bitrate;

use crate::{
    config::{ConnectUdp, HubConfig},
    daemon::{
        hub::registrar::{
            query::Verdict,
            targets::{prohibited, refused},
        },
        mailbox::{self, Hatch, Mailbox, Slot},
        worker::Lifeline,
    },
    exit::Failure,
};

use allowance::{Allowance, BURST};
pub(in crate::daemon) use window::{Opening, Order, Window};
use window::{Payload, ROOM, Terms};

const ORDERS: u64 = 0;
/// Tokens from here on are boxes of workers, of which there are at most 64.
const FIRST_BOX: u64 = 1;
const FIRST_FLOW: u64 = 1 << 16;
/// Flows of all clients together; each has a file descriptor.
const MOST_FLOWS: usize = 4096;
/// File descriptors that are left for everything else.
const SPARE_FILES: u64 = 256;
/// Flows of one connection: so many streams it may have ([`sennit_masque::MAX_STREAMS`]).
const MOST_OF_A_CONNECTION: u32 = 64;
/// Payloads read from one flow before others have their turn.
const READS: usize = 32;
/// The largest UDP payload is a little smaller.
const LARGEST: usize = 1 << 16;
/// How often flows are looked at for their end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const EVENTS: usize = 128;
/// How many flows one connection may have; none if nothing is proxied.
pub(super) fn flows_of_a_connection(config: &HubConfig) -> u32 {
    let most = |udp: &ConnectUdp| udp.flows.min(MOST_OF_A_CONNECTION);
    config.connect_udp.as_ref().map_or(0, most)
}

/// Starts the thread: who gives it orders, and an end for each worker, which reports to the
/// worker's poller as `token`.
pub(super) fn start(
    config: ConnectUdp,
    pollers: &[Arc<Poller>],
    token: u64,
    verdicts: Arc<[Slot<Verdict>]>,
    lifeline: Lifeline,
) -> Result<(Slot<Order>, Vec<Window>), Failure> {
    let (relay, orders, windows) =
        Relay::new(config, pollers, token, verdicts).map_err(Failure::runtime)?;
    let run = move || {
        let _lifeline = lifeline;
        confine::keep_files_only();
        relay.run();
    };
    let thread = thread::Builder::new().name("relay".into()).spawn(run);
    thread.map_err(Failure::runtime)?;
    Ok((orders, windows))
}

/// One client.
#[derive(Debug)]
struct Client {
    flows: u32,
    /// To targets and from them.
    allowances: [Allowance; 2],
}

#[derive(Debug)]
struct Flow {
    worker: usize,
    request: RequestId,
    site: Arc<str>,
    credential: Credential,
    socket: UdpSocket,
    /// When the last packet passed.
    used: Instant,
}

struct Relay {
    config: ConnectUdp,
    most: usize,
    /// Says where targets are.
    netlink: Netlink,
    poller: Poller,
    orders: Mailbox<Order>,
    boxes: Vec<Mailbox<Payload>>,
    workers: Vec<Hatch<Payload>>,
    verdicts: Arc<[Slot<Verdict>]>,
    flows: BTreeMap<u64, Flow>,
    tokens: BTreeMap<(usize, RequestId), u64>,
    clients: BTreeMap<Arc<str>, Client>,
    next_token: u64,
    next_look: Instant,
    buffer: Box<[u8; LARGEST]>,
}

impl Relay {
    fn new(
        config: ConnectUdp,
        pollers: &[Arc<Poller>],
        token: u64,
        verdicts: Arc<[Slot<Verdict>]>,
    ) -> io::Result<(Self, Slot<Order>, Vec<Window>)> {
        let poller = Poller::new()?;
        let (orders, slot) = mailbox::open(&poller, ORDERS)?;
        let (mut boxes, mut workers, mut windows) = (Vec::new(), Vec::new(), Vec::new());
        for (worker, theirs) in pollers.iter().enumerate() {
            let own = FIRST_BOX + worker as u64;
            let (out_box, outbox) = mailbox::open_bounded(&poller, own, ROOM)?;
            let (inbox, in_hatch) = mailbox::open_bounded(theirs, token, ROOM)?;
            boxes.push(out_box);
            workers.push(in_hatch);
            windows.push(Window {
                worker,
                orders: slot.clone(),
                outbox,
                inbox,
                untold: false,
            });
        }
        let relay = Self {
            config,
            most: most_flows(),
            netlink: Netlink::open().map_err(io::Error::other)?,
            poller,
            orders,
            boxes,
            workers,
            verdicts,
            flows: BTreeMap::new(),
            tokens: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_token: FIRST_FLOW,
            next_look: Instant::now() + LOOK_EVERY,
            buffer: Box::new([0; LARGEST]),
        };
        Ok((relay, slot, windows))
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            // Without flows there is nothing to look for.
            let until = |at: Instant| at.saturating_duration_since(Instant::now());
            let timeout = (!self.flows.is_empty()).then(|| until(self.next_look));
            if let Err(error) = self.poller.wait(&mut events, timeout) {
                return tracing::error!(%error, "UDP is proxied no more");
            }
            let now = Instant::now();
            let mut woken = 0_u64;
            for ready in events.iter() {
                match ready.token {
                    ORDERS => self.follow_orders(now),
                    FIRST_FLOW.. => woken |= self.read(ready.token, now),
                    of => self.send_all((of - FIRST_BOX) as usize, now),
                }
            }
            while woken != 0 {
                self.workers[woken.trailing_zeros() as usize].wake();
                woken &= woken - 1;
            }
            if now >= self.next_look {
                self.next_look = now + LOOK_EVERY;
                self.end_idle(now);
            }
        }
    }

    // ---- orders --------------------------------------------------------------------------------

    fn follow_orders(&mut self, now: Instant) {
        self.orders.acknowledge();
        while let Some(order) = self.orders.next() {
            match order {
                Order::Open(opening) => {
                    let (worker, request) = (opening.worker, opening.request);
                    let credential = opening.credential;
                    let verdict = match self.open(&opening, now) {
                        Ok(()) => Verdict::GrantUdp(request, credential),
                        Err(refusal) => Verdict::RefuseUdp(request, refusal),
                    };
                    self.verdicts[worker].post(verdict);
                }
                // After a grant on the way, whose worker did not know the credential before it.
                Order::Expel(credential) => self.end(|flow| flow.credential == credential),
                Order::Change(terms) => self.change(terms.map(|terms| *terms)),
                Order::Close { worker, request } => {
                    if let Some(&token) = self.tokens.get(&(worker, request)) {
                        self.remove(token);
                    }
                }
            }
        }
    }

    fn open(&mut self, opening: &Opening, now: Instant) -> Result<(), UdpRefusal> {
        let site: Arc<str> = opening.site.as_str().into();
        let has = self.clients.get(&site).map_or(0, |client| client.flows);
        if has >= self.config.flows {
            let reason = format!("a client may have {} flows", self.config.flows);
            return Err(refused(429, "connection_limit_reached", &reason));
        }
        if self.flows.len() >= self.most {
            let reason = "the hub has as many flows as it can";
            return Err(refused(503, "connection_limit_reached", reason));
        }
        let socket = connect_first(&opening.targets, &mut self.netlink)?;
        let token = self.next_token;
        let watched = self.poller.add(&socket, token, Interest::Read);
        watched.map_err(|error| refused(503, "proxy_internal_error", &error.to_string()))?;
        self.next_token += 1;
        let client = self.clients.entry(site.clone()).or_insert_with(|| Client {
            flows: 0,
            allowances: [(); 2].map(|()| Allowance {
                left: f64::INFINITY,
                at: now,
            }),
        });
        client.flows += 1;
        let (worker, request) = (opening.worker, opening.request);
        self.tokens.insert((worker, request), token);
        let flow = Flow {
            worker,
            request,
            site,
            credential: opening.credential,
            socket,
            used: now,
        };
        self.flows.insert(token, flow);
        Ok(())
    }

    fn remove(&mut self, token: u64) -> Option<Flow> {
        let flow = self.flows.remove(&token)?;
        self.tokens.remove(&(flow.worker, flow.request));
        // Fails only for a descriptor that is not watched.
        let _ = self.poller.remove(&flow.socket);
        if let Some(client) = self.clients.get_mut(&flow.site) {
            client.flows -= 1;
            if client.flows == 0 && self.config.rate.is_none() {
                self.clients.remove(&flow.site);
            }
        }
        Some(flow)
    }

    /// Goes on under other terms, and ends the flows that they do not allow.
    fn change(&mut self, terms: Option<Terms>) {
        let Some(terms) = terms else {
            self.config.flows = 0;
            return self.end(|_| true);
        };
        self.end(|flow| {
            let target = flow.socket.peer_addr();
            !target.is_ok_and(|it| terms.allow(&flow.site, it))
        });
        self.config = terms.udp;
    }

    fn end(&mut self, is_over: impl Fn(&Flow) -> bool) {
        let ended = self.flows.iter().filter(|(_, flow)| is_over(flow));
        let ended: Vec<u64> = ended.map(|(&token, _)| token).collect();
        for token in ended {
            if let Some(flow) = self.remove(token) {
                self.verdicts[flow.worker].post(Verdict::EndUdp(flow.request));
            }
        }
    }

    fn end_idle(&mut self, now: Instant) {
        let idle = self.config.idle;
        self.end(|flow| now.saturating_duration_since(flow.used) >= idle);
        // Who has no flows has all its allowance again after a while.
        let is_away = |client: &Client| {
            let since = client.allowances.iter().map(|it| it.at).max();
            client.flows == 0 && since.is_none_or(|at| now >= at + BURST)
        };
        self.clients.retain(|_, client| !is_away(client));
    }

    // ---- payloads ------------------------------------------------------------------------------

    /// Sends what a worker has left here.
    fn send_all(&mut self, worker: usize, now: Instant) {
        self.boxes[worker].acknowledge();
        for _ in 0..ROOM {
            let Some((request, payload)) = self.boxes[worker].next() else {
                return;
            };
            self.send((worker, request), &payload, now);
        }
        self.boxes[worker].put_off();
    }

    fn send(&mut self, flow: (usize, RequestId), payload: &[u8], now: Instant) {
        let Some(flow) = self.tokens.get(&flow).and_then(|it| self.flows.get_mut(it)) else {
            return;
        };
        let client = self.clients.get_mut(&flow.site);
        if !allows(client, 0, payload.len(), self.config.rate, now) {
            return;
        }
        flow.used = now;
        // What the target's host or a router said of an earlier packet is told here; it costs this
        // packet, or it would be lost for that.
        if let Err(error) = flow.socket.send(payload)
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            let _ = flow.socket.send(payload);
        }
    }

    /// Reads what a target sent; the worker to wake, as a bit.
    fn read(&mut self, token: u64, now: Instant) -> u64 {
        let Some(flow) = self.flows.get_mut(&token) else {
            return 0;
        };
        let mut woken = 0;
        for _ in 0..READS {
            let len = match flow.socket.recv(&mut self.buffer[..]) {
                Ok(len) => len,
                // It is read and forgotten: a target may listen again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(_) => break,
            };
            let client = self.clients.get_mut(&flow.site);
            if !allows(client, 1, len, self.config.rate, now) {
                continue;
            }
            flow.used = now;
            let payload = Bytes::copy_from_slice(&self.buffer[..len]);
            if self.workers[flow.worker].leave((flow.request, payload)) {
                woken = 1 << flow.worker;
            }
        }
        woken
    }
}

/// Whether a client has so many bytes left of its rate; it has them no longer.
fn allows(
    client: Option<&mut Client>,
    direction: usize,
    bytes: usize,
    rate: Option<Bitrate>,
    now: Instant,
) -> bool {
    let Some(rate) = rate else { return true };
    client.is_some_and(|it| it.allowances[direction].take(bytes, rate, now))
}

/// A socket that is connected to the first of the targets that this host has a way to.
fn connect_first(targets: &[SocketAddr], netlink: &mut Netlink) -> Result<UdpSocket, UdpRefusal> {
    let mut last = refused(502, "destination_not_found", "the name has no address");
    for &target in targets {
        match connect(target, netlink) {
            Ok(socket) => return Ok(socket),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

fn connect(target: SocketAddr, netlink: &mut Netlink) -> Result<UdpSocket, UdpRefusal> {
    let unroutable = |error: &dyn std::error::Error| {
        refused(502, "destination_ip_unroutable", &error.to_string())
    };
    // Whatever the host's addresses were when they were last listed, and whatever else it answers
    // to, as the first address of each IPv6 network that it is attached to.
    match netlink.is_for_host(target.ip()) {
        Ok(false) => {}
        Ok(true) => return Err(prohibited("it is the hub itself")),
        Err(error) => return Err(unroutable(&error)),
    }
    let any = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let own = |error: io::Error| refused(503, "proxy_internal_error", &error.to_string());
    let socket = UdpSocket::bind::<SocketAddr>(any).map_err(own)?;
    socket.set_nonblocking(true).map_err(own)?;
    socket.connect(target).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => prohibited("it is a broadcast address"),
        _ => unroutable(&error),
    })?;
    match socket.local_addr() {
        Ok(local) if local.ip() == target.ip() => Err(prohibited("it is the hub itself")),
        Ok(_) => Ok(socket),
        Err(error) => Err(own(error)),
    }
}

/// Takes as many file descriptors as the host allows, and says how many flows that is.
fn most_flows() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = MOST_FLOWS as u64 + SPARE_FILES;
    let most = limit.maximum.unwrap_or(wanted).min(wanted);
    let current = limit.current.unwrap_or(wanted);
    let raised = Rlimit {
        current: Some(most.max(current)),
        maximum: limit.maximum,
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => most.max(current),
        Err(_) => current,
    };
    let flows = files.saturating_sub(SPARE_FILES) as usize;
    flows.clamp(1, MOST_FLOWS)
}

#[cfg(test)]
mod tests;
