//! What links carry, from the sizes of headers alone, in closed form.
//!
//! A [`Load`] says what is sent: its [`Cell`] is the least that repeats, such as one TCP segment,
//! with the IP packets that carry it and its share of the acknowledgements that come back. A
//! [`Medium`] puts each IP packet into a frame. Goodput is then the rate of a link, times the
//! payload of a cell, over the bytes that the cell takes there, times the share that is not lost:
//!
//! ```
//! use sennit_netem::Direction;
//! use sennit_predict::{Load, Medium, predict};
//!
//! let links = ["10/1".parse().expect("a link")];
//! let tcp = predict(&Load::tcp(), &Medium::default(), &links, Direction::Up);
//! assert_eq!(tcp.expect("it fits").goodput_text(), "9.41 Mbit/s");
//! ```
//!
//! The sizes of the tunnel's own headers are those that the engine writes
//! ([`sennit_engine::headers`]). Nothing here knows congestion control: where losses are taken for
//! congestion, less gets through.

mod args;
mod load;
mod medium;
mod outcome;
mod repairs;
mod sweep;
mod text;

pub use args::{HeadersWord, Inner, LoadArgs, MediumArgs, PredictArgs, SweepArgs, What};
pub use load::{Answer, Cell, Load, PACKET_NUMBER, Tunnel};
pub use medium::{Counts, Ip, Medium, Packet, Part};
pub use outcome::{LinkFigures, Prediction, predict};
pub use sweep::{Fit, Point, Sweep};

/// Why nothing can be predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// A packet has no room for payload.
    #[error("an MTU of {mtu} bytes leaves no room for payload: {headers} bytes are headers")]
    NoRoom {
        /// Of the link, or inside the tunnel.
        mtu: usize,
        /// Bytes of headers.
        headers: usize,
    },
    /// A path that does not carry datagrams of 1200 bytes carries no QUIC (RFC 9000 §14).
    #[error(
        "there is no QUIC connection over an MTU of {mtu} bytes: it needs UDP datagrams of 1200 bytes \
         (RFC 9000 §14), which are packets of {needed}"
    )]
    NoQuic {
        /// Of the link.
        mtu: usize,
        /// Bytes of the IP packet with the smallest datagram that has to pass.
        needed: usize,
    },
    /// Not even half of an inner packet fits.
    #[error(
        "half of an inner packet of {inner} bytes takes {needed} bytes and the MTU of the link is \
         {mtu}: use a smaller --inner-mtu"
    )]
    HalfTooLarge {
        /// Bytes of the inner packet.
        inner: usize,
        /// Bytes of the IP packet with half of it.
        needed: usize,
        /// Of the link.
        mtu: usize,
    },
    /// The largest UDP datagram has fewer bytes (RFC 768).
    #[error("a UDP datagram has at most 65507 bytes of payload, not {0}")]
    TooLarge(usize),
    /// A link without a rate carries anything.
    #[error("link {0} has no rate")]
    NoRate(String),
    /// A link follows a script, or its delay varies where a time is predicted.
    #[error("link {0} moves: only what stands still can be predicted")]
    Moves(String),
    /// A medium that both directions share has one rate and one loss.
    #[error("link {0}: with --half-duplex both directions are alike")]
    Unlike(String),
    /// It depends on what is lost.
    #[error("--fec: `auto` sends as much as losses ask for: write the code, like rlc:1/8")]
    AutoFec,
    /// There is nothing to repair from.
    #[error("--fec needs numbers: it excludes --bare")]
    BareFec,
    /// A sum of nothing.
    #[error("there is no link: give --rate or --link at least once")]
    NoLinks,
}
