//! The messages of a load, each sent once or never, and the repairs beside them if they are
//! protected.

use std::time::Instant;

use sennit_fec::Fec;

use super::{
    super::{
        fec::{FecChoice, Symbols},
        stack::Stack,
    },
    Id, Load, Member,
    message::Head,
    protection::{Brought, Receiving, Sending},
};

impl Load {
    /// A connection begins to send.
    pub(super) fn begin_messages(&mut self, id: Id, counts: bool, now: Instant) {
        self.roomy.insert(id);
        let protects = self.fec != Fec::Off;
        if let Some(member) = self.members.get_mut(&id) {
            let sending = || Box::new(Sending::new(self.fec, counts, now));
            member.sending = protects.then(sending);
        }
    }

    pub(super) fn fill_with_messages(&mut self, quic: &mut dyn Stack, now: Instant) {
        while let Some(id) = self.roomy.pop_first() {
            while self.send_message(id, quic, now) {}
        }
    }

    /// Whether a connection had room, from the one whose turn it is on.
    pub(super) fn send_message_somewhere(
        &mut self,
        turn: usize,
        quic: &mut dyn Stack,
        now: Instant,
    ) -> bool {
        let count = self.run.as_ref().map_or(0, |run| run.begun.len());
        (turn..turn + count).any(|turn| {
            let id = self.run.as_ref().map(|run| run.begun[turn % count]);
            id.is_some_and(|id| self.send_message(id, quic, now))
        })
    }

    /// Whether there was room. A message says when it leaves, so no more is handed over than leaves
    /// soon.
    fn send_message(&mut self, id: Id, quic: &mut dyn Stack, now: Instant) -> bool {
        let (Some(run), Some(member)) = (&self.run, self.members.get_mut(&id)) else {
            return false;
        };
        let bytes = usize::from(self.plan.message_bytes.unwrap_or_default());
        let head = Head {
            counts: run.counts,
            number: member.messages,
            sent: now.saturating_duration_since(run.start),
        };
        let message = head.message(bytes);
        if let Some(sending) = &mut member.sending
            && let Some(all) = sending.looks_at(now)
            && let Some(outlook) = quic.outlook(id, all, now)
        {
            sending.look(outlook, now);
        }
        let mut send = |datagram| quic.send_datagram_soon(id, datagram);
        let sent = match &mut member.sending {
            Some(sending) => sending.send(&message, run.counts, now, send),
            None => send(message),
        };
        member.messages += u64::from(sent && run.counts);
        sent
    }

    // ---- repairs -------------------------------------------------------------------------------

    /// When messages that are not protected yet have waited long enough.
    pub(super) fn protects_at(&self) -> Option<Instant> {
        if self.fec == Fec::Off {
            return None;
        }
        let members = self.members.values();
        let due = members.filter_map(|member| member.sending.as_ref()?.poll_timeout());
        due.min()
    }

    /// Sends repairs of what has waited long enough, and those that had found no room.
    pub(super) fn send_repairs(&mut self, quic: &mut dyn Stack, now: Instant) {
        if self.fec == Fec::Off {
            return;
        }
        let refills = self.plan.rate_bits_per_second.is_none();
        for (&id, member) in &mut self.members {
            let Some(sending) = &mut member.sending else {
                continue;
            };
            sending.handle_timeout(now);
            let mut send = |repair| quic.send_datagram_soon(id, repair);
            // Room that is found here is not announced any more.
            if sending.has_due() && sending.flush(&mut send) && refills {
                self.roomy.insert(id);
            }
        }
    }

    /// Nothing more is sent but the repairs of what was.
    pub(super) fn close_groups(&mut self, quic: &mut dyn Stack) {
        for (&id, member) in &mut self.members {
            if let Some(sending) = &mut member.sending {
                sending.close();
                sending.flush(&mut |repair| quic.send_datagram(id, repair));
            }
        }
    }

    // ---- what arrives --------------------------------------------------------------------------

    /// A datagram that nobody planned counts nowhere.
    pub(super) fn handle_message(
        &mut self,
        quic: &mut dyn Stack,
        id: Id,
        datagram: &[u8],
        arrived: Instant,
    ) {
        let (Some(run), Some(member)) = (&mut self.run, self.members.get_mut(&id)) else {
            return;
        };
        let Some(planned) = self.plan.message_bytes else {
            return;
        };
        let sending = member.sending.as_mut();
        if sending.is_some_and(|it| it.hear(datagram)) {
            return;
        }
        let (brought, bytes) = match self.fec {
            Fec::Off => (Brought::bare(datagram), datagram.len()),
            Fec::Fixed(_) | Fec::Auto => {
                let bytes = usize::from(planned);
                let new = || Box::new(Receiving::new(bytes));
                let receiving = member.receiving.get_or_insert_with(new);
                let brought = receiving.handle(datagram);
                if self.fec == Fec::Auto
                    && let Some(tidings) = receiving.tidings(arrived)
                {
                    quic.send_datagram(id, tidings);
                }
                (brought, bytes)
            }
        };
        if let Some(head) = brought.arrived.filter(|head| head.counts) {
            let since = arrived.saturating_duration_since(run.start);
            let arrivals = member.arrivals.get_or_insert_default();
            arrivals.note(head.number, bytes, head.sent, since);
        }
        run.tally.note((id, None), bytes * brought.new, arrived);
    }

    // ---- what it comes to ----------------------------------------------------------------------

    /// Messages that left this end so far.
    pub(in super::super) fn messages(&self, quic: &mut dyn Stack) -> u64 {
        let of_each = self.members.iter().map(|(&id, member)| {
            let [waiting, _] = self.waiting(quic, id, member);
            member.messages.saturating_sub(waiting)
        });
        of_each.sum()
    }

    /// Messages and repairs of a connection that were handed over and have not left.
    fn waiting(&self, quic: &mut dyn Stack, id: Id, member: &Member) -> [u64; 2] {
        let bytes = usize::from(self.plan.message_bytes.unwrap_or_default());
        let mut waiting = |bytes| quic.datagrams_waiting(id, bytes) as u64;
        match &member.sending {
            Some(sending) => sending.shares(waiting(bytes + sending.head())),
            None => [waiting(bytes), 0],
        }
    }

    /// What `auto` chose last for each connection on which this end sends.
    pub(super) fn choices(&self) -> Vec<FecChoice> {
        let members = self.members.values();
        let choices = members.filter_map(|member| member.sending.as_ref()?.choice());
        choices.collect()
    }

    /// What error correction has done at this end so far.
    pub(in super::super) fn symbols(&self) -> Symbols {
        let of_each = |member: &Member| {
            let sending = member.sending.as_ref().map(|it| it.symbols());
            let receiving = member.receiving.as_ref().map(|it| it.symbols());
            sending.unwrap_or_default() + receiving.unwrap_or_default()
        };
        self.members.values().map(of_each).sum()
    }

    /// What it did, now that nothing more will arrive.
    pub(super) fn symbols_at_end(&self, quic: &mut dyn Stack) -> Symbols {
        let mut symbols = self.symbols();
        if self.fec == Fec::Off {
            return symbols;
        }
        for (&id, member) in &self.members {
            let [messages, repairs] = self.waiting(quic, id, member);
            let protects = member.sending.as_ref().is_some_and(|it| it.head() > 0);
            let sources = if protects { messages } else { 0 };
            symbols.sources_sent = symbols.sources_sent.saturating_sub(sources);
            symbols.repairs_sent = symbols.repairs_sent.saturating_sub(repairs);
            symbols.failed += member.receiving.as_ref().map_or(0, |it| it.unsolved());
        }
        symbols
    }
}
