//! Speed tests: what a client asks a server for, and numbered messages of anybody.

use std::time::Duration;

use sennit::loadtest::{Plan, server::Options, stack::StackName};
use sennit_load::Arrivals;

use crate::input::Input;

/// The longest test that the server allows.
const MOST: Duration = Duration::from_secs(300);
/// Its connections and streams, at most.
const CONNECTIONS: u16 = 1024;
const STREAMS: u16 = 256;

/// A plan, as JSON: what a server allows it can carry out.
pub fn plan(data: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(data) else {
        return;
    };
    let line = serde_json::to_vec(&plan).expect("a plan becomes JSON");
    assert!(serde_json::from_slice::<Plan>(&line).is_ok());
    let server = Options {
        listen: None,
        token: None,
        most_seconds: MOST,
        most_rate: None,
        most_clients: 4,
        perf: false,
        stack: StackName::Sennit,
    };
    if let Err(reason) = server.allow(&plan) {
        assert!(!reason.is_empty());
        return;
    }
    for seconds in [plan.seconds + plan.warmup_seconds, plan.ramp_seconds] {
        assert!(Duration::try_from_secs_f64(seconds).is_ok_and(|span| span <= MOST));
    }
    assert!((1..=CONNECTIONS).contains(&plan.connections) && plan.streams <= STREAMS);
    let bytes = plan.message_bytes.unwrap_or(*Plan::MESSAGE_BYTES.start());
    assert!(Plan::MESSAGE_BYTES.contains(&bytes) && !plan.has_too_many_messages());
}

/// Messages with numbers and times of somebody's choice. Script: per message how its number is made
/// (1; 0: the next, 1: some before or after, else any of eight bytes), then that, its length (2)
/// and the times of sender and receiver in nanoseconds (8 each).
pub fn arrivals(data: &[u8]) {
    let mut input = Input::new(data);
    let mut arrivals = Arrivals::default();
    let (mut last, mut count) = (0_u64, 0);
    while !input.is_empty() {
        last = match input.byte() % 3 {
            0 => last.wrapping_add(1),
            1 => last
                .wrapping_add(u64::from(input.u16()))
                .wrapping_sub(1 << 15),
            _ => u64::from_be_bytes(input.array()),
        };
        let bytes = usize::from(input.u16());
        let [sent, arrived] =
            [(); 2].map(|()| Duration::from_nanos(u64::from_be_bytes(input.array())));
        arrivals.note(last, bytes, sent, arrived);
        count += 1;
    }
    for sent in [None, Some(0), Some(count), Some(u64::MAX)] {
        let figures = arrivals.figures(sent);
        assert!(figures.received <= count && figures.reordered <= count);
        assert!((0.0..=1.0).contains(&figures.loss_ratio), "{figures:?}");
        assert!(serde_json::to_vec(&figures).is_ok());
    }
    assert!(arrivals.received() + arrivals.figures(None).duplicates <= count);
}
