//! TUN devices: where inner packets enter and leave.
//!
//! Every read and write carries a [`VirtioNetHdr`] before the packet. How much the kernel leaves
//! to us is the device's [`OffloadTier`], found by asking the kernel, never by its version: with
//! [`OffloadTier::None`] each read is one finished packet; from [`OffloadTier::Tso`] on, a read
//! may be a TCP super-packet of up to 64 KiB whose checksum is still to be completed, and a write
//! may be one too. A device with several queues spreads flows over them, one [`Tun`] each.
//!
//! A device lives as long as its queues are open; the kernel removes it, its addresses and its
//! routes with the last one, also after `kill -9`.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
};

use sennit_packet::gso::VirtioNetHdr;

use crate::{
    DeviceName, Error,
    error::Doing,
    helper::{self, Task},
    netlink::{Interface, Netlink},
    sys,
};

/// A read buffer of this size takes any super-packet; a packet that does not fit is lost.
pub const TUN_BUFFER: usize = 65_536;

/// Slices per write: a header and the payloads of the 64 segments that UDP GSO allows.
pub const MAX_SLICES: usize = 65;

/// Packets, or super-packets, that a queue holds until they are read; the kernel drops what comes
/// on top. Its own 500 are fewer than sixty connections send at once as they start.
const QUEUE: u32 = 10_000;

/// Bit values of linux/if_tun.h.
const IFF_TUN: libc::c_int = 0x0001;
const IFF_NO_PI: libc::c_int = 0x1000;
const IFF_VNET_HDR: libc::c_int = 0x4000;
const IFF_TUN_EXCL: libc::c_int = 0x8000;
const IFF_MULTI_QUEUE: libc::c_int = 0x0100;
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

/// What device to open.
#[derive(Clone, Debug)]
pub struct TunConfig {
    pub name: DeviceName,
    pub mtu: u32,
    /// Queues, at least 1.
    pub queues: usize,
    pub offload: Offload,
}

/// The highest tier wanted; a kernel that knows less gives the next lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// All that the kernel can do.
    #[default]
    Auto,
    None,
    Tso,
    TsoUso,
}

/// Which super-packets pass between the kernel and us, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OffloadTier {
    /// None: finished packets only.
    None,
    /// TCP (TSO), and checksums left to the reader.
    Tso,
    /// TCP and UDP (USO).
    TsoUso,
}

impl OffloadTier {
    fn features(self) -> libc::c_uint {
        const TSO: libc::c_uint = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        match self {
            Self::None => 0,
            Self::Tso => TSO,
            Self::TsoUso => TSO | TUN_F_USO4 | TUN_F_USO6,
        }
    }
}

impl Offload {
    fn highest(self) -> OffloadTier {
        match self {
            Self::None => OffloadTier::None,
            Self::Tso => OffloadTier::Tso,
            Self::Auto | Self::TsoUso => OffloadTier::TsoUso,
        }
    }
}

/// One queue of a TUN device.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
    tier: OffloadTier,
}

impl Tun {
    /// Opens all queues of a device, sets its MTU and brings it up, without any address.
    ///
    /// A device of one queue may exist beforehand (`ip tuntap add`) if nobody has it open; one of
    /// several queues must not exist, because the kernel would let two daemons share it.
    pub fn open(config: &TunConfig) -> Result<Vec<Self>, Error> {
        let queues = config.queues.max(1);
        let first = attach(&config.name, queues, true)?;
        let tier = negotiate(&first, config.offload)
            .doing(|| format!("set the offloads of {}", config.name))?;
        let index = raise(&config.name, config.mtu)?;
        let mut files = vec![first];
        for _ in 1..queues {
            files.push(attach(&config.name, queues, false)?);
        }
        let queue = |file| Self { file, index, tier };
        Ok(files.into_iter().map(queue).collect())
    }

    /// Reads one packet into `buf` ([`TUN_BUFFER`] bytes): its header and length, or `None` when
    /// there is none to read.
    pub fn recv(&mut self, buf: &mut [u8]) -> io::Result<Option<(VirtioNetHdr, usize)>> {
        let mut header = [0; VirtioNetHdr::LEN];
        let mut slices = [IoSliceMut::new(&mut header), IoSliceMut::new(buf)];
        let Some(read) = unless_blocked(|| self.file.read_vectored(&mut slices))? else {
            return Ok(None);
        };
        let too_short = || io::Error::new(io::ErrorKind::UnexpectedEof, "TUN read too short");
        let header = VirtioNetHdr::decode(&header[..read.min(VirtioNetHdr::LEN)]);
        Ok(Some((
            header.ok_or_else(too_short)?,
            read - VirtioNetHdr::LEN,
        )))
    }

    /// Writes one packet, given in up to [`MAX_SLICES`] pieces; `false` if the device is full now.
    ///
    /// An error is about this packet alone unless [`Tun::is_gone`] says otherwise.
    pub fn send(&mut self, header: &VirtioNetHdr, packet: &[IoSlice<'_>]) -> io::Result<bool> {
        let header = header.encode();
        let mut slices = [IoSlice::new(&[]); 1 + MAX_SLICES];
        slices[0] = IoSlice::new(&header);
        let room = slices.get_mut(1..=packet.len()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "packet in too many pieces")
        })?;
        room.copy_from_slice(packet);
        let written = unless_blocked(|| self.file.write_vectored(&slices[..=packet.len()]))?;
        Ok(written.is_some())
    }

    /// Whether `error`, got from [`Tun::recv`] or [`Tun::send`], means that somebody deleted the
    /// device: it must be opened again.
    pub fn is_gone(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EBADFD)
    }

    /// The super-packets that this device takes and gives.
    pub fn tier(&self) -> OffloadTier {
        self.tier
    }

    /// The kernel's interface index.
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Opens one more queue of device `name`.
fn attach(name: &DeviceName, queues: usize, first: bool) -> Result<File, Error> {
    let file = match (open_driver(), helper::engaged()) {
        // On some hosts it is root's alone.
        (Err(Error::NotPrivileged), Some(helper)) => helper.fetch(&Task::OpenTun)?,
        (opened, _) => opened?,
    };
    make_queue(&file, name, queues, first, true)?;
    sys::tun_set_header_len(&file, VirtioNetHdr::LEN as libc::c_int)
        .doing(|| format!("set the header length of {name}"))?;
    Ok(file)
}

/// Opens what becomes a queue.
pub(crate) fn open_driver() -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoTunDriver,
            io::ErrorKind::PermissionDenied => Error::NotPrivileged,
            _ => Error::Os {
                doing: "open /dev/net/tun".into(),
                source: error,
            },
        })
}

/// Brings a device up, without any address; its interface index.
pub(crate) fn raise(name: &DeviceName, mtu: u32) -> Result<u32, Error> {
    if let Some(helper) = helper::engaged() {
        let device = name.clone();
        return helper.ask(&Task::Raise { device, mtu }, None);
    }
    let mut netlink = Netlink::open()?;
    let index = Interface::lookup(&mut netlink, name.as_str())?.index;
    netlink.suppress_link_local(index);
    netlink.set_up(index, mtu, QUEUE)?;
    Ok(index)
}

/// Makes `file` a queue of a device that has so many; the first of them makes the device. One with
/// a single queue `may_be_there` already.
pub(crate) fn make_queue(
    file: &File,
    name: &DeviceName,
    queues: usize,
    first: bool,
    may_be_there: bool,
) -> Result<(), Error> {
    if let Some(helper) = helper::engaged() {
        let device = name.clone();
        let task = Task::Attach {
            device,
            queues,
            first,
        };
        return helper.ask(&task, Some(file.as_fd()));
    }
    let mut flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    if queues > 1 {
        flags |= IFF_MULTI_QUEUE;
    }
    if first && (queues > 1 || !may_be_there) {
        flags |= IFF_TUN_EXCL;
    }
    sys::tun_attach(file, name.as_str(), flags).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::DeviceBusy(name.to_string()),
        Some(libc::EINVAL) => Error::NotOurKind(name.to_string()),
        Some(libc::EPERM) => Error::NotPrivileged,
        _ => Error::Os {
            doing: format!("create device {name}"),
            source: error,
        },
    })
}

/// Asks for the highest wanted tier, then for less, until the kernel agrees.
fn negotiate(device: &File, wanted: Offload) -> io::Result<OffloadTier> {
    for tier in [OffloadTier::TsoUso, OffloadTier::Tso] {
        if tier <= wanted.highest() && sys::tun_set_offload(device, tier.features()).is_ok() {
            return Ok(tier);
        }
    }
    sys::tun_set_offload(device, OffloadTier::None.features())?;
    Ok(OffloadTier::None)
}

/// Repeats an interrupted call; `None` when it would block.
fn unless_blocked(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
