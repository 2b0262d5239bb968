//! Control messages of `sendmsg(2)` and `recvmmsg(2)`, in the kernel's layout.

use std::net::IpAddr;

use noq_udp::EcnCodepoint;

/// Length of `struct cmsghdr`, which is also how far messages are aligned to.
const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;

/// Room for the ECN field, a segment size, and `struct in6_pktinfo`, each aligned.
const CAPACITY: usize = 3 * HEADER + 8 + 8 + 24;

/// A sequence of control messages.
#[derive(Debug)]
pub(super) struct Control {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }
}

impl Control {
    /// Code point and ECN field of TOS or traffic class for packets to `destination`.
    pub(super) fn push_tos(&mut self, destination: IpAddr, dscp: u8, ecn: Option<EcnCodepoint>) {
        let ecn = ecn.map_or(0, |ecn| ecn as libc::c_int);
        let value = (libc::c_int::from(dscp) << 2 | ecn).to_ne_bytes();
        match destination.to_canonical() {
            IpAddr::V4(_) => self.push(libc::IPPROTO_IP, libc::IP_TOS, &value),
            IpAddr::V6(_) => self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value),
        }
    }

    /// Cut the payload into datagrams of `size` bytes, the last one shorter.
    pub(super) fn push_segment_size(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }

    /// Send from `source`, an address of ours; the interface is left to routing.
    pub(super) fn push_source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(source) => {
                // struct in_pktinfo: interface index, source address, unused
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&source.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(source) => {
                // struct in6_pktinfo: source address, interface index
                let mut info = [0; 20];
                info[..16].copy_from_slice(&source.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, value: &[u8]) {
        let message = &mut self.bytes[self.len..];
        message[..WORD].copy_from_slice(&(HEADER + value.len()).to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..HEADER + value.len()].copy_from_slice(value);
        self.len += (HEADER + value.len()).next_multiple_of(WORD);
    }
}

/// The level, type and value of each message that was received.
pub(super) fn messages(
    mut bytes: &[u8],
) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let (len, kind) = header.split_first_chunk::<WORD>()?;
        let value = usize::from_ne_bytes(*len).checked_sub(HEADER)?;
        let value = rest.get(..value)?;
        bytes = rest
            .get(value.len().next_multiple_of(WORD)..)
            .unwrap_or(&[]);
        Some((int(kind)?, int(kind.get(4..)?)?, value))
    })
}

/// The `int` that `bytes` begin with.
pub(super) fn int(bytes: &[u8]) -> Option<libc::c_int> {
    bytes.first_chunk().copied().map(libc::c_int::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_sequence_fits_and_is_aligned() {
        let mut control = Control::default();
        control.push_tos("2001:db8::1".parse().unwrap(), 0, Some(EcnCodepoint::Ect0));
        control.push_segment_size(1200);
        control.push_source("2001:db8::2".parse().unwrap());

        assert_eq!(control.as_bytes().len(), CAPACITY);
        assert_eq!(CAPACITY % WORD, 0);
    }

    #[test]
    fn the_first_header_is_what_the_kernel_reads() {
        let mut control = Control::default();
        control.push_segment_size(1200);

        let bytes = control.as_bytes();
        assert_eq!(bytes[..WORD], (HEADER + 2).to_ne_bytes());
        assert_eq!(bytes[WORD..WORD + 4], libc::SOL_UDP.to_ne_bytes());
        assert_eq!(bytes[WORD + 4..HEADER], libc::UDP_SEGMENT.to_ne_bytes());
        assert_eq!(bytes[HEADER..HEADER + 2], 1200u16.to_ne_bytes());
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let mut control = Control::default();
        control.push_tos("2001:db8::1".parse().unwrap(), 46, Some(EcnCodepoint::Ce));
        control.push_segment_size(1200);
        control.push_source("2001:db8::2".parse().unwrap());

        let read: Vec<_> = messages(control.as_bytes()).collect();

        let ecn = (46_i32 << 2 | 3).to_ne_bytes();
        let size = 1200_u16.to_ne_bytes();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0], (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &ecn[..]));
        assert_eq!(read[1], (libc::SOL_UDP, libc::UDP_SEGMENT, &size[..]));
        assert_eq!(read[2].2.len(), 20);
    }

    #[test]
    fn a_message_that_is_cut_off_ends_the_list() {
        let mut control = Control::default();
        control.push_segment_size(1200);
        for len in 0..HEADER + 2 {
            assert_eq!(messages(&control.as_bytes()[..len]).count(), 0);
        }
        let mut short = [0_u8; HEADER];
        short[..WORD].copy_from_slice(&(HEADER - 1).to_ne_bytes());
        assert_eq!(messages(&short).count(), 0);
    }
}
