//! The most small UDP packets per second of which almost none is lost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use sennit_linux::udp::LinkSocket;
use sennit_load::packets as load;

use super::{Context, PacketFigures, far};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::scenario::Packets;

pub(super) fn run(packets: &Packets, context: &Context<'_>) -> Result<PacketFigures, Error> {
    let end = Instant::now() + context.span();
    let port = packets.port.unwrap_or(context.port);
    let address = SocketAddr::new(far(packets.to, &packets.via).ip(packets.ipv6), port);
    let [near, far] = ends(context, [packets.from, packets.to], address)?;
    let (bytes, direction) = (packets.bytes.into(), packets.direction);
    let (mut sender, mut receiver) = load::connect(near, far, address, bytes, direction)
        .doing(|| format!("reach {address} by UDP from the {}", packets.from))?;
    let loss = packets.loss_percent / 100.0;
    let most = load::measure(&mut sender, &mut receiver, loss, end)
        .doing(|| "measure packets per second".into())?;
    let most = most.ok_or_else(|| Error::Traffic {
        name: "packets".into(),
        reason: format!(
            "more than {} % were lost at every rate",
            packets.loss_percent
        ),
    })?;
    Ok(PacketFigures {
        per_second: most.per_second,
        sent: most.sent,
        lost: most.lost,
        attempts: most.attempts,
        at_least: most.at_least,
    })
}

/// Sockets of the near host, and of the far one at `address`.
pub(super) fn ends(
    context: &Context<'_>,
    [from, to]: [Role; 2],
    address: SocketAddr,
) -> Result<[LinkSocket; 2], Error> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let near = open(context, from, SocketAddr::new(any, 0))?;
    Ok([near, open(context, to, address)?])
}

fn open(context: &Context<'_>, role: Role, address: SocketAddr) -> Result<LinkSocket, Error> {
    let opened = context
        .host(role)
        .netns()
        .run(|| LinkSocket::listen(address));
    Ok(opened.doing(|| format!("enter the {role}"))??)
}
