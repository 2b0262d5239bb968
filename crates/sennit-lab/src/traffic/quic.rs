//! Bulk data over QUIC: a plain `quinn` client and server with one stream, for a time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::sockopt;
use sennit_load::quic as load;
use socket2::{Domain, Socket, Type};

use super::{BulkFigures, Context};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::plan;
use crate::scenario::Quic;

pub(super) fn run(quic: &Quic, context: &Context<'_>) -> Result<BulkFigures, Error> {
    let port = quic.port.unwrap_or(context.port);
    let address = SocketAddr::new(plan::SERVER.ip(quic.ipv6), port);
    let any: IpAddr = match quic.ipv6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let far = open(context, Role::Server, address)?;
    let near = open(context, quic.from, SocketAddr::new(any, 0))?;
    let (span, bin) = (context.span(), context.bin);
    let transferred = load::transfer(near, far, address, quic.direction, span, bin);
    let transferred = transferred.map_err(|error| Error::Traffic {
        name: "quinn".into(),
        reason: error.to_string(),
    })?;
    Ok(BulkFigures {
        retransmits: Some(transferred.lost),
        ..BulkFigures::new(&transferred.received, context)
    })
}

fn open(context: &Context<'_>, role: Role, address: SocketAddr) -> Result<UdpSocket, Error> {
    let opened = context.host(role).netns().run(|| {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, load::RECEIVE_BUFFER)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    });
    opened
        .and_then(|socket| socket)
        .doing(|| format!("open a UDP socket on {role}"))
}
