//! The HTTP/3 subset and the capsules of CONNECT-IP (RFC 9484) and CONNECT-UDP (RFC 9298), as a
//! state machine.
//!
//! One [`Connection`] is the HTTP/3 side of one QUIC connection, client or server. It owns no
//! socket, no QUIC and no clock: whoever runs QUIC hands in what arrived on streams
//! (`handle_stream_data`, `handle_stream_reset`, `handle_stop_sending`) or says what to send
//! (`send_request`, `respond`, `send_capsule`, …), and after each such call drains
//! [`Connection::poll_output`], which says what to do with streams, and
//! [`Connection::poll_event`], which says what the peer wants. Between two drains nothing is
//! queued but what that one call caused. HTTP/3 has no timers, so there is nothing to wake for.
//!
//! Packets do not pass through here: [`datagram`] gives the few bytes that stand in front of each.
//!
//! ```
//! use sennit_masque::{Connection, Event, Output, StreamId, connect_ip};
//!
//! let (mut edge, mut hub) = (Connection::client(), Connection::server());
//! // The hub's first output is its SETTINGS; QUIC carries them to the edge on stream 3.
//! let Some(Output::Control(settings)) = hub.poll_output() else { unreachable!() };
//! edge.handle_stream_data(StreamId(3), settings, false);
//! assert!(matches!(edge.poll_event(), Some(Event::Settings(_))));
//!
//! let head = connect_ip::request("hub.example:443", &connect_ip::Scope::ANY.path());
//! edge.send_request(StreamId(0), &head, None)?;
//! # Ok::<(), sennit_masque::SendError>(())
//! ```
//!
//! What is spoken: SETTINGS, requests and responses with header fields (static QPACK), extended
//! CONNECT with capsules, bodies up to [`MAX_BODY`], GOAWAY. What is understood and skipped:
//! frames, streams, settings and capsules of unknown type. What is not there: server push, the
//! dynamic table of QPACK, priorities, trailers and HEAD requests of our own.
//!
//! An error of the peer ends one stream ([`Event::Failed`]) or the connection ([`Output::Close`]),
//! as the RFCs say for each rule. What the peer can make us hold is bounded: [`MAX_STREAMS`],
//! [`MAX_UNI_STREAMS`] and, over all of them, [`MAX_BUFFERED`].

pub mod capsule;
pub mod connect_ip;
pub mod connect_udp;
mod connection;
pub mod datagram;
mod error;
mod frame;
mod message;
mod prefix;
pub mod qpack;
mod settings;
mod stream_id;
mod template;
mod tlv;
pub mod varint;

pub use capsule::{Capsule, CapsuleError, CapsuleReader};
pub use connection::{Connection, Event, Output, SendError};
pub use error::{Code, ConnectionError, Malformed, StreamError};
pub use message::{Fields, RequestHead, ResponseHead};
pub use prefix::{IpPrefix, PrefixError};
pub use settings::Settings;
pub use stream_id::StreamId;

/// Requests that a server follows at once. QUIC's own limit of bidirectional streams
/// (`initial_max_streams_bidi`) has to be at most this.
pub const MAX_STREAMS: usize = 64;

/// Unidirectional streams followed at once; HTTP/3 needs three, the rest is room for GREASE.
/// QUIC's own limit has to be at most this.
pub const MAX_UNI_STREAMS: usize = 16;

/// The header section accepted, announced as SETTINGS_MAX_FIELD_SECTION_SIZE: ours have a few
/// hundred bytes, a client certificate in a field some thousand.
pub const MAX_FIELD_SECTION: usize = 16 << 10;

/// The body accepted in a request or response that is not a tunnel: it is for joining, not for
/// downloads.
pub const MAX_BODY: u64 = 64 << 10;

/// Bytes of unfinished frames and capsules held over all streams: one largest capsule on each of
/// a few tunnels, and the heads of many requests.
pub const MAX_BUFFERED: usize = 256 << 10;

/// Property tests run the same cases every time, unless PROPTEST_RNG_SEED asks for others.
#[cfg(test)]
fn seeded() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let config = Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0x5e44),
        RngSeed::Fixed(seed) => RngSeed::Fixed(seed),
    };
    Config {
        rng_seed,
        failure_persistence: None,
        ..config
    }
}
