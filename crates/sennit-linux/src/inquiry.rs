//! Plain sockets that keep to a link, for a question now and then: a name to look up, or whether
//! the far side is there at all. Most block, with a time limit, and belong on threads of their own.

use std::{
    io,
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    Error,
    udp::{LinkBinding, bind_to_link},
};

/// A UDP socket of the link that sends to anybody, and does not block.
pub fn udp_to_any(binding: &LinkBinding<'_>) -> Result<UdpSocket, Error> {
    let socket = open(binding, Type::DGRAM, Protocol::UDP)?;
    let made = socket.set_nonblocking(true);
    made.map_err(|source| Error::Os {
        doing: "have a socket not block".into(),
        source,
    })?;
    Ok(socket.into())
}

/// A UDP socket of the link that is connected to `to`, and so hears of ICMP errors.
pub fn udp(binding: &LinkBinding<'_>, to: SocketAddr) -> Result<UdpSocket, Error> {
    let socket = open(binding, Type::DGRAM, Protocol::UDP)?;
    let connected = socket.connect(&to.into());
    connected.map_err(|source| Error::Os {
        doing: format!("reach {to} by {}", binding.device),
        source,
    })?;
    Ok(socket.into())
}

/// A socket like [`udp`] whose packets leave in one piece or not at all.
pub fn udp_in_one_piece(binding: &LinkBinding<'_>, to: SocketAddr) -> Result<UdpSocket, Error> {
    let socket = udp(binding, to)?;
    // Such are the sockets of QUIC, and this is what makes them; but ours blocks.
    let made = noq_udp::UdpSocketState::new((&socket).into());
    made.and_then(|_| socket.set_nonblocking(false))
        .map_err(|source| Error::Os {
            doing: "keep packets in one piece".into(),
            source,
        })?;
    Ok(socket)
}

/// A TCP connection over the link.
///
/// # Errors
/// What became of it instead: refused, unreachable, or timed out.
pub fn tcp(binding: &LinkBinding<'_>, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let socket = open(binding, Type::STREAM, Protocol::TCP).map_err(io::Error::other)?;
    socket.connect_timeout(&to.into(), limit)?;
    Ok(socket.into())
}

fn open(binding: &LinkBinding<'_>, kind: Type, protocol: Protocol) -> Result<Socket, Error> {
    let family = Domain::for_address(SocketAddr::new(binding.address, 0));
    let socket = Socket::new(family, kind, Some(protocol));
    let socket = socket.map_err(|source| Error::Os {
        doing: "open a socket".into(),
        source,
    })?;
    bind_to_link(&socket, binding)?;
    Ok(socket)
}
