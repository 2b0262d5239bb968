//! Connections come and go.

use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

use bytes::Bytes;
use noq_proto::{ClientConfig, Connection, ConnectionHandle, Incoming, PathId, VarInt};
use sennit_core::{ClassId, Delivery, Policy};

use super::{Conn, Node};
use crate::{
    facts::LinkLabel, finish::Finish, h3::H3, ids::ConnId, locals::Local, remotes::disguised,
    treatment::Treatment, tunnel::Tunnel,
};

/// An incoming connection that nobody decided about yet.
pub(crate) struct Newcomer {
    pub incoming: Incoming,
    /// Where it came to.
    pub local: Local,
    /// Bytes of the UDP datagram that it began with.
    pub first_datagram: usize,
}

impl<R> Node<R> {
    /// Starts a handshake from `local`.
    #[expect(clippy::too_many_arguments, reason = "all of it makes one connection")]
    pub(crate) fn connect(
        &mut self,
        config: ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        local: Local,
        treatment: Treatment,
        role: R,
        now: Instant,
    ) -> Result<ConnId, noq_proto::ConnectError> {
        let (handle, conn) = self
            .endpoint
            .connect(now, config, disguised(remote), server_name)?;
        Ok(self.add(handle, conn, H3::client(), local, treatment, role, now))
    }

    /// The next incoming connection.
    pub(crate) fn poll_incoming(&mut self) -> Option<Newcomer> {
        self.incoming.pop_front()
    }

    /// Accepts an incoming connection.
    pub(crate) fn accept(&mut self, newcomer: Newcomer, role: R, now: Instant) -> Option<ConnId> {
        let Newcomer {
            incoming, local, ..
        } = newcomer;
        let treatment = Treatment {
            policy: Policy::Single,
            delivery: Delivery::Datagram,
            ..Treatment::default()
        };
        let mut buffer = Vec::new();
        match self.endpoint.accept(incoming, now, &mut buffer, None) {
            Ok((handle, conn)) => {
                let id = self.add(handle, conn, H3::server(), local, treatment, role, now);
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.tunnel.note_first_datagram(newcomer.first_datagram);
                }
                Some(id)
            }
            Err(refused) => {
                tracing::debug!(cause = %refused.cause, "connection attempt failed");
                if let Some(transmit) = refused.response {
                    self.queue_stateless(&transmit, local, buffer);
                }
                None
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it makes one connection")]
    fn add(
        &mut self,
        handle: ConnectionHandle,
        conn: Connection,
        h3: H3,
        first_local: Local,
        treatment: Treatment,
        role: R,
        now: Instant,
    ) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let tunnel = Tunnel::new(conn, treatment, &self.settings, now);
        self.conns.insert(
            id,
            Conn {
                tunnel,
                h3,
                role,
                handle,
                first_local,
                wake: None,
                finish: Finish::default(),
                may_write: false,
                pipe: None,
                class: ClassId::default(),
                dscp: 0,
                detours: BTreeMap::new(),
            },
        );
        self.by_handle.insert(handle.0, id);
        self.turns.push(id, ClassId::default());
        id
    }

    /// Starts closing; the connection lingers until the peer has surely heard.
    pub(crate) fn close(&mut self, id: ConnId, code: u64, reason: &str, now: Instant) {
        if let Some(conn) = self.get_mut(id) {
            let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
            conn.tunnel
                .conn
                .close(now, code, Bytes::copy_from_slice(reason.as_bytes()));
        }
    }

    /// Takes over a validated path under the given link.
    pub(crate) fn adopt_path(&mut self, id: ConnId, path: PathId, link: LinkLabel, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let local = conn
            .tunnel
            .conn
            .network_path(path)
            .ok()
            .and_then(|network| self.locals.resolve(network.local_ip()?))
            .unwrap_or(conn.first_local);
        let pipe = self.pipes.of(conn.pipe);
        conn.tunnel.add_path(pipe, path, local.socket, link, now);
        self.turns.push(id, conn.class);
        self.settle_links(id);
    }
}
