//! Packets that repairs protect, and what the far end says of them.

use std::time::Duration;

use super::Header;

/// Numbers a packet as a [`Header`] does, and as a source of repairs as well. It is as long: the
/// clock is given in fewer bits, which the receiver completes from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceHeader {
    /// Number of the packet among all sources; wraps.
    pub id: u16,
    /// The packet has a partial checksum.
    pub partial: bool,
    /// The packet's own number. [`Header::early`] is in steps of 4 ms here, and at most 252 ms;
    /// [`Header::sent_micros`] in steps of 64 µs, and wraps after 4.2 s.
    pub header: Header,
}

/// What of a source is protected in front of its packet: what is not when it left.
pub type SourceHead = [u8; 6];

impl SourceHeader {
    /// Bytes on the wire.
    pub const LEN: usize = Header::LEN;
    const ORDERED: u8 = 1 << 7;
    const PARTIAL: u8 = 1 << 6;
    const EARLY: u8 = Self::PARTIAL - 1;
    const EARLY_STEP_MS: u128 = 4;
    const CLOCK_STEP: u32 = 64;

    fn flags(&self) -> u8 {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        bit(self.header.ordered, Self::ORDERED) | bit(self.partial, Self::PARTIAL)
    }

    /// The bytes of this header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let steps = self.header.early.as_millis().div_ceil(Self::EARLY_STEP_MS);
        let early = steps.min(Self::EARLY.into()) as u8;
        let clock = (self.header.sent_micros / Self::CLOCK_STEP) as u16;
        let mut out = [0; Self::LEN];
        out[..2].copy_from_slice(&self.id.to_be_bytes());
        out[2..8].copy_from_slice(&self.head());
        out[2] |= early;
        out[8..].copy_from_slice(&clock.to_be_bytes());
        out
    }

    /// Splits a payload into its header and the IP packet; `None` if it is too short. `near` is
    /// what the sender's clock should have been, within two seconds.
    pub fn decode(payload: &[u8], near: u32) -> Option<(Self, &[u8])> {
        let (head, packet) = payload.split_first_chunk::<{ Self::LEN }>()?;
        let [i0, i1, head @ .., t0, t1] = *head;
        let (mut header, partial) = Self::of_head(head);
        let early = u64::from(head[0] & Self::EARLY) * Self::EARLY_STEP_MS as u64;
        header.early = Duration::from_millis(early);
        let clock = u16::from_be_bytes([t0, t1]);
        let ahead = clock.wrapping_sub((near / Self::CLOCK_STEP) as u16) as i16;
        let steps = (near / Self::CLOCK_STEP).wrapping_add_signed(ahead.into());
        header.sent_micros = steps.wrapping_mul(Self::CLOCK_STEP);
        let id = u16::from_be_bytes([i0, i1]);
        Some((
            Self {
                id,
                partial,
                header,
            },
            packet,
        ))
    }

    /// What is protected of it.
    pub fn head(&self) -> SourceHead {
        let [s0, s1, s2, s3] = self.header.seq.to_be_bytes();
        [self.flags(), self.header.flow, s0, s1, s2, s3]
    }

    /// The header of a packet that was lost and came back with this head, and whether its checksum
    /// is partial. When it left is not known.
    pub fn of_head([flags, flow, s0, s1, s2, s3]: SourceHead) -> (Header, bool) {
        let header = Header {
            flow,
            ordered: flags & Self::ORDERED != 0,
            early: Duration::ZERO,
            seq: u32::from_be_bytes([s0, s1, s2, s3]),
            sent_micros: 0,
        };
        (header, flags & Self::PARTIAL != 0)
    }
}

/// What the receiver of sources tells their sender: how many came and came back since the
/// connection began, and which ones came back of late, so that they are not sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidings {
    /// Sources that arrived.
    pub sources: u32,
    /// Repairs that arrived.
    pub repairs: u32,
    /// Sources that repairs brought back.
    pub recovered: u32,
    /// Sources that neither arrived nor came back.
    pub lost: u32,
    /// Numbers of sources that just came back.
    pub back: Vec<u16>,
}

impl Tidings {
    /// No repair begins with it.
    const MARK: u8 = 0xff;
    const FIXED: usize = 1 + 4 * 4;
    /// Numbers that are told at once, at most.
    pub const MOST: usize = 64;

    /// Appends the bytes of these tidings, which leave out numbers beyond [`Self::MOST`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::MARK);
        for count in [self.sources, self.repairs, self.recovered, self.lost] {
            out.extend_from_slice(&count.to_be_bytes());
        }
        for id in self.back.iter().take(Self::MOST) {
            out.extend_from_slice(&id.to_be_bytes());
        }
    }

    /// Whether this payload is meant to be one.
    pub fn is_meant(payload: &[u8]) -> bool {
        payload.first() == Some(&Self::MARK)
    }

    /// Reads tidings; `None` if they are malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (fixed, ids) = payload.split_first_chunk::<{ Self::FIXED }>()?;
        let (ids, rest) = ids.as_chunks::<2>();
        if fixed[0] != Self::MARK || !rest.is_empty() || ids.len() > Self::MOST {
            return None;
        }
        let count = |index: usize| {
            let bytes = fixed[1..].as_chunks::<4>().0[index];
            u32::from_be_bytes(bytes)
        };
        Some(Self {
            sources: count(0),
            repairs: count(1),
            recovered: count(2),
            lost: count(3),
            back: ids.iter().map(|id| u16::from_be_bytes(*id)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(sent_micros: u32) -> SourceHeader {
        SourceHeader {
            id: 0xfffe,
            partial: true,
            header: Header {
                flow: 200,
                ordered: true,
                early: Duration::from_millis(16),
                seq: u32::MAX,
                sent_micros,
            },
        }
    }

    #[test]
    fn a_source_survives_the_wire_with_the_clock_of_its_time() {
        for sent in [0, 64, u32::MAX - 63, 77 << 16, 123_456 * 64] {
            for apart in [0, 2_000_000, 0_u32.wrapping_sub(2_000_000)] {
                let wire = [&source(sent).encode()[..], b"packet"].concat();
                let near = sent.wrapping_add(apart);
                let (found, packet) = SourceHeader::decode(&wire, near).unwrap();
                // The clock of the wire wraps where 64 µs do not end evenly in 32 bits.
                assert_eq!(
                    (found, packet),
                    (source(sent), &b"packet"[..]),
                    "{sent} {apart}"
                );
            }
        }
        assert_eq!(SourceHeader::decode(&[0; 9], 0), None);
    }

    #[test]
    fn a_clock_comes_back_exactly_if_it_is_within_half_a_wrap_of_what_it_should_be() {
        for near in [0, 63, 64, 1 << 21, 1 << 22, 1 << 31, u32::MAX] {
            for ahead in -(1 << 16)..1 << 16 {
                let sent = (near / 64).wrapping_add_signed(ahead).wrapping_mul(64);
                let wire = source(sent).encode();
                let (found, _) = SourceHeader::decode(&wire, near).unwrap();
                let is_near = (-(1 << 15)..1 << 15).contains(&ahead);
                assert_eq!(found == source(sent), is_near, "{near} {ahead}");
            }
        }
    }

    #[test]
    fn every_clock_within_two_seconds_comes_back_to_64_microseconds() {
        for near in [0, u32::MAX] {
            for apart in -2_000_000..=2_000_000 {
                let sent = near.wrapping_add_signed(apart);
                let wire = source(sent).encode();
                let (found, _) = SourceHeader::decode(&wire, near).unwrap();
                assert_eq!(found.header.sent_micros, sent / 64 * 64, "{near} {apart}");
            }
        }
    }

    #[test]
    fn what_comes_back_has_all_but_its_time() {
        let (header, partial) = SourceHeader::of_head(source(5).head());
        assert!(partial && header.ordered);
        assert_eq!((header.flow, header.seq), (200, u32::MAX));
    }

    #[test]
    fn tidings_survive_the_wire_and_bad_ones_are_refused() {
        let tidings = Tidings {
            sources: 1,
            repairs: 2,
            recovered: 3,
            lost: u32::MAX,
            back: vec![7, 0xffff],
        };
        let mut wire = Vec::new();
        tidings.encode(&mut wire);
        assert!(Tidings::is_meant(&wire));
        assert_eq!(Tidings::decode(&wire), Some(tidings.clone()));
        assert_eq!(Tidings::decode(&wire[..18]), None);
        assert_eq!(Tidings::decode(&wire[..16]), None);
        assert_eq!(Tidings::decode(&[0xff; 17 + 130]), None);
        let many = Tidings {
            back: (0..100).collect(),
            ..tidings
        };
        wire.clear();
        many.encode(&mut wire);
        assert_eq!(Tidings::decode(&wire).unwrap().back.len(), Tidings::MOST);
    }
}
