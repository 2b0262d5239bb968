//! What stands before thin packets, and how the template is told that they are restored with.

use std::time::Duration;

use sennit_packet::thin::{Pace, Template, widen};

use super::Header;

/// Bits that are left of a sequence number, and how far behind the newest one it may be.
const SEQ_BITS: u32 = 23;
const SEQ_BEHIND: u32 = 1 << 22;
/// Bits that are left of the time of sending, in microseconds, and how late a packet may be: 12 of
/// the 16.7 seconds after which they repeat.
const TIME_BITS: u32 = 24;
const TIME_BEHIND: u32 = 12_000_000;

/// A [`Header`] without what both ends know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinHeader {
    /// The flow, as in [`Header`]; it has one template.
    pub flow: u8,
    /// Which of the flow's last two templates is meant: that of an odd edition.
    pub odd: bool,
    ordered: bool,
    early: Duration,
    seq: u32,
    time: u32,
}

impl ThinHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    const ODD: u32 = 1 << SEQ_BITS;

    /// The bytes that stand for `header`.
    pub fn encode(header: &Header, odd: bool) -> [u8; Self::LEN] {
        let whole = header.encode();
        let edition = if odd { Self::ODD } else { 0 };
        let [_, s0, s1, s2] = (header.seq & (Self::ODD - 1) | edition).to_be_bytes();
        let [order, flow, _, _, _, _, _, t0, t1, t2] = whole;
        [order, flow, s0, s1, s2, t0, t1, t2]
    }

    /// Splits a payload into this and the thin packet; `None` if it is too short.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (&[order, flow, s0, s1, s2, t0, t1, t2], rest) = payload.split_first_chunk()?;
        let number = u32::from_be_bytes([0, s0, s1, s2]);
        let (order, _) = Header::decode(&[order, flow, 0, 0, 0, 0, 0, 0, 0, 0])?;
        let header = Self {
            flow,
            odd: number & Self::ODD != 0,
            ordered: order.ordered,
            early: order.early,
            seq: number & (Self::ODD - 1),
            time: u32::from_be_bytes([0, t0, t1, t2]),
        };
        Some((header, rest))
    }

    /// The header that this stands for: near to the flow's newest number, and to the time that the
    /// sender's clock shows.
    pub fn header(&self, newest: u32, clock: u32) -> Header {
        Header {
            flow: self.flow,
            ordered: self.ordered,
            early: self.early,
            seq: widen(self.seq, SEQ_BITS, newest.wrapping_sub(SEQ_BEHIND)),
            sent_micros: widen(self.time, TIME_BITS, clock.wrapping_sub(TIME_BEHIND)),
        }
    }

    /// As [`Header::redate`].
    ///
    /// # Panics
    /// If `payload` does not start with a thin header.
    pub fn redate(payload: &mut [u8], sent_micros: u32) {
        payload[0] &= Header::ORDERED;
        payload[5..Self::LEN].copy_from_slice(&sent_micros.to_be_bytes()[1..]);
    }
}

/// Tells the other end of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The header of the packet that the template was taken from.
    pub header: Header,
    /// Counts the templates of the flow; wraps.
    pub edition: u8,
    /// The template.
    pub template: Template,
}

impl Offer {
    const COUNTS_ID: u8 = 1;
    const RTP: u8 = 1 << 1;

    /// Appends this.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Pace { counts_id, rtp } = self.template.pace();
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let flags = bit(counts_id, Self::COUNTS_ID) | bit(rtp.is_some(), Self::RTP);
        out.extend_from_slice(&self.header.encode());
        out.extend_from_slice(&[self.edition, flags]);
        if let Some(stride) = rtp {
            out.extend_from_slice(&stride.to_be_bytes());
        }
        out.extend_from_slice(self.template.headers());
    }

    /// Reads one; `None` if it is cut short, a flag is set that nobody knows, or no template has
    /// such headers.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (header, rest) = Header::decode(payload)?;
        let (&[edition, flags], mut headers) = rest.split_first_chunk()?;
        let mut rtp = None;
        if flags & Self::RTP != 0 {
            let (&stride, rest) = headers.split_first_chunk()?;
            (rtp, headers) = (Some(u16::from_be_bytes(stride)), rest);
        }
        let pace = Pace {
            counts_id: flags & Self::COUNTS_ID != 0,
            rtp,
        };
        let known = flags & !(Self::COUNTS_ID | Self::RTP) == 0;
        let template = Template::parse(headers, header.seq, pace).filter(|_| known)?;
        Some(Self {
            header,
            edition,
            template,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn header() -> Header {
        Header {
            flow: 9,
            ordered: true,
            early: Duration::from_millis(6),
            seq: 5,
            sent_micros: 3,
        }
    }

    #[test]
    fn a_thin_header_is_known_from_what_came_before() {
        let wire = ThinHeader::encode(&header(), true);
        let (thin, rest) = ThinHeader::decode(&wire).unwrap();
        assert!(thin.odd && rest.is_empty());
        // Shortly after numbers and clock have wrapped, and as soon as both are ahead of it.
        assert_eq!(thin.header(u32::MAX - 1000, u32::MAX - 4_000_000), header());
        assert_eq!(thin.header(4_000_000, 11_000_000), header());
        assert_eq!(ThinHeader::decode(&wire[1..]), None);
        let mut again = wire;
        ThinHeader::redate(&mut again, 70_000);
        let (again, _) = ThinHeader::decode(&again).unwrap();
        let expected = Header {
            early: Duration::ZERO,
            sent_micros: 70_000,
            ..header()
        };
        assert_eq!(again.header(5, 70_001), expected);
    }

    /// Where low bits wrap, those of what is sent short and others, and the last number.
    const WRAPS: [u32; 6] = [0, 1 << 22, 1 << 23, 1 << 24, 1 << 31, u32::MAX];

    /// Whether a header comes back from its thin form where these are known.
    fn is_restored(header: &Header, newest: u32, clock: u32) -> bool {
        let wire = ThinHeader::encode(header, false);
        let (thin, _) = ThinHeader::decode(&wire).unwrap();
        thin.header(newest, clock) == *header
    }

    /// What is sent short comes back exactly if it is in this window about what is known: at every
    /// distance from one number, and about both ends of the window from those where numbers wrap.
    fn assert_window(window: &Range<i32>, is_back: impl Fn(u32, u32) -> bool) {
        let check = |known: u32, ahead: i32| {
            let number = known.wrapping_add_signed(ahead);
            let is_near = window.contains(&ahead);
            assert_eq!(is_back(number, known), is_near, "{known} {ahead}");
        };
        let Range { start, end } = *window;
        let len = end - start;
        for ahead in start - len / 2..end + len / 2 {
            check(77, ahead);
        }
        let near = |at: u32| [-2, -1, 0, 1, 2].map(|by| at.wrapping_add_signed(by));
        for known in WRAPS.into_iter().flat_map(near) {
            for at in [start - len, start, 0, end, end + len] {
                (at - 300..at + 300).for_each(|ahead| check(known, ahead));
            }
        }
    }

    #[test]
    fn a_number_comes_back_exactly_if_it_is_one_of_2_to_the_23_about_the_newest() {
        assert_window(&(-(1 << 22)..1 << 22), |seq, newest| {
            is_restored(&Header { seq, ..header() }, newest, 3)
        });
    }

    #[test]
    fn a_time_comes_back_exactly_if_it_is_at_most_12_s_old_or_ahead_by_the_rest_of_24_bits() {
        let window = -12_000_000..(1 << 24) - 12_000_000;
        assert_window(&window, |sent_micros, clock| {
            let header = Header {
                sent_micros,
                ..header()
            };
            is_restored(&header, 5, clock)
        });
    }

    #[test]
    fn an_offer_survives_the_wire_and_bad_ones_are_refused() {
        let mut headers = [0; 40];
        (headers[0], headers[9], headers[32]) = (0x45, 6, 5 << 4);
        for rtp in [None, Some(160)] {
            let pace = Pace {
                counts_id: true,
                rtp,
            };
            let offer = Offer {
                header: header(),
                edition: 200,
                template: Template::parse(&headers, 5, pace).unwrap(),
            };
            let mut wire = Vec::new();
            offer.encode(&mut wire);
            assert_eq!(Offer::decode(&wire), Some(offer));
            for cut in 0..wire.len() {
                assert_eq!(Offer::decode(&wire[..cut]), None);
            }
            wire[11] |= 4;
            assert_eq!(Offer::decode(&wire), None);
        }
    }
}
