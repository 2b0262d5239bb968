//! What happens to an HTTP/3 connection, step by step.

use bytes::Bytes;
use sennit_masque::capsule::{
    AssignedAddress, IpAddressRange, LinkInfo, LinkState, NextAuthority, RefusedPrefix,
};
use sennit_masque::{Capsule, Code, Connection, RequestHead, ResponseHead, StreamId, connect_ip};

use crate::input::Input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// One step.
#[derive(Debug)]
pub(super) enum Op<'a> {
    Data {
        stream: StreamId,
        bytes: &'a [u8],
        fin: bool,
    },
    Reset {
        stream: StreamId,
        code: Code,
    },
    Stop {
        stream: StreamId,
        code: Code,
    },
    /// What our own side does, on a stream, with a number to choose by.
    Ours {
        action: u8,
        stream: StreamId,
        number: u16,
    },
}

/// More steps than this bring nothing new.
const MAX_STEPS: usize = 400;

/// Script: per step an opcode (1), a stream id (1), then a block or a number (2).
///
/// A client's requests are on fresh streams, whatever the script says: ids are never used twice.
pub(super) fn read<'a>(side: Side, input: &mut Input<'a>) -> Vec<Op<'a>> {
    let (mut ops, mut next) = (Vec::new(), StreamId(0));
    while !input.is_empty() && ops.len() < MAX_STEPS {
        let opcode = input.byte();
        let mut stream = StreamId(input.byte().into());
        if side == Side::Client && is_request(opcode % 16) {
            stream = next;
            next.0 += 4;
        }
        ops.push(match opcode % 16 {
            0..=4 => Op::Data {
                stream,
                bytes: input.block(),
                fin: false,
            },
            5..=6 => Op::Data {
                stream,
                bytes: input.block(),
                fin: true,
            },
            7 => Op::Reset {
                stream,
                code: Code(input.u16().into()),
            },
            8 => Op::Stop {
                stream,
                code: Code(input.u16().into()),
            },
            action => Op::Ours {
                action,
                stream,
                number: input.u16(),
            },
        });
    }
    ops
}

/// Whether an action of a client begins an exchange.
fn is_request(action: u8) -> bool {
    matches!(action, 9 | 10)
}

impl Op<'_> {
    /// Takes this step, with stream data in pieces of at most `piece` bytes.
    pub(super) fn apply(&self, side: Side, http: &mut Connection, piece: usize) {
        match *self {
            Self::Data { stream, bytes, fin } => feed(http, stream, bytes, fin, piece),
            Self::Reset { stream, code } => http.handle_stream_reset(stream, code),
            Self::Stop { stream, code } => http.handle_stop_sending(stream, code),
            Self::Ours {
                action,
                stream,
                number,
            } => act(side, http, action, stream, number),
        }
    }
}

fn feed(http: &mut Connection, stream: StreamId, bytes: &[u8], fin: bool, piece: usize) {
    let mut rest = bytes;
    loop {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        let is_last = later.is_empty();
        http.handle_stream_data(stream, Bytes::copy_from_slice(now), fin && is_last);
        if is_last {
            return;
        }
        rest = later;
    }
}

/// What is too late or on the wrong stream is refused by the connection, and that is all.
fn act(side: Side, http: &mut Connection, action: u8, stream: StreamId, number: u16) {
    let fin = number & 1 == 1;
    let _ = match (action, side) {
        (9, Side::Server) => http.respond(stream, &granting(), fin),
        (10, Side::Server) => http.respond(stream, &ResponseHead::new(number), fin),
        (9, Side::Client) => {
            let head = connect_ip::request("hub:443", &connect_ip::Scope::ANY.path());
            http.send_request(stream, &head, None)
        }
        (10, Side::Client) => {
            let head = RequestHead::new("POST", "hub:443", "/join");
            http.send_request(stream, &head, Some(Bytes::from_static(b"token")))
        }
        (11, _) => http.send_data(stream, vec![0; usize::from(number) % 100].into(), fin),
        (12, _) => http.send_capsule(stream, &capsule(number)),
        (13, _) => http.finish(stream),
        (14, _) => {
            http.abort(stream, Code(number.into()));
            Ok(())
        }
        _ => {
            if number.is_multiple_of(8) {
                http.goaway();
            }
            Ok(())
        }
    };
}

fn granting() -> ResponseHead {
    let fields = connect_ip::response_fields();
    ResponseHead {
        status: 200,
        fields,
    }
}

fn capsule(number: u16) -> Capsule {
    let prefix = sennit_masque::IpPrefix::host([10, 200, 0, 2].into());
    match number % 6 {
        5 => Capsule::Authority(NextAuthority {
            fingerprint: [7; 32],
            within: number.into(),
        }),
        4 => Capsule::RefusedLan(vec![RefusedPrefix {
            prefix,
            reason: "not granted".into(),
        }]),
        0 => Capsule::AddressAssign(vec![AssignedAddress::unsolicited(prefix)]),
        1 => Capsule::RouteAdvertisement(vec![IpAddressRange::of_prefix(&prefix)]),
        2 => Capsule::Datagram(Bytes::from_static(&[0, 0x45])),
        _ => Capsule::Link(LinkInfo {
            path_id: number.into(),
            tier: 1,
            weight: 1,
            state: LinkState::Up,
            name: "lte".into(),
        }),
    }
}
