//! The system calls that no safe wrapper offers: all the unsafe code of this crate.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr,
};

use bytes::BytesMut;
use rustix::{
    event::{Timespec, epoll},
    thread::{UnshareFlags, unshare_unsafe},
};

/// `setfsuid(2)` and `setfsgid(2)`: as whom the calling thread, and no other, has to do with files
/// from now on. Gives what was before; what the kernel refuses stays so.
pub(crate) fn set_file_identity((uid, gid): (u32, u32)) -> (u32, u32) {
    // SAFETY: both calls take a number and touch no memory. Neither C library tells other threads.
    unsafe {
        let gid_before = libc::setfsgid(gid);
        let uid_before = libc::setfsuid(uid);
        (uid_before.cast_unsigned(), gid_before.cast_unsigned())
    }
}

/// `epoll_pwait2(2)`, appending to `events`, which must have room: rustix takes this call only
/// for timeouts that do not fit the old one, and glibc has it only since 2.35.
pub(crate) fn epoll_pwait2(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<epoll::Event>,
    timeout: &Timespec,
) -> io::Result<usize> {
    let room = events.spare_capacity_mut();
    // SAFETY: `room` is `room.len()` slots of rustix's `Event`, which has the layout of
    // `struct epoll_event`, and its `Timespec` that of `__kernel_timespec`. Both outlive the
    // call. No signal mask is passed.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            room.as_mut_ptr(),
            room.len().min(i32::MAX as usize) as libc::c_int,
            ptr::from_ref(timeout),
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if ready < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the first `ready` slots of the spare capacity.
    unsafe { events.set_len(events.len() + ready as usize) };
    Ok(ready as usize)
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only unsharing the descriptor table endangers descriptors held elsewhere.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// `struct ifreq` as `TUNSETIFF` reads it: the name, then flags in a union of 24 bytes at most.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; 22],
}

/// `TUNSETIFF`: makes `tun` a queue of device `name`, which is created if it does not exist.
///
/// `name` is at most 15 bytes.
pub(crate) fn tun_attach(tun: &File, name: &str, flags: libc::c_int) -> io::Result<()> {
    // linux/if_tun.h: _IOW('T', 202, int)
    const TUNSETIFF: libc::Ioctl = libc::_IOW::<libc::c_int>(b'T' as u32, 202);
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: flags as libc::c_short,
        padding: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request is as large as `struct ifreq`, and the kernel keeps no reference.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) })
}

/// `TUNSETOFFLOAD`: says which super-packets we can read. Fails for flags unknown to the kernel.
pub(crate) fn tun_set_offload(tun: &File, features: libc::c_uint) -> io::Result<()> {
    // linux/if_tun.h: _IOW('T', 208, unsigned int)
    const TUNSETOFFLOAD: libc::Ioctl = libc::_IOW::<libc::c_uint>(b'T' as u32, 208);
    // SAFETY: this request takes its argument by value.
    check(unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            TUNSETOFFLOAD,
            libc::c_ulong::from(features),
        )
    })
}

/// `TUNSETVNETHDRSZ`: the length of the header before each packet.
pub(crate) fn tun_set_header_len(tun: &File, len: libc::c_int) -> io::Result<()> {
    // linux/if_tun.h: _IOW('T', 216, int)
    const TUNSETVNETHDRSZ: libc::Ioctl = libc::_IOW::<libc::c_int>(b'T' as u32, 216);
    // SAFETY: the kernel reads one int and keeps no reference.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETVNETHDRSZ, &raw const len) })
}

/// `NETLINK_GET_STRICT_CHK`: dumps honour the filters of the request.
pub(crate) fn netlink_filter_dumps(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int and keeps no reference.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_GET_STRICT_CHK,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })
}

/// `SO_MEMINFO`: datagrams that found the receive buffer full.
pub(crate) fn receive_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is the last of nine.
    let mut info = [0_u32; 9];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, and the new length to `len`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(info[8])
}

/// `SO_TIMESTAMPNS_NEW` of asm-generic/socket.h, which is also the type of its control message: a
/// `struct __kernel_timespec` of the wall clock, on machines of 32 bits as well.
pub(crate) const TIMESTAMP: libc::c_int = 64;

/// Has the kernel say when it got each datagram that `socket` receives.
pub(crate) fn stamp_received(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int and keeps no reference.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            TIMESTAMP,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })
}

/// Messages that one call of [`receive_messages`] takes.
pub(crate) const MESSAGES: usize = 32;

/// Room for the control messages of a datagram: a time (32 bytes), the size of segments (24), our
/// own address (40) and the traffic class (24).
const CONTROL: usize = 128;

/// What the kernel says of a message beside its bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Envelope {
    control: [u8; CONTROL],
    control_len: usize,
    name: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

impl Envelope {
    pub(crate) const EMPTY: Self = Self {
        control: [0; CONTROL],
        control_len: 0,
        name: [0; size_of::<libc::sockaddr_in6>()],
        len: 0,
    };

    /// The sender's `struct sockaddr_in` or `sockaddr_in6`.
    pub(crate) fn name(&self) -> &[u8; size_of::<libc::sockaddr_in6>()] {
        &self.name
    }

    /// Control messages.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[..self.control_len.min(CONTROL)]
    }

    /// Bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// `recvmmsg(2)` of an IP socket: fills as many of `bufs` and of `envelopes` as there are messages,
/// and says how many. At most [`MESSAGES`] are taken.
pub(crate) fn receive_messages(
    socket: BorrowedFd<'_>,
    bufs: &mut [IoSliceMut<'_>],
    envelopes: &mut [Envelope],
) -> io::Result<usize> {
    // SAFETY: these are structs of C of which zeros are a value: null pointers and lengths of 0.
    let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
    let mut count = 0;
    for ((header, buf), envelope) in headers.iter_mut().zip(bufs).zip(envelopes.iter_mut()) {
        let header = &mut header.msg_hdr;
        header.msg_name = envelope.name.as_mut_ptr().cast();
        header.msg_namelen = size_of_val(&envelope.name) as libc::socklen_t;
        header.msg_iov = ptr::from_mut(buf).cast();
        header.msg_iovlen = 1;
        header.msg_control = envelope.control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        count += 1;
    }
    // SAFETY: the first `count` headers are filled in. Each points to a buffer of its own (an
    // `IoSliceMut` has the layout of `struct iovec`), to a name and to control bytes, with their
    // lengths, all of which outlive the call and are not used otherwise meanwhile. The kernel
    // writes no more than these lengths.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            0,
            ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received as usize;
    for (header, envelope) in headers[..received].iter().zip(envelopes) {
        envelope.control_len = header.msg_hdr.msg_controllen as _;
        envelope.len = header.msg_len as usize;
    }
    Ok(received)
}

/// `mallopt(3)`: freed memory is kept up to `bytes`, and larger pieces are no mappings of their
/// own.
#[cfg(target_env = "gnu")]
pub(crate) fn keep_freed_memory(bytes: libc::c_int) -> bool {
    // SAFETY: it takes both arguments by value.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, bytes) == 1
            && libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) == 1
    }
}

/// `malloc_trim(3)`: whole pages of freed memory go back to the kernel.
#[cfg(target_env = "gnu")]
pub(crate) fn trim_freed_memory() {
    // SAFETY: it takes its argument by value, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// `SO_ATTACH_REUSEPORT_CBPF`: a classic BPF program chooses the socket of the group that `socket`
/// belongs to, for each packet.
pub(crate) fn attach_reuseport_filter(
    socket: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions from `filter`, writes nothing there, and keeps
    // no reference.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })
}

/// Memory of a fixed size that is lent with what is in it, and comes back when that is dropped.
#[derive(Debug)]
pub(crate) struct LendingBuffer {
    /// Whole, or after [`LendingBuffer::lend`] what is left behind what was lent.
    rest: BytesMut,
    size: usize,
}

impl LendingBuffer {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            rest: BytesMut::zeroed(size),
            size,
        }
    }

    /// All of it, unless a part is lent.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.rest
    }

    /// Its first `len` bytes; the buffer is of no use until it is reclaimed.
    pub(crate) fn lend(&mut self, len: usize) -> BytesMut {
        self.rest.split_to(len)
    }

    /// Makes it whole again; false while somebody has a part of what was lent.
    pub(crate) fn reclaim(&mut self) -> bool {
        self.rest.clear();
        if !self.rest.try_reclaim(self.size) {
            return false;
        }
        // SAFETY: this is the allocation of `new`, whose `size` bytes were all initialised there,
        // as neither `split_to` nor `clear` nor `try_reclaim` changes to another one.
        unsafe { self.rest.set_len(self.size) };
        true
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
