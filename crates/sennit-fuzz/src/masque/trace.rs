//! What an HTTP/3 connection said, in a form that does not depend on how streams were cut.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use sennit_masque::{Connection, Event, MAX_BODY, Output, RequestHead, ResponseHead, StreamId};

use super::script::{Op, Side};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trace {
    outputs: Vec<Output>,
    /// Content of a stream is joined, and left out if the stream failed: how much of it comes
    /// before an error depends on the pieces.
    events: Vec<Event>,
    closed: bool,
}

impl Trace {
    pub(super) fn record(side: Side, ops: &[Op<'_>], piece: usize) -> Self {
        let mut http = match side {
            Side::Client => Connection::client(),
            Side::Server => Connection::server(),
        };
        let (mut outputs, mut events) = (Vec::new(), Vec::new());
        for op in ops {
            op.apply(side, &mut http, piece);
            outputs.extend(std::iter::from_fn(|| http.poll_output()));
            events.extend(std::iter::from_fn(|| http.poll_event()));
        }
        Self {
            outputs,
            events: normal(events),
            closed: http.is_closed(),
        }
    }

    pub(super) fn check(&self, side: Side) {
        self.check_outputs();
        self.check_order(side);
        self.events.iter().for_each(check_event);
    }

    /// RFC 9000 §3.1: nothing follows the end of a stream, or the connection's.
    fn check_outputs(&self) {
        let (mut ended, mut stopped) = (BTreeSet::new(), BTreeSet::new());
        for output in &self.outputs {
            let is_fresh = match *output {
                Output::Control(_) | Output::Close { .. } => true,
                Output::Send { stream, fin, .. } => {
                    !ended.contains(&stream) && (!fin || ended.insert(stream))
                }
                Output::ResetStream { stream, .. } => ended.insert(stream),
                Output::StopSending { stream, .. } => stopped.insert(stream),
            };
            assert!(is_fresh, "{output:?} in {:?}", self.outputs);
        }
        let is_close = |output: &Output| matches!(output, Output::Close { .. });
        let close = self.outputs.iter().position(is_close);
        assert_eq!(close.is_some(), self.closed);
        assert!(close.is_none_or(|at| at + 1 == self.outputs.len()));
    }

    /// Every stream begins with a head and says nothing after its end.
    fn check_order(&self, side: Side) {
        let (mut begun, mut finished) = (BTreeSet::new(), BTreeSet::new());
        let mut gone = BTreeSet::new();
        for event in &self.events {
            let Some(stream) = stream_of(event) else {
                continue;
            };
            assert!(!gone.contains(&stream), "{event:?} in {:?}", self.events);
            let is_open = begun.contains(&stream) && !finished.contains(&stream);
            let is_legal = match event {
                Event::Request { .. } => side == Side::Server && begun.insert(stream),
                Event::Response { .. } => side == Side::Client && begun.insert(stream),
                Event::Data { .. } | Event::Capsule { .. } => is_open,
                Event::Finished { .. } => is_open && finished.insert(stream),
                Event::Reset { .. } => !finished.contains(&stream) && gone.insert(stream),
                Event::Failed { .. } => gone.insert(stream),
                Event::Stopped { .. } | Event::Settings(_) | Event::GoAway => true,
            };
            assert!(is_legal, "{event:?} in {:?}", self.events);
        }
    }
}

/// Heads and capsules are such as we would send ourselves.
fn check_event(event: &Event) {
    match event {
        Event::Request { head, .. } => {
            assert_eq!(RequestHead::parse(head.to_lines()).as_ref(), Ok(head));
        }
        Event::Response { head, .. } => {
            assert_eq!(ResponseHead::parse(head.to_lines()).as_ref(), Ok(head));
            assert!(!head.is_interim());
        }
        Event::Capsule { capsule, .. } => {
            assert_eq!(capsule.encode(&mut BytesMut::new()), Ok(()));
        }
        Event::Data { bytes, .. } => assert!(!bytes.is_empty() && bytes.len() as u64 <= MAX_BODY),
        Event::Settings(_)
        | Event::Finished { .. }
        | Event::Reset { .. }
        | Event::Stopped { .. }
        | Event::Failed { .. }
        | Event::GoAway => {}
    }
}

fn stream_of(event: &Event) -> Option<StreamId> {
    match *event {
        Event::Request { stream, .. }
        | Event::Response { stream, .. }
        | Event::Data { stream, .. }
        | Event::Capsule { stream, .. }
        | Event::Finished { stream }
        | Event::Reset { stream, .. }
        | Event::Stopped { stream, .. }
        | Event::Failed { stream, .. } => Some(stream),
        Event::Settings(_) | Event::GoAway => None,
    }
}

fn normal(events: Vec<Event>) -> Vec<Event> {
    let failed: BTreeSet<StreamId> = events
        .iter()
        .filter(|event| matches!(event, Event::Failed { .. }))
        .filter_map(stream_of)
        .collect();
    let mut normal: Vec<Event> = Vec::new();
    let mut content = BTreeMap::new();
    for event in events {
        let Event::Data { stream, bytes } = event else {
            normal.push(event);
            continue;
        };
        if failed.contains(&stream) {
            continue;
        }
        match content.get(&stream) {
            Some(&at) => append(&mut normal[at], &bytes),
            None => {
                content.insert(stream, normal.len());
                normal.push(Event::Data { stream, bytes });
            }
        }
    }
    normal
}

fn append(event: &mut Event, more: &[u8]) {
    if let Event::Data { bytes, .. } = event {
        *bytes = Bytes::from([&bytes[..], more].concat());
    }
}
