//! What a message begins with: an octet, its number and when it was sent.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};

/// First octet of a message, and of one that is not counted, as it leaves in the warm-up.
const COUNTED: u8 = 3;
const WARM: u8 = 4;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head {
    /// The warm-up is over.
    pub(super) counts: bool,
    pub(super) number: u64,
    /// When it left, since the load began at its sender.
    pub(super) sent: Duration,
}

impl Head {
    /// That of a message; `None` if it is none of ours.
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (nanos, _) = rest.split_first_chunk()?;
        Some(Self {
            counts: match *kind {
                COUNTED => true,
                WARM => false,
                _ => return None,
            },
            number: u64::from_be_bytes(*number),
            sent: Duration::from_nanos(u64::from_be_bytes(*nanos)),
        })
    }

    /// Whether these bytes are a message just as it is made.
    pub(super) fn is_message(bytes: &[u8]) -> bool {
        Self::of(bytes).is_some_and(|head| head.message(bytes.len()) == bytes)
    }

    /// A message of so many bytes, or as long as the head if they are fewer.
    pub(super) fn message(self, bytes: usize) -> Bytes {
        let mut message = BytesMut::with_capacity(bytes);
        message.put_u8(if self.counts { COUNTED } else { WARM });
        message.put_u64(self.number);
        message.put_u64(u64::try_from(self.sent.as_nanos()).unwrap_or(u64::MAX));
        message.resize(bytes.max(message.len()), 0x5a);
        message.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadtest::Plan;

    #[test]
    fn the_shortest_message_is_its_head() {
        let head = Head {
            counts: true,
            number: 7,
            sent: Duration::from_millis(3),
        };
        let shortest = usize::from(*Plan::MESSAGE_BYTES.start());

        let message = head.message(0);

        assert_eq!((message.len(), Head::of(&message)), (shortest, Some(head)));
        assert!(Head::is_message(&message) && !Head::is_message(&message[..16]));
        assert_eq!(Head::of(&message[1..]), None);
        assert_eq!(Head::of(b"another datagram of somebody"), None);
    }
}
