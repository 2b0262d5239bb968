//! Templates of the flows that this end sends.

use std::time::{Duration, Instant};

use sennit_core::{
    frame::{Header, Offer, ThinHeader},
    queue::FLOWS,
};
use sennit_packet::{
    IpPacket,
    checksum::Progress,
    thin::{Sight, Template, Thin},
};

use super::{is_odd, rush::Rush};

/// A flow gets its first template with this packet: shorter ones save less than the offer costs.
const FIRST_AFTER: u16 = 8;
/// It gets another one after so many packets that do not go as the last one says.
const NEXT_AFTER: u16 = 32;
/// Templates of one flow are not offered more often, nor than twice as seldom as the time before
/// if that one did not fit for long.
const OFFER_EVERY: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u8 = 6;
/// A template fitted for long that so many packets went by.
const FITTED: u16 = 256;
/// An offer that is not answered is repeated after this time, then after twice as much, and so on.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const TRIES: u8 = 5;
/// After that the flow is left alone for this long.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// A template is its flow's own while a packet used it within this time.
const OWNED_FOR: Duration = Duration::from_secs(2);

/// What the sender knows of all flows.
#[derive(Debug)]
pub(crate) struct Sending {
    flows: Vec<Flow>,
    /// Flows with an offer that is to leave now.
    due: Vec<u8>,
    rush: Rush,
    /// Under reliable delivery: when the oldest packet left that may be missing.
    unsettled: Option<Instant>,
}

#[derive(Debug)]
struct Flow {
    /// The edition that packets are made with, which the other end is known to have.
    current: Option<Box<Edition>>,
    /// The one of the other parity: it is offered, or was refused, or packets were made with it
    /// before. The next one takes its place, and never that of the current one.
    other: Option<Box<Edition>>,
    /// When a packet was last made with the current one.
    used: Option<Instant>,
    /// When the current one took the place of the other.
    swapped: Option<Instant>,
    /// Number of the next edition.
    next: u8,
    /// No template is offered before.
    next_at: Option<Instant>,
    /// Packets in a row, of one inner flow, that went without a template or not as it says.
    strays: u16,
    inner: u32,
    /// Packets that went as the template says, since it was offered.
    fitted: u16,
    /// How often in a row a template did not fit for long.
    doublings: u8,
    sight: Option<Sight>,
    newest: u32,
}

#[derive(Debug)]
struct Edition {
    template: Template,
    /// The inner flow that it was taken from.
    inner: u32,
    number: u8,
    offered: Instant,
    /// What says so to the other end, until that has answered, and how often it was sent.
    offer: Option<(Vec<u8>, u8)>,
    again: Instant,
}

/// A packet on its way out.
pub(crate) struct Outgoing<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) checksum: Progress,
    pub(crate) header: &'a Header,
    /// Hash of the inner flow.
    pub(crate) inner: u32,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            flows: std::iter::repeat_with(Flow::default).take(FLOWS).collect(),
            due: Vec::new(),
            rush: Rush::default(),
            unsettled: None,
        }
    }
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            current: None,
            other: None,
            used: None,
            swapped: None,
            next: 0,
            next_at: None,
            strays: 0,
            inner: 0,
            fitted: 0,
            doublings: 0,
            sight: None,
            newest: Header::FIRST,
        }
    }
}

impl Sending {
    /// The thin form of a packet, and its header; `None` if it travels whole.
    pub(crate) fn shrink(
        &mut self,
        out: &Outgoing<'_>,
        now: Instant,
    ) -> Option<([u8; ThinHeader::LEN], Thin)> {
        let flow = &mut self.flows[usize::from(out.header.flow)];
        flow.newest = out.header.seq;
        if self.rush.takes(out.packet.len(), now) {
            return None;
        }
        let thin = flow.shrink(out, now);
        let is_stray = thin.as_ref().is_none_or(|(_, thin)| thin.is_stale);
        if is_stray {
            let offers = flow.handle_stray(out, self.unsettled, now);
            if offers && !self.due.contains(&out.header.flow) {
                self.due.push(out.header.flow);
            }
        } else {
            flow.handle_fitting(out.inner);
        }
        let (number, thin) = thin?;
        Some((ThinHeader::encode(out.header, is_odd(number)), thin))
    }

    /// Whether an offer is to leave.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// An offer that is to leave now.
    pub(crate) fn poll_offer(&mut self, now: Instant) -> Option<&[u8]> {
        let index = self.due.pop()?;
        let flow = &mut self.flows[usize::from(index)];
        let edition = flow.other.as_mut()?;
        let (offer, tries) = edition.offer.as_mut()?;
        edition.again = now + AGAIN_AFTER * (1 << *tries);
        *tries += 1;
        Some(offer)
    }

    /// The other end has this template.
    pub(crate) fn handle_known(&mut self, flow: u8, number: u8, now: Instant) {
        let flow = &mut self.flows[usize::from(flow)];
        if let Some(edition) = flow.offered().filter(|it| it.number == number) {
            edition.offer = None;
            std::mem::swap(&mut flow.current, &mut flow.other);
            (flow.used, flow.swapped) = (Some(now), Some(now));
        }
    }

    /// The oldest packet that is sent again until it arrives left at this time: until it has
    /// arrived, no template is dropped that it may have been made with.
    pub(crate) fn settle(&mut self, oldest: Option<Instant>) {
        self.unsettled = oldest;
    }

    /// The whole form of a thin packet that was first sent at this time, with its header; the
    /// header alone if its template is gone. The time in it is that of `clock`.
    pub(crate) fn whole(
        &self,
        payload: &[u8],
        clock: u32,
        first_sent: Instant,
    ) -> Option<(Progress, Vec<u8>)> {
        let (thin, rest) = ThinHeader::decode(payload)?;
        let flow = &self.flows[usize::from(thin.flow)];
        let header = thin.header(flow.newest, clock);
        let packet = flow
            .edition_of(&thin, first_sent)
            .and_then(|edition| edition.template.expand(rest, header.seq));
        let Some(packet) = packet else {
            return Some((Progress::Whole, header.encode().to_vec()));
        };
        let whole = [&header.encode()[..], packet.head(), packet.payload].concat();
        Some((packet.checksum, whole))
    }

    /// Whether the other end can still restore a thin packet that was first sent at this time.
    pub(crate) fn is_known(&self, payload: &[u8], first_sent: Instant) -> bool {
        ThinHeader::decode(payload).is_some_and(|(thin, _)| {
            let flow = &self.flows[usize::from(thin.flow)];
            flow.edition_of(&thin, first_sent).is_some()
        })
    }
}

impl Flow {
    /// The thin form of a packet, and the number of the edition that it is made with.
    fn shrink(&mut self, out: &Outgoing<'_>, now: Instant) -> Option<(u8, Thin)> {
        let edition = self.current.as_ref()?;
        let thin = edition
            .template
            .shrink(out.packet, out.header.seq, out.checksum)?;
        self.used = Some(now);
        Some((edition.number, thin))
    }

    /// The edition that a thin packet was made with which first left at this time, if it is here.
    fn edition_of(&self, thin: &ThinHeader, first_sent: Instant) -> Option<&Edition> {
        let mut editions = [&self.current, &self.other].into_iter().flatten();
        let edition = editions.find(|edition| is_odd(edition.number) == thin.odd)?;
        // It was offered at least a round trip before, or the packet is of an older one.
        (edition.offered < first_sent).then_some(edition)
    }

    /// Whether a packet may be missing that was made with the edition before the current one.
    fn is_other_needed(&self, unsettled: Option<Instant>) -> bool {
        unsettled
            .zip(self.swapped)
            .is_some_and(|(oldest, swapped)| oldest <= swapped)
    }

    fn handle_fitting(&mut self, inner: u32) {
        self.fitted = self.fitted.saturating_add(1);
        if self.inner == inner {
            self.strays = 0;
        }
    }

    /// A packet went whole, or not as the template says; true if an offer is to leave.
    fn handle_stray(
        &mut self,
        out: &Outgoing<'_>,
        unsettled: Option<Instant>,
        now: Instant,
    ) -> bool {
        if self.is_offering() {
            return self.repeats_offer(now);
        }
        let is_early = self.next_at.is_some_and(|at| now < at) || self.is_other_needed(unsettled);
        if is_early || out.packet.is_empty() || self.is_owned_by_other(out.inner, now) {
            return false;
        }
        if self.inner != out.inner {
            (self.inner, self.strays) = (out.inner, 0);
        }
        self.strays += 1;
        let wanted = match self.current {
            Some(_) => NEXT_AFTER,
            None => FIRST_AFTER,
        };
        if self.strays + 1 < wanted {
            return false;
        }
        let Ok(packet) = IpPacket::parse(out.packet) else {
            return false;
        };
        let sight = Sight::of(&packet, out.header.seq);
        let earlier = self.sight.replace(sight);
        if self.strays < wanted {
            return false;
        }
        self.delay_next(now);
        let pace = earlier.map(|earlier| earlier.pace(&sight));
        let template = Template::of(&packet, out.header.seq, pace.unwrap_or_default());
        template.is_some_and(|template| self.offer(template, out, now))
    }

    /// Whether another inner flow uses the template.
    fn is_owned_by_other(&self, inner: u32, now: Instant) -> bool {
        let is_used = |at| now.saturating_duration_since(at) < OWNED_FOR;
        let owner = self.current.as_ref();
        owner.is_some_and(|owner| owner.inner != inner) && self.used.is_some_and(is_used)
    }

    /// Another template is offered now, and the next one not before some time.
    fn delay_next(&mut self, now: Instant) {
        self.doublings = if self.current.is_none() || self.fitted >= FITTED {
            0
        } else {
            MOST_DOUBLINGS.min(self.doublings + 1)
        };
        (self.strays, self.fitted) = (0, 0);
        self.next_at = Some(now + OFFER_EVERY * (1 << self.doublings));
    }

    fn offer(&mut self, template: Template, out: &Outgoing<'_>, now: Instant) -> bool {
        let number = self.take_number();
        let offer = Offer {
            header: *out.header,
            edition: number,
            template,
        };
        let mut bytes = Vec::new();
        offer.encode(&mut bytes);
        self.other = Some(Box::new(Edition {
            template: offer.template,
            inner: out.inner,
            number,
            offered: now,
            offer: Some((bytes, 0)),
            again: now,
        }));
        true
    }

    /// The number of another edition. The other end keeps one of each parity, so the next number
    /// is left out if the edition would take the place of the current one there.
    fn take_number(&mut self) -> u8 {
        let taken = self.current.as_ref().map(|it| is_odd(it.number));
        let mut number = self.next;
        if taken == Some(is_odd(number)) {
            number = number.wrapping_add(1);
        }
        self.next = number.wrapping_add(1);
        number
    }

    /// The edition that is not answered yet.
    fn offered(&mut self) -> Option<&mut Edition> {
        let other = self.other.as_deref_mut();
        other.filter(|edition| edition.offer.is_some())
    }

    fn is_offering(&mut self) -> bool {
        self.offered().is_some()
    }

    fn repeats_offer(&mut self, now: Instant) -> bool {
        let Some(edition) = self.offered() else {
            return false;
        };
        let tries = edition.offer.as_ref().map_or(0, |(_, tries)| *tries);
        // What has not left yet is due already.
        if now < edition.again || tries == 0 {
            return false;
        }
        if tries < TRIES {
            edition.again = now + AGAIN_AFTER;
            return true;
        }
        edition.offer = None;
        self.next_at = Some(now + REFUSED_FOR);
        false
    }
}
