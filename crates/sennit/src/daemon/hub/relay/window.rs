//! What the thread is told, and the end that a worker has of it.

use std::{collections::BTreeMap, net::SocketAddr};

use bytes::Bytes;
use sennit_engine::{Credential, RequestId};

use crate::{
    config::ConnectUdp,
    daemon::{
        hub::registrar::targets::Policy,
        mailbox::{Hatch, Mailbox, Slot},
    },
    reach::Reach,
};

/// Payloads that a box has room for: as many as some turns of a worker bring.
pub(super) const ROOM: usize = 1024;

/// What the thread is to do.
#[derive(Debug)]
pub(crate) enum Order {
    Open(Opening),
    /// The client is done with a flow.
    Close {
        worker: usize,
        request: RequestId,
    },
    /// What was granted to this is over.
    Expel(Credential),
    /// What holds from now on; if nothing does, nothing is proxied.
    Change(Option<Box<Terms>>),
}

/// By what all flows are judged, those that there are too.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) udp: ConnectUdp,
    /// Of clients of which nothing else is said.
    pub(crate) usual: Policy,
    /// What some clients may reach instead, by name.
    pub(crate) reaches: BTreeMap<String, Reach>,
}

impl Terms {
    /// Whether a client may go on with a flow to that target.
    pub(in crate::daemon::hub) fn allow(&self, client: &str, target: SocketAddr) -> bool {
        let reach = self.reaches.get(client).unwrap_or(&self.usual.client);
        self.usual.allows(reach, target)
    }
}

/// A flow that was granted.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) worker: usize,
    pub(crate) request: RequestId,
    /// Whose flow it is.
    pub(crate) site: String,
    pub(crate) credential: Credential,
    /// Where the target may be, best first; all are allowed.
    pub(crate) targets: Vec<SocketAddr>,
}

/// A payload and its flow.
pub(in crate::daemon::hub) type Payload = (RequestId, Bytes);

/// A worker's end.
#[derive(Debug)]
pub(in crate::daemon) struct Window {
    pub(super) worker: usize,
    pub(super) orders: Slot<Order>,
    pub(super) outbox: Hatch<Payload>,
    pub(super) inbox: Mailbox<Payload>,
    /// Whether something is left in the outbox that the thread was not told of.
    pub(super) untold: bool,
}

impl Window {
    /// Leaves a payload for a target, or drops it.
    pub(in crate::daemon::hub) fn leave(&mut self, request: RequestId, payload: Bytes) {
        self.untold |= self.outbox.leave((request, payload));
    }

    /// Ends a turn.
    pub(in crate::daemon::hub) fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.outbox.wake();
        }
    }

    pub(in crate::daemon::hub) fn close(&self, request: RequestId) {
        let worker = self.worker;
        self.orders.post(Order::Close { worker, request });
    }

    /// What came from targets: no more than one box full at once.
    pub(in crate::daemon::hub) fn take(&self) -> Vec<Payload> {
        self.inbox.acknowledge();
        let next = || self.inbox.next();
        let payloads: Vec<Payload> = std::iter::from_fn(next).take(ROOM).collect();
        if payloads.len() == ROOM {
            self.inbox.put_off();
        }
        payloads
    }
}
