//! Bulk data over the kernel's TCP or MPTCP (RFC 8684): as much as the connections take, for a
//! time.
//!
//! With MPTCP the edge connects from its first link to the server; the path manager of its kernel
//! adds a subflow from each other link. Every subflow is as good as the first, none is a backup.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sennit_load::{Received, tcp as load};
use sennit_netem::Direction;
use socket2::{Domain, Protocol, Socket, Type};

use super::{BulkFigures, Context, far};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::scenario::{Tcp, Via};

/// Longer than any cut that a scenario makes under load.
const STALLED: Duration = Duration::from_secs(30);

/// Longer than a handshake takes, some packets of which are lost.
const CONNECTED: Duration = Duration::from_secs(10);

pub(super) fn run(tcp: &Tcp, context: &Context<'_>) -> Result<BulkFigures, Error> {
    if tcp.via == Via::Mptcp {
        configure_mptcp(context)?;
    }
    let port = tcp.port.unwrap_or(context.port);
    let address = SocketAddr::new(far(tcp.to, &tcp.via).ip(tcp.ipv6), port);
    let listener = listen(context, address, tcp).doing(|| format!("listen on {address}"))?;
    let (near, far): (Vec<_>, Vec<_>) = (0..tcp.streams)
        .map(|_| connect(context, &listener, address, tcp))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let (senders, receivers) = match tcp.direction {
        Direction::Up => (near, far),
        Direction::Down => (far, near),
    };
    let received = Received::new(Instant::now(), context.bin);
    let received = load::transfer(senders, receivers, received, context.span())
        .doing(|| "move bulk data".into())?;
    Ok(BulkFigures::new(&received, context))
}

/// Lets the edge's kernel use all links for one connection; doing it again changes nothing.
fn configure_mptcp(context: &Context<'_>) -> Result<(), Error> {
    let mut edge =
        String::from("mptcp endpoint flush\nmptcp limits set subflow 8 add_addr_accepted 0\n");
    // The first link carries the first subflow by the default route.
    for link in context.site.links().skip(1) {
        let (address, device) = (link.subnet().edge().v4, link.device());
        edge.push_str(&format!(
            "mptcp endpoint add {address} dev {device} subflow\n"
        ));
    }
    context.host(Role::Edge).ip(&edge)?;
    context
        .host(Role::Server)
        .ip("mptcp limits set subflow 8 add_addr_accepted 0\n")
}

fn socket(tcp: &Tcp, address: SocketAddr) -> std::io::Result<Socket> {
    let protocol = match tcp.via {
        Via::Mptcp => Protocol::MPTCP,
        Via::Tunnel | Via::Link(_) => Protocol::TCP,
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    socket.set_tcp_congestion(tcp.congestion.as_bytes())?;
    // DSCP is the upper six bits of the octet (RFC 2474 §3). A connection takes it from its
    // listener.
    let traffic_class = u32::from(tcp.dscp) << 2;
    match address {
        _ if traffic_class == 0 => {}
        SocketAddr::V4(_) => socket.set_tos_v4(traffic_class)?,
        SocketAddr::V6(_) => socket.set_tclass_v6(traffic_class)?,
    }
    Ok(socket)
}

fn listen(context: &Context<'_>, address: SocketAddr, tcp: &Tcp) -> std::io::Result<Socket> {
    context.host(tcp.to).netns().run(|| {
        let socket = socket(tcp, address)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(128)?;
        // It holds for accepting as well (socket(7)).
        socket.set_read_timeout(Some(CONNECTED))?;
        Ok(socket)
    })?
}

/// One connection: the near end and the server's.
fn connect(
    context: &Context<'_>,
    listener: &Socket,
    address: SocketAddr,
    tcp: &Tcp,
) -> Result<(TcpStream, TcpStream), Error> {
    let from = match tcp.via {
        Via::Mptcp => Role::Edge,
        Via::Tunnel | Via::Link(_) => tcp.from,
    };
    let near = context.host(from).netns().run(|| {
        let socket = socket(tcp, address)?;
        socket.connect_timeout(&address.into(), CONNECTED)?;
        Ok(socket)
    });
    let near = near
        .and_then(|near| near)
        .doing(|| format!("connect to {address}"))?;
    let (far, _) = listener.accept().doing(|| "accept a connection".into())?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(STALLED))
            .and_then(|()| end.set_write_timeout(Some(STALLED)))
            .doing(|| "limit the wait on a socket".into())?;
    }
    Ok((near.into(), far.into()))
}
