//! One speed test: what it needs to know, and how it goes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use super::{Last, Measured, Progress, SpeedtestState, SpeedtestWish, Trouble, Way, lock};
use crate::{
    control::{Ask, LinkAnswer, LinkOrder, Refused, Request, Response},
    loadtest::{
        PORT, Plan,
        client::{self, TestError},
        report::Report,
        second::Second,
        stack::StackName,
    },
    status::{self, LinkState, PathState, Status},
    usage::UsageDocument,
};

/// In each direction, if no link that is used has a cap, and if one has.
const MOST_BYTES: [u64; 2] = [200_000_000, 20_000_000];
/// How long a direction is measured at most, unless somebody says so; in milliseconds.
const USUAL_SPAN: u32 = 8_000;
const SPANS: std::ops::RangeInclusive<u32> = 1_000..=30_000;
/// One connection would measure one loss, on a long link.
const CONNECTIONS: u16 = 4;
/// For the server to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The other links rest for a load and this: to connect before it, or from its beginning on to hear
/// what arrived.
const AROUND: Duration = Duration::from_secs(15);
/// Paths of a link that rests close within a round trip.
const SETTLED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// What is measured, and where.
pub(super) struct Course {
    edge: Arc<dyn Ask>,
    /// Each alone; nothing stands for the tunnel with all its links.
    links: Vec<Option<String>>,
    pub(super) server: SocketAddr,
    pub(super) most_bytes: u64,
    span: Duration,
}

/// What came of a direction.
enum Outcome {
    Whole,
    Interrupted,
}

impl Course {
    pub(super) fn plan(edge: Arc<dyn Ask>, wish: &SpeedtestWish) -> Result<Self, Refused> {
        let span = wish.milliseconds.unwrap_or(USUAL_SPAN);
        if !SPANS.contains(&span) {
            return Err(Refused::new(
                "bad_request",
                "a direction is measured for 1 to 30 seconds",
            ));
        }
        if wish.bytes == Some(0) {
            return Err(Refused::new("bad_request", "no bytes measure nothing"));
        }
        let status = edge.status(&Request::Status)?;
        for link in &wish.links {
            check_link(&status, link)?;
        }
        let server = SocketAddr::new(inside(&*edge, &status)?, PORT);
        let is_capped = agree(&*edge, wish, &status)?;
        let links = match &wish.links[..] {
            [] => vec![None],
            links => links.iter().cloned().map(Some).collect(),
        };
        Ok(Self {
            edge,
            links,
            server,
            most_bytes: wish.bytes.unwrap_or(MOST_BYTES[usize::from(is_capped)]),
            span: Duration::from_millis(span.into()),
        })
    }

    /// Measures all of it, and writes down what there is to tell.
    pub(super) fn run(&self, stop: &AtomicBool, last: &Mutex<Last>) {
        for link in &self.links {
            let measured = self.measure(link.as_deref(), stop, last);
            match measured {
                Ok(Outcome::Whole) => {}
                Ok(Outcome::Interrupted) => {
                    lock(last).test.interrupted = true;
                    break;
                }
                Err(trouble) => {
                    let mut last = lock(last);
                    last.test.problem = Some(trouble);
                    last.test.state = SpeedtestState::Failed;
                    return;
                }
            }
        }
        lock(last).test.state = SpeedtestState::Done;
    }

    fn measure(
        &self,
        link: Option<&str>,
        stop: &AtomicBool,
        last: &Mutex<Last>,
    ) -> Result<Outcome, Trouble> {
        let first = lock(last).test.measured.is_empty();
        lock(last).test.measured.push(Measured {
            link: link.map(str::to_owned),
            down: None,
            up: None,
        });
        for down in [true, false] {
            let progress = Progress {
                link: link.map(str::to_owned),
                way: ["up", "down"][usize::from(down)].into(),
                elapsed_seconds: 0.0,
                most_seconds: self.span.as_secs_f64(),
                bits_per_second: None,
            };
            lock(last).test.now = Some(progress);
            let mut resting = match link {
                Some(link) => Some(Resting::all_but(&*self.edge, link, self.span + AROUND)?),
                None => None,
            };
            let mut begun = false;
            let report = client::run(&self.options(down), stop, &mut |second| {
                // To connect may have taken most of the time for which the others rest.
                if let Some(resting) = resting.as_mut().filter(|_| !begun) {
                    resting.renew(Instant::now());
                }
                begun = true;
                tell(last, second, down);
            });
            let report = report.map_err(|error| trouble(&error, first && down))?;
            if let Some(resting) = &resting {
                resting.check(Instant::now())?;
            }
            let mut last = lock(last);
            if let Some(measured) = last.test.measured.last_mut() {
                let found = Way::of(&report, down);
                *(if down {
                    &mut measured.down
                } else {
                    &mut measured.up
                }) = found;
            }
            if report.interrupted {
                return Ok(Outcome::Interrupted);
            }
            if let Some(message) = report.broken {
                let code = "failed".into();
                return Err(Trouble { code, message });
            }
        }
        Ok(Outcome::Whole)
    }

    fn options(&self, down: bool) -> client::Options {
        let plan = Plan {
            token: None,
            up: !down,
            down,
            connections: CONNECTIONS,
            streams: 1,
            congestion: "auto".into(),
            seconds: self.span.as_secs_f64(),
            warmup_seconds: 0.0,
            ramp_seconds: 0.0,
            bytes: Some(self.most_bytes),
            message_bytes: None,
            fec: None,
            rate_bits_per_second: None,
            requests: None,
        };
        client::Options {
            server: self.server,
            plan,
            patience: PATIENCE,
            pin: None,
            profile: None,
            seed: 1,
            handshakes: None,
            responsiveness: false,
            perf: false,
            stack: StackName::Sennit,
        }
    }
}

fn tell(last: &Mutex<Last>, second: &Second, down: bool) {
    if let Some(now) = &mut lock(last).test.now {
        now.elapsed_seconds = second.elapsed_seconds;
        now.bits_per_second = if down {
            second.down_bits_per_second
        } else {
            second.up_bits_per_second
        };
    }
}

impl Way {
    fn of(report: &Report, down: bool) -> Option<Self> {
        let way = if down { &report.down } else { &report.up };
        way.as_ref().map(|way| Self {
            bits_per_second: way.goodput_bits_per_second,
            bytes: way.bytes,
            seconds: way.seconds,
            idle_rtt_seconds: report.rtt.idle.p50_seconds,
            loaded_rtt_seconds: report.rtt.loaded.p50_seconds,
        })
    }
}

fn trouble(error: &TestError, is_first: bool) -> Trouble {
    let (code, more) = match error {
        TestError::NoServer { .. } if is_first => (
            "no_server",
            ": the hub's config has to say `speedtest = true` since the hub was started, and the site \
             must be allowed to reach the hub, which `sennit sites reach` there tells",
        ),
        TestError::NoServer { .. } | TestError::OtherProtocol { .. } => ("no_server", ""),
        TestError::Interrupted | TestError::Unbegun => ("interrupted", ""),
        TestError::OtherServer { .. }
        | TestError::NoFec { .. }
        | TestError::Refused { .. }
        | TestError::Broken { .. }
        | TestError::Host(_) => ("failed", ""),
    };
    Trouble {
        code: code.into(),
        message: format!("{error}{more}"),
    }
}

// ---- before it ----------------------------------------------------------------------------------

fn check_link(status: &Status, name: &str) -> Result<(), Refused> {
    let Some(link) = status.links.iter().find(|link| link.name == name) else {
        return Err(Refused::no_link(name));
    };
    if link.state == LinkState::Up {
        return Ok(());
    }
    let reason = link.reason.clone().unwrap_or_default();
    Err(Refused::new(
        "link_down",
        format!("link `{name}` is down, so there is nothing to measure: {reason}"),
    ))
}

/// What the edge answers.
fn ask<T: DeserializeOwned>(edge: &dyn Ask, request: Request) -> Result<T, Refused> {
    match edge.answer(request) {
        Response::Document(document) => serde_json::from_value(document).map_err(|error| {
            Refused::new("internal", format!("the answer makes no sense: {error}"))
        }),
        Response::Refused(refused) => Err(refused),
    }
}

fn order(edge: &dyn Ask, link: &str, order: LinkOrder) -> Result<LinkAnswer, Refused> {
    let link = link.to_owned();
    ask(edge, Request::Link { link, order })
}

/// The hub's address in the tunnel: IPv4 if there is one, as the server has it.
fn inside(edge: &dyn Ask, status: &Status) -> Result<IpAddr, Refused> {
    let unknown = || {
        Refused::new(
            "no_tunnel",
            "the hub has not said how it is called in the tunnel: is the tunnel up? `sennit status` says why not",
        )
    };
    let link = status.links.first().ok_or_else(unknown)?;
    let answer = order(edge, &link.name, LinkOrder::Describe)?;
    let mut all = answer.hub_inside.iter();
    let v4 = all.clone().find(|address| address.is_ipv4());
    v4.or_else(|| all.next()).copied().ok_or_else(unknown)
}

/// Whether a link with a cap will be used; somebody has agreed to it then.
fn agree(edge: &dyn Ask, wish: &SpeedtestWish, status: &Status) -> Result<bool, Refused> {
    let usage: UsageDocument = ask(edge, Request::Usage)?;
    let is_used = |name: &String| {
        let mut up = status.links.iter().filter(|it| it.state == LinkState::Up);
        let all = wish.links.is_empty() && up.any(|it| it.name == *name);
        all || wish.links.contains(name)
    };
    let links = usage.links.iter();
    let capped = links.filter(|it| it.cap_bytes.is_some() && is_used(&it.link));
    let capped: Vec<&str> = capped.map(|it| it.link.as_str()).collect();
    if capped.is_empty() || wish.metered {
        return Ok(!capped.is_empty());
    }
    let most = wish.bytes.unwrap_or(MOST_BYTES[1]);
    Err(Refused::new(
        "metered",
        format!(
            "{} may carry {} in each direction, which counts against a cap",
            capped.join(" and "),
            status::bytes(most)
        ),
    ))
}

// ---- the other links ----------------------------------------------------------------------------

/// Links that rest while another is measured, until this is dropped.
struct Resting<'a> {
    edge: &'a dyn Ask,
    names: Vec<String>,
    /// They carry again after this time, unless it is renewed.
    span: Duration,
    until: Instant,
    /// They did, or may have done.
    lapsed: bool,
}

impl<'a> Resting<'a> {
    /// Has all links rest but one, until nothing passes over them. The edge has them carry again by
    /// itself after `span`.
    fn all_but(edge: &'a dyn Ask, link: &str, span: Duration) -> Result<Self, Trouble> {
        let failed = |refused: Refused| Trouble {
            code: "failed".into(),
            message: refused.message,
        };
        let status = edge.status(&Request::Summary).map_err(failed)?;
        let others = status.links.iter().map(|it| it.name.clone());
        let now = Instant::now();
        let resting = Self {
            edge,
            names: others.filter(|name| name != link).collect(),
            span,
            until: now + span,
            lapsed: false,
        };
        resting.rest(span).map_err(failed)?;
        let deadline = now + SETTLED;
        while resting.is_any_up() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        Ok(resting)
    }

    /// They rest for that time once more, from now on.
    fn renew(&mut self, now: Instant) {
        self.lapsed |= now >= self.until || self.rest(self.span).is_err();
        self.until = now + self.span;
    }

    /// Whether they rested until now.
    fn check(&self, now: Instant) -> Result<(), Trouble> {
        if !self.lapsed && now < self.until {
            return Ok(());
        }
        Err(Trouble {
            code: "failed".into(),
            message: "the other links carried again before the measurement was over, because it \
                      took too long to connect"
                .into(),
        })
    }

    fn rest(&self, span: Duration) -> Result<(), Refused> {
        let milliseconds = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        for name in &self.names {
            order(self.edge, name, LinkOrder::Rest { milliseconds })?;
        }
        Ok(())
    }

    fn is_any_up(&self) -> bool {
        let Ok(status) = self.edge.status(&Request::Summary) else {
            return false;
        };
        let mut paths = status.tunnels.iter().flat_map(|tunnel| &tunnel.paths);
        paths.any(|path| {
            let mut link = path.link.iter();
            link.any(|link| self.names.contains(link)) && path.state == PathState::Up
        })
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        // If the edge is stopping, there is nobody who rests.
        let _ = self.rest(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;

    /// An edge that does as it is told, and counts.
    struct Obedient(AtomicU32);

    impl Ask for Obedient {
        fn status(&self, _: &Request) -> Result<Status, Refused> {
            Err(Refused::new("internal", "nobody asks"))
        }

        fn answer(&self, request: Request) -> Response {
            assert!(matches!(request, Request::Link { .. }), "{request:?}");
            self.0.fetch_add(1, Ordering::Relaxed);
            Response::document(&LinkAnswer {
                schema: String::new(),
                link: serde_json::from_value(json!({
                    "name": "lte", "interface": "wwan0", "tier": 1, "weight": 1, "state": "up"
                }))
                .unwrap(),
                hub_inside: Vec::new(),
            })
        }
    }

    fn resting(edge: &Obedient, now: Instant) -> Resting<'_> {
        let span = Duration::from_secs(23);
        Resting {
            edge,
            names: vec!["lte".into()],
            span,
            until: now + span,
            lapsed: false,
        }
    }

    #[test]
    fn the_others_rest_anew_when_the_load_begins() {
        let (edge, now) = (Obedient(AtomicU32::new(0)), Instant::now());
        let mut resting = resting(&edge, now);
        let late = now + Duration::from_secs(20);

        resting.renew(late);

        assert_eq!(edge.0.load(Ordering::Relaxed), 1);
        assert!(resting.check(late + Duration::from_secs(22)).is_ok());
        assert!(resting.check(late + Duration::from_secs(23)).is_err());
    }

    #[test]
    fn a_measurement_beside_others_that_carry_again_is_none() {
        let (edge, now) = (Obedient(AtomicU32::new(0)), Instant::now());
        let mut resting = resting(&edge, now);
        let late = now + Duration::from_secs(24);

        resting.renew(late);

        assert!(resting.check(late).is_err());
    }
}
