//! Which of several sockets on one address gets a packet: a program that the kernel runs.

use std::{io, os::fd::BorrowedFd};

use crate::sys;

/// Steers the packets of the group that `socket` belongs to by octet number `octet` of the
/// connection ID, modulo `sockets`. The sockets of a group are numbered in the order in which they
/// were bound.
pub(super) fn attach(socket: BorrowedFd<'_>, sockets: usize, octet: usize) -> io::Result<()> {
    sys::attach_reuseport_filter(socket, &program(sockets as u32, octet as u32))
}

/// The header form is the first bit of a packet (RFC 8999 §5). Its offsets count from the UDP
/// payload. Reading beyond the end of a packet ends the program with 0, the first socket.
fn program(sockets: u32, octet: u32) -> [libc::sock_filter; 7] {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const IF_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const SKIP: u32 = libc::BPF_JMP | libc::BPF_JA;
    const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
    let jump = |code, k, jf| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let plain = |code, k| jump(code, k, 0);
    [
        plain(LOAD, 0),
        jump(IF_BITS, 0x80, 2),
        // Long header: first octet, version and the ID's length stand before the ID.
        plain(LOAD, 6 + octet),
        plain(SKIP, 1),
        // Short header: the first octet stands before the ID.
        plain(LOAD, 1 + octet),
        plain(MODULO, sockets),
        plain(RETURN, 0),
    ]
}
