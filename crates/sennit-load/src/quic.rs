//! Bulk data over QUIC: a plain `quinn` client and server with one stream, for a time.
//!
//! Everything is as quinn comes (CUBIC, a packet is lost when three later ones have arrived, GSO),
//! but for windows, which are as large as TCP's here, and the receive buffers of the sockets.

use std::error::Error as StdError;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use quinn::{TransportConfig, VarInt};
use sennit_netem::Direction;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Received;

/// The name in the server's certificate.
const NAME: &str = "server.lab";

/// 1 Gbit/s at 100 ms each way fits, as with the TCP buffers of the hosts.
const WINDOW: u32 = 32 << 20;

/// What QUIC programs ask for: a receiver that the CPU leaves for 50 ms at 300 Mbit/s loses
/// nothing.
pub const RECEIVE_BUFFER: usize = 4 << 20;

/// What went wrong is for people to read.
pub type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

/// What came of a transfer.
#[derive(Debug)]
pub struct Transferred {
    /// What arrived, by time.
    pub received: Received,
    /// Packets that the sender took for lost.
    pub lost: u64,
}

/// Sends as much as the connection takes for `span`. The far socket is bound to `address`, and both
/// have the buffers that the caller gave them ([`RECEIVE_BUFFER`]).
pub fn transfer(
    near: UdpSocket,
    far: UdpSocket,
    address: SocketAddr,
    direction: Direction,
    span: Duration,
    bin: Duration,
) -> Outcome<Transferred> {
    Runtime::new()?.block_on(async {
        let (near, far) = connect(near, far, address).await?;
        let (sender, receiver) = match direction {
            Direction::Up => (near, far),
            Direction::Down => (far, near),
        };
        run(&sender, &receiver, span, bin).await
    })
}

/// One connection: the near end and the server's.
async fn connect(
    near: UdpSocket,
    far: UdpSocket,
    address: SocketAddr,
) -> Outcome<(Connection, Connection)> {
    let (client, server) = configs()?;
    let endpoint = |server, socket| {
        let config = EndpointConfig::default();
        Endpoint::new(config, server, socket, Arc::new(TokioRuntime))
    };
    let (near, far) = (endpoint(None, near)?, endpoint(Some(server), far)?);
    let connecting = near.connect_with(client, address, NAME)?;
    let accepting = tokio::spawn(async move {
        let incoming = far.accept().await.ok_or("the server is closed")?;
        Outcome::Ok(incoming.await?)
    });
    Ok((connecting.await?, accepting.await??))
}

/// A server with a certificate of its own, and a client that trusts this one only.
fn configs() -> Outcome<(ClientConfig, ServerConfig)> {
    let identity = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = identity.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into());
    let transport = Arc::new(transport);
    client.transport_config(Arc::clone(&transport));
    server.transport_config(transport);
    Ok((client, server))
}

async fn run(
    sender: &Connection,
    receiver: &Connection,
    span: Duration,
    bin: Duration,
) -> Outcome<Transferred> {
    // Ends with the set.
    let mut sending = JoinSet::new();
    sending.spawn(send(sender.clone()));
    let mut received = Received::new(Instant::now(), bin);
    let end = received.start() + span;
    let receiving = receive(receiver, &mut received);
    // Data has no end, so what ends before the time is a failure.
    if let Ok(ended) = tokio::time::timeout_at(end.into(), receiving).await {
        ended?;
    }
    let lost = sender.stats().path.lost_packets;
    Ok(Transferred { received, lost })
}

/// Its errors are the receiver's too.
async fn send(connection: Connection) -> Outcome<()> {
    let block = vec![0x5a; 128 * 1024];
    let mut stream = connection.open_uni().await?;
    loop {
        stream.write_all(&block).await?;
    }
}

async fn receive(connection: &Connection, received: &mut Received) -> Outcome<()> {
    let mut stream = connection.accept_uni().await?;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        received.note(Instant::now(), chunk.bytes.len());
    }
    Err("the stream ended early".into())
}
