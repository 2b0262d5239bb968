//! Whole tests in virtual time: what they say of links that the test draws must be what such links
//! do.

mod pitfalls;
mod repair;

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_engine::BareReceived;
use sennit_netem::{Bitrate, Config, Link, LinkSpec, Loss, Queue, Trace};

use super::{
    client::{self, Options},
    report::Report,
    second::Second,
    server::{self, Serving},
    stack::{Stack, StackName},
    wire::Network,
    words::Plan,
};

const MS: Duration = Duration::from_millis(1);
/// Headers of UDP and IPv4.
const HEADERS: usize = 28;
/// The largest packet that noq finds on a path of Ethernet.
const PACKET: usize = 1452;
/// Of a packet with a piece of a stream: flags, connection ID, number, tag, and the frame's type,
/// stream, offset and length.
const OVERHEAD: usize = 1 + 8 + 2 + 16 + 1 + 1 + 4 + 2;
/// A packet with a probe of 17 bytes: flags, connection ID, number, tag, and the frame's type and
/// length.
const PROBE_PACKET: usize = 1 + 8 + 2 + 16 + 2 + 17;

#[derive(Clone)]
struct Clock(Rc<Cell<Instant>>);

/// The server has no network of its own: the client's moves its packets.
impl Network for Clock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn turn(&mut self, _: &mut dyn Stack, _: Instant) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self, _: &mut dyn Stack) -> io::Result<bool> {
        Ok(false)
    }
}

/// A UDP packet and its ECN field.
type Packet = (Vec<u8>, u8);

/// A link with a server at its end.
struct Between {
    clock: Clock,
    up: Link<Packet>,
    down: Link<Packet>,
    server: Serving<Clock>,
}

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 4774).into()
}

fn send(quic: &mut dyn Stack, link: &mut Link<Packet>, now: Instant) {
    let mut bytes = Vec::new();
    while let Some(transmit) = quic.poll_transmit(&mut bytes, now) {
        for packet in bytes.chunks(transmit.segment.unwrap_or(bytes.len()).max(1)) {
            let length = packet.len() + HEADERS;
            let _ = link.handle_packet(length, (packet.to_vec(), transmit.ecn), now);
        }
        bytes.clear();
    }
}

fn receive(quic: &mut dyn Stack, link: &mut Link<Packet>, from: u8, now: Instant) {
    while let Some((arrived, (bytes, ecn))) = link.poll_arrival(now) {
        let from = BareReceived {
            local: None,
            remote: address(from),
            ecn,
            segment: bytes.len(),
            arrived,
        };
        quic.handle_datagrams(from, BytesMut::from(&bytes[..]), now);
    }
}

impl Network for Between {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn turn(&mut self, quic: &mut dyn Stack, until: Instant) -> io::Result<()> {
        let now = self.clock.now();
        self.flush(quic)?;
        send(self.server.quic(), &mut self.down, now);
        let due = [
            quic.poll_timeout(),
            self.server.quic().poll_timeout(),
            Some(self.server.wake_at(now)),
            self.up.poll_timeout(),
            self.down.poll_timeout(),
        ];
        let now = due.into_iter().flatten().fold(until, Instant::min).max(now);
        self.clock.0.set(now);
        receive(self.server.quic(), &mut self.up, 1, now);
        self.server.quic().handle_timeout(now);
        self.server.serve();
        receive(quic, &mut self.down, 2, now);
        quic.handle_timeout(now);
        Ok(())
    }

    fn flush(&mut self, quic: &mut dyn Stack) -> io::Result<bool> {
        send(quic, &mut self.up, self.clock.now());
        Ok(false)
    }

    fn begin(&mut self) {
        self.up.begin(self.clock.now());
        self.down.begin(self.clock.now());
    }
}

/// What the two ends are.
#[derive(Clone, Copy, Default)]
struct Ends {
    /// They speak the protocol that other stacks speak too.
    perf: bool,
    client: StackName,
    server: StackName,
}

/// What a test over such a link says.
fn test(spec: &LinkSpec, seed: u64, plan: Plan) -> Report {
    test_by(Ends::default(), spec, seed, plan)
}

/// What a test between such ends over such a link says.
fn test_by(ends: Ends, spec: &LinkSpec, seed: u64, plan: Plan) -> Report {
    let stop = AtomicBool::new(false);
    follow(ends, spec, seed, plan, &mut |_| {}, &stop)
}

/// What a test between such ends over such a link says until `stop`, also while it runs.
fn follow(
    ends: Ends,
    spec: &LinkSpec,
    seed: u64,
    plan: Plan,
    progress: &mut dyn FnMut(&Second),
    stop: &AtomicBool,
) -> Report {
    let clock = Clock(Rc::new(Cell::new(Instant::now())));
    let options = server::Options {
        listen: None,
        token: None,
        most_seconds: Duration::from_secs(3600),
        most_rate: None,
        most_clients: 1,
        perf: ends.perf,
        stack: ends.server,
    };
    let net = Between {
        server: Serving::over(clock.clone(), options).expect("it needs random numbers only"),
        clock,
        up: Link::new(spec.up.clone(), seed),
        down: Link::new(spec.down.clone(), seed + 1000),
    };
    let options = Options {
        server: address(2),
        plan,
        patience: Duration::from_secs(10),
        pin: None,
        profile: None,
        seed,
        handshakes: None,
        responsiveness: false,
        perf: ends.perf,
        stack: ends.client,
    };
    client::run_over(net, &options, Vec::new(), stop, progress).expect("the link is not dead")
}

/// A plan that sends downward.
fn plan(congestion: &str, seconds: f64, warmup_seconds: f64) -> Plan {
    Plan {
        down: true,
        congestion: congestion.into(),
        seconds,
        warmup_seconds,
        ..Plan::example()
    }
}

/// A number in a range that depends on the seed alone.
fn draw(state: &mut u64, from: f64, to: f64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    from + (to - from) * ((*state >> 11) as f64 / (1_u64 << 53) as f64)
}

/// A link of some rate, delay and loss, alike both ways.
fn some_link(seed: u64, most_loss: f64) -> LinkSpec {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4 {
        draw(&mut state, 0.0, 1.0);
    }
    LinkSpec::symmetric(Config {
        rate: Bitrate::from_mbit(draw(&mut state, 3.0, 40.0)),
        delay: MS.mul_f64(draw(&mut state, 1.0, 80.0)),
        loss: Loss::Random(draw(&mut state, 0.0, most_loss)),
        queue: Queue::Time(MS * 100),
        ..Config::default()
    })
}

/// A link whose rate changes by lines of seconds and Mbit/s, alike both ways.
fn in_steps(steps: &str, delay: Duration, queue: Queue) -> LinkSpec {
    let trace = Arc::new(Trace::read("steps", steps).expect("it is a script"));
    let config = Config {
        delay,
        queue,
        ..Config::default()
    };
    LinkSpec::symmetric(config.moving(trace))
}

const LINKS: u64 = 20;

/// Messages of 1,000 bytes at half of the link's rate meet no queue: their share that arrives is
/// the link's, and so is the round trip of the probes.
#[test]
fn messages_find_the_goodput_the_loss_and_the_round_trip_of_any_link() {
    for seed in 1..=LINKS {
        let spec = some_link(seed, 0.05);
        let (rate, loss) = (spec.down.rate.expect("it has one"), spec.down.loss.ratio());
        let (offered, loss) = (rate.as_bps() as f64 / 2.0, loss.expect("it is fixed"));
        let plan = Plan {
            message_bytes: Some(1000),
            rate_bits_per_second: Some(offered),
            // It takes no notice of losses, and looks for the round trip with a small window after
            // ten seconds, by when the test is over.
            ..plan("bbr", 7.0, 2.0)
        };

        let report = test(&spec, seed, plan);

        let down = report.down.expect("it was asked for");
        let messages = down.messages.expect("they were sent");
        let chance = (loss * (1.0 - loss) / messages.sent as f64).sqrt();
        assert!(
            (messages.loss_ratio - loss).abs() <= 4.0 * chance,
            "{seed}: {loss} {messages:?}"
        );
        // Where the controller holds something up for a moment, up to three in a hundred of what
        // was offered does not leave: one of about 250 such tests.
        let unsent = down.unsent.expect("a rate was asked for").ratio;
        assert!(unsent < 0.04, "{seed}: {unsent} {spec:?}");
        let predicted = offered * (1.0 - unsent) * (1.0 - loss);
        let error = report.goodput_bits_per_second / predicted - 1.0;
        // Chance decides how much is lost.
        assert!(
            error.abs() < 0.01 + 4.0 * chance,
            "{seed}: {error} {spec:?}"
        );
        let bare = spec.down.delay + spec.up.delay;
        let wires = [&spec.up, &spec.down].map(|way| way.wire_time(PROBE_PACKET + HEADERS));
        let asked = (bare + wires[0] + wires[1]).as_secs_f64();
        let found = report.rtt.idle.p50_seconds.expect("there were probes");
        assert!((found - asked).abs() < 0.3e-3, "{seed}: {found} {asked}");
    }
}

/// One stream fills a link without loss: all of its frames but headers are goodput.
#[test]
fn a_stream_finds_the_goodput_that_headers_predict() {
    for seed in 1..=LINKS {
        let spec = some_link(seed, 0.0);

        let report = test(&spec, seed, plan("cubic", 8.0, 4.0));

        let error = report.goodput_bits_per_second / predicted(&spec) - 1.0;
        assert!(error.abs() < 0.01, "{seed}: {error} {spec:?}");
    }
}

/// What one stream carries downward over a link without loss, by its headers.
fn predicted(spec: &LinkSpec) -> f64 {
    let rate = spec.down.rate.expect("it has one").as_bps() as f64;
    let frame = |packet: usize| (packet + HEADERS + spec.down.frame_overhead) as f64;
    // An answer to a probe each 20 ms shares the link.
    let probes = frame(PROBE_PACKET) * 8.0 / 0.020;
    (rate - probes) * (PACKET - OVERHEAD) as f64 / frame(PACKET)
}

/// Timed handshakes, their closed connections and the first packets of a load fill a slow link:
/// what probes meet then is no idle round trip.
#[test]
fn the_idle_round_trip_is_that_of_an_idle_link() {
    let spec = in_steps("5,1\n5,20\n", MS * 25, Queue::Bytes(500_000));

    for perf in [false, true] {
        let ends = Ends {
            perf,
            ..Ends::default()
        };
        let report = test_by(ends, &spec, 1, plan("auto", 1.0, 0.0));

        let idle = report.rtt.idle;
        let (p50, worst) = idle
            .p50_seconds
            .zip(idle.max_seconds)
            .expect("it was probed");
        assert!(p50 < 0.060 && worst < 0.100, "{perf}: {idle:?}");
    }
}

/// A link that is too narrow for three seconds loses half of what is sent then, and its queue is
/// full; after a warm-up of eight nothing tells of it.
#[test]
fn what_is_sent_in_the_warm_up_counts_nowhere() {
    let spec = in_steps("3,1\n60,20\n", MS * 10, Queue::Time(MS * 100));
    for message_bytes in [Some(1000), None] {
        let plan = Plan {
            up: true,
            message_bytes,
            rate_bits_per_second: Some(2e6),
            ..plan("cubic", 3.0, 8.0)
        };
        let mut seconds = Vec::new();

        let tell = &mut |second: &Second| seconds.push(second.clone());
        let stop = AtomicBool::new(false);
        let report = follow(Ends::default(), &spec, 1, plan, tell, &stop);

        for way in [&report.up, &report.down].into_iter().flatten() {
            assert_eq!(way.lost_packets, 0, "{way:?}");
            if let Some(messages) = &way.messages {
                assert!((740..=760).contains(&messages.sent), "{messages:?}");
                assert_eq!(messages.lost, 0, "{messages:?}");
            }
        }
        let loaded = report.rtt.loaded;
        assert!(loaded.max_seconds < Some(0.060), "{loaded:?}");
        let rates = |second: &Second| [second.up_bits_per_second, second.down_bits_per_second];
        let (warm, counted) = seconds.split_at(8);
        assert!(warm.iter().all(|it| rates(it) == [None; 2]), "{warm:?}");
        let near = |rate: Option<f64>| rate.is_some_and(|rate| (rate / 2e6 - 1.0).abs() < 0.05);
        let good = |it: &Second| rates(it).into_iter().all(near);
        assert!(counted.iter().all(good), "{counted:?}");
    }
}

/// Whoever has no more than a packet in flight is not idle for that: one that was taken for idle
/// never looked for more, and stayed at a packet a round trip.
#[test]
fn a_link_that_grows_is_found_to_have_grown() {
    let spec = in_steps("3,1\n60,20\n", MS * 10, Queue::Time(MS * 100));
    for (seed, word) in (1..=4).flat_map(|seed| [(seed, "bbr"), (seed, "bbr3")]) {
        let plan = Plan {
            up: true,
            rate_bits_per_second: Some(2e6),
            ..plan(word, 3.0, 9.0)
        };

        let report = test(&spec, seed, plan);

        for way in [&report.up, &report.down].into_iter().flatten() {
            let rate = way.goodput_bits_per_second;
            assert!(rate > 1.9e6, "{word} {seed}: {rate}");
        }
    }
}

/// Another stack is of the same opinion, with itself and with ours at either end.
#[test]
fn quinn_finds_the_goodput_that_headers_predict() {
    let (ours, quinn) = (StackName::Sennit, StackName::Quinn);
    let pairs = [(quinn, quinn), (ours, quinn), (quinn, ours)];
    for (seed, (client, server)) in (1..=9).zip(pairs.into_iter().cycle()) {
        let spec = some_link(seed, 0.0);
        let ends = Ends {
            client,
            server,
            perf: false,
        };

        let report = test_by(ends, &spec, seed, plan("cubic", 8.0, 4.0));

        let error = report.goodput_bits_per_second / predicted(&spec) - 1.0;
        assert!(
            error.abs() < 0.01,
            "{seed} {client} {server}: {error} {spec:?}"
        );
        let down = report.down.expect("it was asked for");
        assert_eq!(down.controllers, ["cubic"]);
        let stacks = (report.client_stack, report.server_stack);
        assert_eq!(stacks, (client, Some(server)));
    }
}

/// What is sent once or never over quinn is lost as the link loses it, whatever CUBIC makes of it:
/// there is room for such a rate at once.
#[test]
fn quinn_finds_the_loss_and_the_round_trip() {
    let ends = Ends {
        client: StackName::Quinn,
        server: StackName::Quinn,
        perf: false,
    };
    let spec = some_link(3, 0.05);
    let loss = spec.down.loss.ratio().expect("it is fixed");
    let plan = Plan {
        message_bytes: Some(1000),
        rate_bits_per_second: Some(200e3),
        ..plan("bbr", 20.0, 1.0)
    };

    let report = test_by(ends, &spec, 3, plan);

    let down = report.down.expect("it was asked for");
    let messages = down.messages.expect("they were sent");
    let chance = (loss * (1.0 - loss) / messages.sent as f64).sqrt();
    let off = (messages.loss_ratio - loss).abs();
    assert!(off <= 4.0 * chance, "{loss} {messages:?}");
    assert_eq!(down.controllers, ["bbr"]);
    let wires = [&spec.up, &spec.down].map(|way| way.wire_time(PROBE_PACKET + HEADERS));
    let asked = (spec.down.delay + spec.up.delay + wires[0] + wires[1]).as_secs_f64();
    let found = report.rtt.idle.p50_seconds.expect("there were probes");
    assert!((found - asked).abs() < 0.3e-3, "{found} {asked}");
}

/// What a server of another stack tells by its acknowledgements alone is as true.
#[test]
fn perf_finds_the_goodput_that_headers_predict_either_way() {
    for (seed, up) in (1..=LINKS / 2).map(|seed| (seed, seed % 2 == 0)) {
        let spec = some_link(seed, 0.0);
        let rate = spec.down.rate.expect("it has one").as_bps() as f64;
        let plan = Plan {
            up,
            down: !up,
            streams: 2,
            ..plan("cubic", 16.0, 6.0)
        };

        let ends = Ends {
            perf: true,
            ..Ends::default()
        };
        let report = test_by(ends, &spec, seed, plan);

        let frame = (PACKET + HEADERS + spec.down.frame_overhead) as f64;
        let predicted = rate * (PACKET - OVERHEAD) as f64 / frame;
        let way = if up { report.up } else { report.down };
        let way = way.expect("there was load");
        // Questions for a byte share the link, and what is not acknowledged to its end is left out.
        let ratio = way.goodput_bits_per_second / predicted;
        assert!(
            (0.95..1.01).contains(&ratio),
            "{seed} {up}: {ratio} {spec:?}"
        );
        assert_eq!((way.flows, report.protocol.as_str()), (2, "perf"));
        assert!(report.rtt.idle.count > 5, "{:?}", report.rtt);
    }
}
