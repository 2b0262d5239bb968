//! A flood of first packets from sources that do not exist.
//!
//! It comes from the server's host, so that it takes nothing of the links: what a tunnel loses, it
//! loses because the hub, or this machine, has less time for it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SendFlags, SocketAddrV4, SocketType, ipproto};

use super::{Context, FloodFigures};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::plan;
use crate::scenario::Flood;

/// What a hub listens on.
const HUB_PORT: u16 = 443;
/// Different ones; the hub keeps a few hundred strangers without asking for their address.
const FIRST_PACKETS: usize = 4096;
/// Time between two turns of the sender.
const TURN: Duration = Duration::from_millis(1);
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;

pub(super) fn run(flood: &Flood, context: &Context<'_>) -> Result<FloodFigures, Error> {
    let target = match flood.unread {
        true => context.port,
        false => HUB_PORT,
    };
    let target = SocketAddrV4::new(plan::HUB_SERVER.v4, target);
    let _unread = flood.unread.then(|| hold(target, context)).transpose()?;
    route_answers(context)?;
    let socket = context.host(Role::Server).netns().run(|| open(target));
    let socket = socket
        .and_then(|it| it)
        .doing(|| "open a raw socket on server".into())?;
    let mut packets = sennit_sim::first_packets(FIRST_PACKETS, Instant::now())
        .iter()
        .map(|payload| with_headers(payload, target))
        .collect::<Vec<_>>();
    send(&socket, &mut packets, flood.rate, context.span())
        .doing(|| format!("flood {target} from the server"))
}

/// A socket that nobody reads.
fn hold(address: SocketAddrV4, context: &Context<'_>) -> Result<UdpSocket, Error> {
    let bind = || UdpSocket::bind(SocketAddr::from(address));
    let bound = context.host(Role::Hub).netns().run(bind);
    bound
        .and_then(|it| it)
        .doing(|| format!("hold {address} on hub"))
}

/// What the hub answers goes where the packets come from, and is dropped there.
fn route_answers(context: &Context<'_>) -> Result<(), Error> {
    let (network, bits) = plan::FORGED;
    let server = plan::SERVER.v4;
    let route = format!("route replace {network}/{bits} via {server}\n");
    context.host(Role::Hub).ip(&route)
}

fn open(target: SocketAddrV4) -> std::io::Result<OwnedFd> {
    // Of this protocol, a socket takes packets with their IP headers (raw(7)).
    let socket = net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
    net::connect(&socket, &target)?;
    Ok(socket)
}

/// A packet to `target` whose source is filled in later; the kernel adds length and checksum of IP.
fn with_headers(payload: &[u8], target: SocketAddrV4) -> Vec<u8> {
    const WITHOUT_OPTIONS: u8 = 0x45;
    const HOPS: u8 = 64;
    const UDP: u8 = 17;
    let mut packet = vec![0; HEADERS];
    (packet[0], packet[8], packet[9]) = (WITHOUT_OPTIONS, HOPS, UDP);
    packet[16..20].copy_from_slice(&target.ip().octets());
    packet[22..24].copy_from_slice(&target.port().to_be_bytes());
    // A checksum of zero is none (RFC 768).
    let length = (payload.len() + HEADERS - 20) as u16;
    packet[24..26].copy_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Where the packet with this number claims to come from: another host each time.
fn source(number: u64) -> (Ipv4Addr, u16) {
    let (network, bits) = plan::FORGED;
    let hosts = 1_u64 << (32 - bits);
    // Odd, so that every host comes once before one comes again.
    let host = number.wrapping_mul(2_654_435_761) % hosts;
    let port = 1024 + (number % 60_000) as u16;
    (Ipv4Addr::from_bits(network.to_bits() + host as u32), port)
}

fn send(
    socket: &OwnedFd,
    packets: &mut [Vec<u8>],
    rate: u32,
    span: Duration,
) -> std::io::Result<FloodFigures> {
    let start = Instant::now();
    let mut sent: u64 = 0;
    while start.elapsed() < span {
        let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while sent < due && start.elapsed() < span {
            let (address, port) = source(sent);
            let packet = &mut packets[sent as usize % FIRST_PACKETS];
            packet[12..16].copy_from_slice(&address.octets());
            packet[20..22].copy_from_slice(&port.to_be_bytes());
            match net::send(socket, packet, SendFlags::empty()) {
                // No room in a queue: lost, as packets are.
                Ok(_) | Err(rustix::io::Errno::NOBUFS) => sent += 1,
                Err(error) => return Err(error.into()),
            }
        }
        thread::sleep(TURN);
    }
    Ok(FloodFigures {
        sent,
        per_second: sent as f64 / start.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_sources_are_all_different_and_where_answers_are_routed() {
        let sources: std::collections::BTreeSet<_> = (0..100_000).map(|it| source(it).0).collect();

        assert_eq!(sources.len(), 100_000);
        let (network, bits) = plan::FORGED;
        let of_network =
            |it: &Ipv4Addr| it.to_bits() >> (32 - bits) == network.to_bits() >> (32 - bits);
        assert!(sources.iter().all(of_network));
    }
}
