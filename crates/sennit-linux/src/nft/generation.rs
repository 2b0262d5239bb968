//! The number of the last change of any nftables table in this network namespace.
//!
//! It costs one question by netlink (`NFT_MSG_GETGEN` of linux/netfilter/nf_tables.h), and no run
//! of `nft`.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::{Error, error::Doing};

/// `NFNL_SUBSYS_NFTABLES` in the upper half, the message in the lower one.
const NEW_GENERATION: u16 = 10 << 8 | 15;
const ASK_GENERATION: u16 = 10 << 8 | 16;
/// `NFTA_GEN_ID`, a number in network order.
const NUMBER: u16 = 1;
/// `NLMSG_ERROR`.
const REFUSED: u16 = 2;
/// A netlink header and the one of netfilter behind it.
const HEADERS: usize = 16 + 4;
/// The answer is a number and the name of who made the change.
const ANSWER: usize = 256;

/// The number now.
pub(super) fn current() -> Result<u32, Error> {
    ask().doing(|| "ask for changes of nftables".into())
}

fn ask() -> io::Result<u32> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::NETFILTER),
    )?;
    send(&socket, &question(), SendFlags::empty())?;
    let mut buffer = [0; ANSWER];
    let (len, _) =
        rustix::io::retry_on_intr(|| recv(&socket, &mut buffer[..], RecvFlags::empty()))?;
    read(&buffer[..len])
}

fn question() -> [u8; HEADERS] {
    let mut question = [0; HEADERS];
    question[..4].copy_from_slice(&(HEADERS as u32).to_ne_bytes());
    question[4..6].copy_from_slice(&ASK_GENERATION.to_ne_bytes());
    question[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    question
}

/// The number in an answer.
fn read(answer: &[u8]) -> io::Result<u32> {
    let senseless = || io::Error::from(io::ErrorKind::InvalidData);
    let half = |at: usize| {
        let bytes = answer.get(at..at + 2)?;
        bytes.try_into().ok().map(u16::from_ne_bytes)
    };
    let kind = half(4);
    if kind == Some(REFUSED) {
        let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
        let code = code.map(i32::from_ne_bytes).ok_or_else(senseless)?;
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    let mut at = HEADERS;
    while kind == Some(NEW_GENERATION)
        && let (Some(len), Some(name)) = (half(at), half(at + 2))
    {
        let value = answer.get(at + 4..at + 8);
        if name == NUMBER
            && let Some(Ok(number)) = value.map(<[u8; 4]>::try_from)
        {
            return Ok(u32::from_be_bytes(number));
        }
        at += usize::from(len).next_multiple_of(4).max(4);
    }
    Err(senseless())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; 16];
        answer[4..6].copy_from_slice(&kind.to_ne_bytes());
        answer.extend(body);
        answer
    }

    fn attribute(name: u16, value: &[u8]) -> Vec<u8> {
        let len = (4 + value.len()) as u16;
        let mut attribute = [len.to_ne_bytes(), name.to_ne_bytes()].concat();
        attribute.extend(value);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        attribute
    }

    #[test]
    fn the_number_is_found_among_what_else_the_kernel_says() {
        let body = [
            vec![0; 4],
            attribute(3, b"nft\0"),
            attribute(9, b"x"),
            attribute(NUMBER, &[0, 0, 1, 2]),
        ];
        let answer = answer(NEW_GENERATION, &body.concat());

        assert_eq!(read(&answer).unwrap(), 258);
        for len in 0..answer.len() {
            read(&answer[..len]).unwrap_err();
        }
    }

    #[test]
    fn a_refusal_is_told_as_what_it_is() {
        let refused = answer(REFUSED, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(
            read(&refused).unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
    }
}
