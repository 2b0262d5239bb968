//! The drills that a running edge makes, one at a time, on a thread.
//!
//! Whoever has asked for one stays: if nobody asks after it any more, the link is restored at once.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use sennit_linux::echo::Echo;
use serde::{Deserialize, Serialize};

use super::{Course, Drill, SECONDS, USUAL, measure};
use crate::control::{Ask, DrillOrder, LinkAnswer, LinkOrder, Refused, Request, Response};

/// A drill ends if nobody has asked after it for so long.
const ATTENTION: Duration = Duration::from_secs(4);

/// The drill of a link that runs, or ran last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillRun {
    /// `sennit.drill-run/1`.
    pub schema: String,
    pub link: String,
    pub state: DrillState,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Drill>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a drill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrillState {
    /// There was none of this link since the last one of another.
    None,
    /// Pings pass, and the link does too.
    Waiting,
    /// The link is lost.
    Lost,
    Done,
    Failed,
}

impl DrillState {
    fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Lost => false,
            Self::None | Self::Done | Self::Failed => true,
        }
    }
}

impl DrillRun {
    pub const SCHEMA: &str = "sennit.drill-run/1";

    fn new(link: &str, state: DrillState) -> Self {
        Self {
            schema: Self::SCHEMA.into(),
            link: link.into(),
            state,
            result: None,
            problem: None,
        }
    }
}

/// The drills of an edge.
pub struct Drills {
    /// The edge that is asked on behalf of a drill.
    edge: Weak<dyn Ask>,
    last: Arc<Mutex<Last>>,
}

struct Last {
    run: DrillRun,
    stop: Arc<AtomicBool>,
    /// When somebody asked after it.
    asked: Instant,
}

fn lock(last: &Mutex<Last>) -> MutexGuard<'_, Last> {
    // A document is changed field by field, and each state of it can be shown.
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drills {
    pub(crate) fn new(edge: Weak<dyn Ask>) -> Self {
        Self {
            edge,
            last: Arc::new(Mutex::new(Last {
                run: DrillRun::new("", DrillState::None),
                stop: Arc::default(),
                asked: Instant::now(),
            })),
        }
    }

    /// Does what somebody wants of a link's drill, and tells of it.
    pub fn answer(&self, link: &str, order: &DrillOrder) -> Response {
        if let DrillOrder::Start(wish) = order
            && let Err(refused) = self.start(link, wish.milliseconds)
        {
            return Response::Refused(refused);
        }
        let mut last = lock(&self.last);
        if last.run.link != link {
            return Response::document(&DrillRun::new(link, DrillState::None));
        }
        last.asked = Instant::now();
        if *order == DrillOrder::Stop {
            last.stop.store(true, Ordering::Relaxed);
        }
        Response::document(&last.run)
    }

    fn start(&self, link: &str, milliseconds: Option<u32>) -> Result<(), Refused> {
        let wanted = milliseconds.map(|it| Duration::from_millis(it.into()));
        let span = wanted.unwrap_or(USUAL);
        if !SECONDS.contains(&span.as_secs_f64()) {
            return Err(Refused::new("bad_request", "a link is lost for 1 to 60 s"));
        }
        let gone = || Refused::new("busy", "the edge is stopping");
        let edge = self.edge.upgrade().ok_or_else(gone)?;
        // Whether there is such a link is said at once.
        order(&*edge, link, LinkOrder::Describe)?;
        let course = Course {
            link: link.into(),
            span,
            probe: None,
            open: Echo::open_inside,
        };
        let stop = self.claim(link)?;
        let last = Arc::clone(&self.last);
        let run = move || {
            // A panic there must not leave a drill that never ends.
            let _ended = Ended(Arc::clone(&last));
            drill(&*edge, &course, &stop, &last);
        };
        let thread = thread::Builder::new().name("drill".into()).spawn(run);
        thread.map(drop).map_err(|error| {
            lock(&self.last).run = DrillRun::new(link, DrillState::None);
            Refused::new("failed", format!("cannot start a thread: {error}"))
        })
    }

    /// Makes sure that no other drill runs.
    fn claim(&self, link: &str) -> Result<Arc<AtomicBool>, Refused> {
        let mut last = lock(&self.last);
        if !last.run.state.is_over() {
            let other = &last.run.link;
            let what = format!("a drill of link `{other}` runs: two would measure each other");
            return Err(Refused::new("drill_runs", what));
        }
        *last = Last {
            run: DrillRun::new(link, DrillState::Waiting),
            stop: Arc::default(),
            asked: Instant::now(),
        };
        Ok(Arc::clone(&last.stop))
    }
}

fn drill(edge: &dyn Ask, course: &Course, stop: &AtomicBool, last: &Mutex<Last>) {
    let is_left = || lock(last).asked.elapsed() > ATTENTION;
    let stop = || stop.load(Ordering::Relaxed) || is_left();
    let mut order = |wanted| order(edge, &course.link, wanted);
    let mut tell = |_| lock(last).run.state = DrillState::Lost;
    let found = measure(course, &mut order, &stop, &mut tell);
    let mut last = lock(last);
    match found {
        Ok(drill) => {
            last.run.result = Some(drill);
            last.run.state = DrillState::Done;
        }
        Err(error) => {
            last.run.problem = Some(error.to_string());
            last.run.state = DrillState::Failed;
        }
    }
}

/// Has the edge obey an order for the link.
fn order(edge: &dyn Ask, link: &str, order: LinkOrder) -> Result<LinkAnswer, Refused> {
    let link = link.to_owned();
    match edge.answer(Request::Link { link, order }) {
        Response::Document(document) => serde_json::from_value(document).map_err(|error| {
            Refused::new("internal", format!("the answer makes no sense: {error}"))
        }),
        Response::Refused(refused) => Err(refused),
    }
}

/// Ends a drill that has not ended in another way.
struct Ended(Arc<Mutex<Last>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut last = lock(&self.0);
        if !last.run.state.is_over() {
            last.run.state = DrillState::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{control::DrillWish, status::Status};

    /// An edge with a link, inside which this host answers pings; for how long it was cut.
    #[derive(Default)]
    struct Loopback(Mutex<Vec<u32>>);

    impl Ask for Loopback {
        fn status(&self, _: &Request) -> Result<Status, Refused> {
            Err(Refused::new("internal", "nobody asks"))
        }

        fn answer(&self, request: Request) -> Response {
            match request {
                Request::Link { link, .. } if link != "lte" => {
                    Response::Refused(Refused::no_link(&link))
                }
                Request::Link { order, .. } => {
                    if let LinkOrder::Cut { milliseconds } = order {
                        self.0.lock().unwrap().push(milliseconds);
                    }
                    Response::Document(json!({
                        "schema": "sennit.link/1",
                        "link": {
                            "name": "lte", "interface": "wwan0", "tier": 1, "weight": 1, "state": "up"
                        },
                        "hub_inside": ["127.0.0.1"],
                    }))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_link_is_restored_when_whoever_asked_for_its_drill_is_gone() {
        if Echo::open([127, 0, 0, 1].into(), None).is_err() {
            eprintln!("SKIPPED: it needs root");
            return;
        }
        let edge = Arc::new(Loopback::default());
        let weak: Weak<Loopback> = Arc::downgrade(&edge);
        let drills = Drills::new(weak);
        let start = |link: &str| {
            let milliseconds = Some(60_000);
            drills.answer(link, &DrillOrder::Start(DrillWish { milliseconds }))
        };
        let refused = |response| match response {
            Response::Refused(refused) => refused.code,
            Response::Document(document) => panic!("{document}"),
        };
        assert_eq!(refused(start("nobody")), "no_such_link");
        let Response::Document(run) = start("lte") else {
            panic!("nothing runs");
        };
        assert_eq!(run["state"], "waiting");
        assert_eq!(refused(start("lte")), "drill_runs");

        let deadline = Instant::now() + Duration::from_secs(20);
        while edge.0.lock().unwrap().last() != Some(&0) {
            assert!(Instant::now() < deadline, "it is lost still");
            thread::sleep(Duration::from_millis(50));
        }
        assert!(edge.0.lock().unwrap().len() > 3, "it was lost for a while");
        while lock(&drills.last).run.state != DrillState::Done {
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(50));
        }
        let found = lock(&drills.last).run.result.clone().unwrap();
        assert!(found.interrupted && found.survived, "{found:?}");
    }
}
