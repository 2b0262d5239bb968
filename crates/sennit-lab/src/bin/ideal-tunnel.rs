//! The least that an encrypted tunnel must do, to see what more of it costs.
//!
//! Super-packets are read from a TUN device, cut into inner packets, each sealed with AES-128-GCM,
//! and sent as UDP datagrams by GSO; what GRO receives is opened, coalesced and written to the
//! device. One thread, and nothing else: no handshake, no order, no loss, no congestion control.
//!
//! The key is known to everybody, so this protects nothing: it is for `sennit lab` and its
//! namespaces.
//!
//! ```text
//! datagram = counter (8 bytes, big endian) | ciphertext | tag (16 bytes)
//! nonce    = end (4 bytes)                 | counter
//! ```

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use sennit_linux::DeviceName;
use sennit_linux::poller::{Events, Interest, Poller};
use sennit_linux::tun::{MAX_SLICES, Offload, OffloadTier, TUN_BUFFER, Tun, TunConfig};
use sennit_linux::udp::{BATCH_SIZE, LinkSocket, RecvMeta, Transmit, UDP_BUFFER};
use sennit_packet::coalesce::Coalescer;
use sennit_packet::gso::{Segments, Tier, VirtioNetHdr};

const KEY: [u8; 16] = [0x5a; 16];
const COUNTER: usize = 8;
const TAG: usize = 16;

/// What one GSO send may carry.
const BATCH: usize = 65_000;

/// Reads of the device between two looks at the socket.
const TUN_READS: usize = 32;

/// The longest inner packet, so that a datagram fits into 1500 bytes.
const MTU: u32 = 1400;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// One end of the ideal tunnel; the other end is told the same with both addresses exchanged
#[derive(Debug, Parser)]
struct Args {
    /// The TUN device to make
    device: DeviceName,
    /// Our UDP address
    local: SocketAddr,
    /// The other end's
    remote: SocketAddr,
}

fn main() -> ExitCode {
    let Err(error) = Ideal::new(&Args::parse()).and_then(Ideal::run);
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

struct Ideal {
    tun: Tun,
    socket: LinkSocket,
    outbound: Outbound,
    inbound: Inbound,
}

impl Ideal {
    fn new(args: &Args) -> Outcome<Self> {
        let config = TunConfig {
            name: args.device.clone(),
            mtu: MTU,
            queues: 1,
            offload: Offload::Auto,
        };
        let tun = Tun::open(&config)?.pop().expect("one queue was asked for");
        let [ours, theirs] = match args.local < args.remote {
            true => [0, 1],
            false => [1, 0],
        };
        Ok(Self {
            socket: LinkSocket::listen(args.local)?,
            outbound: Outbound::new(args.remote, Cipher::new(ours)?),
            inbound: Inbound::new(tun.tier(), Cipher::new(theirs)?),
            tun,
        })
    }

    fn run(mut self) -> Outcome<std::convert::Infallible> {
        const TUN: u64 = 0;
        let poller = Poller::new()?;
        poller.add(&self.tun, TUN, Interest::Read)?;
        poller.add(&self.socket, TUN + 1, Interest::Read)?;
        let mut events = Events::with_capacity(2);
        loop {
            poller.wait(&mut events, None)?;
            for ready in events.iter() {
                match ready.token {
                    TUN => self.outbound.turn(&mut self.tun, &mut self.socket)?,
                    _ => self.inbound.turn(&mut self.socket, &mut self.tun)?,
                }
            }
        }
    }
}

/// The key, as the datagrams of one end use it.
struct Cipher {
    key: LessSafeKey,
    end: u32,
}

impl Cipher {
    fn new(end: u32) -> Result<Self, Unspecified> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY)?);
        Ok(Self { key, end })
    }

    fn nonce(&self, counter: [u8; COUNTER]) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.end.to_be_bytes());
        nonce[4..].copy_from_slice(&counter);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Makes a datagram of a buffer with the inner packet in its middle.
    fn seal(&self, counter: u64, datagram: &mut [u8]) -> Result<(), Unspecified> {
        let counter = counter.to_be_bytes();
        let (front, rest) = datagram.split_at_mut(COUNTER);
        let (packet, end) = rest.split_at_mut(rest.len() - TAG);
        front.copy_from_slice(&counter);
        let (nonce, aad) = (self.nonce(counter), Aad::empty());
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, packet)?;
        end.copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// The inner packet, if the datagram is the other end's.
    fn open<'a>(&self, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (counter, sealed) = datagram.split_first_chunk_mut::<COUNTER>()?;
        let nonce = self.nonce(*counter);
        let packet = self.key.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        Some(packet)
    }
}

/// From the device to the socket.
struct Outbound {
    remote: SocketAddr,
    cipher: Cipher,
    counter: u64,
    read: Box<[u8]>,
    batch: Batch,
}

/// Datagrams of one size, of which the last may be shorter.
struct Batch {
    bytes: Box<[u8]>,
    used: usize,
    segment: usize,
}

impl Outbound {
    fn new(remote: SocketAddr, cipher: Cipher) -> Self {
        Self {
            remote,
            cipher,
            counter: 0,
            read: vec![0; TUN_BUFFER].into(),
            batch: Batch {
                bytes: vec![0; BATCH].into(),
                used: 0,
                segment: 0,
            },
        }
    }

    fn turn(&mut self, tun: &mut Tun, socket: &mut LinkSocket) -> Outcome<()> {
        for _ in 0..TUN_READS {
            let Some((header, length)) = tun.recv(&mut self.read)? else {
                break;
            };
            if let Ok(segments) = Segments::new(&header, &self.read[..length]) {
                for index in 0..segments.count() {
                    let inner = segments.segment_len(index).expect("it is below the count");
                    let sealed = COUNTER + inner + TAG;
                    if !self.batch.takes(sealed) {
                        self.batch.send(socket, self.remote);
                    }
                    let datagram = self.batch.add(sealed);
                    segments.write(index, &mut datagram[COUNTER..][..inner]);
                    self.cipher.seal(self.counter, datagram)?;
                    self.counter += 1;
                }
            }
        }
        self.batch.send(socket, self.remote);
        Ok(())
    }
}

impl Batch {
    /// Not after a shorter one, and not a longer one.
    fn takes(&self, length: usize) -> bool {
        self.used == 0
            || (self.used.is_multiple_of(self.segment)
                && length <= self.segment
                && self.used + length <= BATCH)
    }

    fn add(&mut self, length: usize) -> &mut [u8] {
        if self.used == 0 {
            self.segment = length;
        }
        let start = self.used;
        self.used += length;
        &mut self.bytes[start..][..length]
    }

    /// What the kernel does not take now is lost.
    fn send(&mut self, socket: &mut LinkSocket, destination: SocketAddr) {
        if self.used > 0 {
            let _ = socket.send(&Transmit {
                destination,
                ecn: None,
                contents: &self.bytes[..self.used],
                segment_size: Some(self.segment),
                src_ip: None,
            });
        }
        self.used = 0;
    }
}

/// From the socket to the device.
struct Inbound {
    cipher: Cipher,
    coalescer: Coalescer,
    buffers: Vec<Box<[u8]>>,
    metas: Vec<RecvMeta>,
}

impl Inbound {
    fn new(tier: OffloadTier, cipher: Cipher) -> Self {
        let tier = match tier {
            OffloadTier::None => Tier::None,
            OffloadTier::Tso => Tier::Tso,
            OffloadTier::TsoUso => Tier::TsoUso,
        };
        Self {
            cipher,
            coalescer: Coalescer::new(tier),
            buffers: vec![vec![0; UDP_BUFFER].into(); BATCH_SIZE],
            metas: vec![RecvMeta::default(); BATCH_SIZE],
        }
    }

    fn turn(&mut self, socket: &mut LinkSocket, tun: &mut Tun) -> Outcome<()> {
        let buffers = self.buffers.iter_mut();
        let mut slices: Vec<_> = buffers.map(|buffer| IoSliceMut::new(buffer)).collect();
        let runs = socket.recv(&mut slices, &mut self.metas)?;
        let mut packets: Vec<&[u8]> = Vec::with_capacity(256);
        for (buffer, meta) in self.buffers.iter_mut().zip(&self.metas[..runs]) {
            let datagrams = buffer[..meta.len].chunks_mut(meta.stride.max(1));
            packets.extend(datagrams.filter_map(|datagram| self.cipher.open(datagram)));
        }
        for write in self.coalescer.coalesce(&packets) {
            let pieces = std::iter::once(write.head()).chain(write.payloads());
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for piece in pieces.filter(|piece| !piece.is_empty()) {
                slices[count] = IoSlice::new(piece);
                count += 1;
            }
            send(tun, write.header(), &slices[..count]);
        }
        Ok(())
    }
}

/// A packet that the host refuses is lost.
fn send(tun: &mut Tun, header: &VirtioNetHdr, packet: &[IoSlice<'_>]) {
    let _ = tun.send(header, packet);
}
