//! Speed tests that a running edge makes: of the tunnel, and of one link of it.
//!
//! The hub serves the tests of `sennit test` inside the tunnel, if its config says so. A test is a
//! client like any program behind the edge, on a thread of its own. To measure one link the
//! others rest meanwhile. That is a lease, which ends by itself however the test ends. There is one
//! test at a time, whoever asks for it.

mod run;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::run::Course;
pub use crate::control::{SpeedtestOrder, SpeedtestWish};
use crate::{
    control::{Ask, Refused, Response},
    date,
};

/// An attended test ends if nobody has asked after it for so long.
const ATTENTION: Duration = Duration::from_secs(4);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A speed test, as `sennit speedtest --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Speedtest {
    /// `sennit.speedtest/1`.
    pub schema: String,
    pub state: SpeedtestState,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// The hub, inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Payload in each direction at most.
    pub most_bytes: u64,
    pub measured: Vec<Measured>,
    /// What is being measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Progress>,
    /// Somebody has stopped it: the last figures are of the time until then.
    pub interrupted: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Trouble>,
}

/// Where a speed test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpeedtestState {
    /// There was none since the edge was started.
    None,
    Running,
    Done,
    Failed,
}

/// The tunnel, or one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Absent for the tunnel with all its links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Way>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Way>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// Payload that arrived.
    pub bits_per_second: f64,
    pub bytes: u64,
    pub seconds: f64,
    /// The median of round trips before the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_rtt_seconds: Option<f64>,
    /// The median of round trips while the load ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_rtt_seconds: Option<f64>,
}

/// How far a running test is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Absent for the tunnel with all its links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// `down` or `up`.
    pub way: String,
    /// Of this direction, since its load began.
    pub elapsed_seconds: f64,
    /// How long this direction takes at most.
    pub most_seconds: f64,
    /// What arrived in the last second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<f64>,
}

/// Why a test failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// A word for programs: `no_server`, `interrupted` or `failed`.
    pub code: String,
    pub message: String,
}

impl Speedtest {
    pub const SCHEMA: &str = "sennit.speedtest/1";

    fn new(state: SpeedtestState) -> Self {
        Self {
            schema: Self::SCHEMA.into(),
            state,
            started: None,
            server: None,
            most_bytes: 0,
            measured: Vec::new(),
            now: None,
            interrupted: false,
            problem: None,
        }
    }
}

/// The speed tests of an edge.
pub struct Speedtests {
    /// The edge that is asked on behalf of a test.
    edge: Weak<dyn Ask>,
    last: Arc<Mutex<Last>>,
}

/// The test that runs, or ran last.
struct Last {
    test: Speedtest,
    stop: Arc<AtomicBool>,
    /// When somebody asked after it.
    asked: Instant,
}

fn lock(last: &Mutex<Last>) -> MutexGuard<'_, Last> {
    // A document is changed field by field, and each state of it can be shown.
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Speedtests {
    pub(crate) fn new(edge: Weak<dyn Ask>) -> Self {
        Self {
            edge,
            last: Arc::new(Mutex::new(Last {
                test: Speedtest::new(SpeedtestState::None),
                stop: Arc::default(),
                asked: Instant::now(),
            })),
        }
    }

    /// Does what somebody wants, and tells of the last test.
    pub fn answer(&self, order: &SpeedtestOrder) -> Response {
        match order {
            SpeedtestOrder::Look => {}
            SpeedtestOrder::Start(wish) => {
                if let Err(refused) = self.start(wish) {
                    return Response::Refused(refused);
                }
            }
            SpeedtestOrder::Stop => lock(&self.last).stop.store(true, Ordering::Relaxed),
        }
        let mut last = lock(&self.last);
        last.asked = Instant::now();
        Response::document(&last.test)
    }

    fn start(&self, wish: &SpeedtestWish) -> Result<(), Refused> {
        self.claim()?;
        let course = self.edge().and_then(|edge| Course::plan(edge, wish));
        let course = course.inspect_err(|_| self.release())?;
        let mut last = lock(&self.last);
        last.test.server = Some(course.server.to_string());
        last.test.most_bytes = course.most_bytes;
        let (stop, kept) = (Arc::clone(&last.stop), Arc::clone(&self.last));
        drop(last);
        if wish.attended {
            attend(&stop, &self.last).inspect_err(|_| self.release())?;
        }
        let run = move || {
            // A panic there must not leave a test that never ends.
            let _ended = Ended(Arc::clone(&kept));
            course.run(&stop, &kept);
        };
        let thread = thread::Builder::new().name("speedtest".into());
        thread.spawn(run).map(drop).map_err(|error| {
            self.release();
            Refused::new("failed", format!("cannot start a thread: {error}"))
        })
    }

    fn edge(&self) -> Result<Arc<dyn Ask>, Refused> {
        let gone = || Refused::new("busy", "the edge is stopping");
        self.edge.upgrade().ok_or_else(gone)
    }

    /// Makes sure that no other test runs.
    fn claim(&self) -> Result<(), Refused> {
        let mut last = lock(&self.last);
        if last.test.state == SpeedtestState::Running {
            return Err(Refused::new(
                "speedtest_runs",
                "a speed test runs already, and two would measure each other",
            ));
        }
        last.test = Speedtest::new(SpeedtestState::Running);
        last.test.started = Some(date::seconds(SystemTime::now()));
        last.stop = Arc::default();
        last.asked = Instant::now();
        Ok(())
    }

    /// It was not to be.
    fn release(&self) {
        lock(&self.last).test = Speedtest::new(SpeedtestState::None);
    }
}

/// Stops the test if nobody asks after it any more.
fn attend(stop: &Arc<AtomicBool>, last: &Arc<Mutex<Last>>) -> Result<(), Refused> {
    let (stop, last) = (Arc::clone(stop), Arc::clone(last));
    let watch = move || {
        loop {
            thread::sleep(LOOK);
            let last = lock(&last);
            let ours = Arc::ptr_eq(&last.stop, &stop);
            if !ours || last.test.state != SpeedtestState::Running {
                return;
            }
            if last.asked.elapsed() > ATTENTION {
                stop.store(true, Ordering::Relaxed);
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("attention".into()).spawn(watch);
    let failed = |error| Refused::new("failed", format!("cannot start a thread: {error}"));
    thread.map(drop).map_err(failed)
}

/// Ends a test that has not ended in another way.
struct Ended(Arc<Mutex<Last>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut last = lock(&self.0);
        last.test.now = None;
        if last.test.state == SpeedtestState::Running {
            last.test.state = SpeedtestState::Failed;
        }
    }
}
