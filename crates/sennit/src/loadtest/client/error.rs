//! Why there are no figures.

use std::{io, net::SocketAddr, time::Duration};

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// Nothing came back.
    #[error("no test server answers at {server} within {} s{}", patience.as_secs_f64(), because(.refusal.as_deref()))]
    NoServer {
        /// Where nobody is.
        server: SocketAddr,
        /// How long was waited.
        patience: Duration,
        /// What the kernel said of our packets.
        refusal: Option<String>,
    },
    /// Somebody else is there.
    #[error("{server} speaks QUIC, but {}", other(*.perf))]
    OtherProtocol {
        /// Where.
        server: SocketAddr,
        /// It was asked for the protocol of other stacks.
        perf: bool,
    },
    /// Its certificate is another.
    #[error(
        "the certificate of {server} is not the one of --pin: this is another server, or somebody in between"
    )]
    OtherServer {
        /// Where.
        server: SocketAddr,
    },
    /// It does not know how to protect messages.
    #[error("the test server at {server} is of a version that cannot protect messages (--fec)")]
    NoFec {
        /// Where.
        server: SocketAddr,
    },
    /// The server ended it, in its own words.
    #[error("{server} ended the test: {reason}")]
    Refused {
        /// Where.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection to {server} is over: {reason}")]
    Broken {
        /// Where.
        server: SocketAddr,
        /// Why.
        reason: String,
    },
    /// It was stopped while the link that is to be emulated was tried.
    #[error("interrupted while the emulated link was checked, before the test began")]
    Unbegun,
    /// It was stopped before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// This host.
    #[error("this host: {0}")]
    Host(String),
}

fn other(perf: bool) -> &'static str {
    match perf {
        true => "it does not serve `perf`",
        false => "it is no test server of this version",
    }
}

fn because(refusal: Option<&str>) -> String {
    refusal.map_or(String::new(), |reason| format!(": {reason}"))
}

impl From<io::Error> for TestError {
    fn from(error: io::Error) -> Self {
        Self::Host(error.to_string())
    }
}

impl From<String> for TestError {
    fn from(error: String) -> Self {
        Self::Host(error)
    }
}
