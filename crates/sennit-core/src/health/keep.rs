//! How often a path is probed while nothing flows.

use std::time::Duration;

/// How often an idle path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// A probe is due when nothing was heard on the way for this long.
    pub(super) way: Duration,
    /// A probe is due when this path itself was not heard for this long, whatever others hear.
    pub(super) own: Duration,
    /// What is heard is answered by a probe.
    pub(super) answers: bool,
}

impl Keep {
    /// At the end that opened the path, which is the one behind a NAT. Many NATs forget a UDP
    /// mapping after 30 s (RFC 4787 §4.3 asks for two minutes).
    pub const ASKING: Self = Self {
        way: Duration::from_secs(25),
        own: Duration::from_secs(300),
        answers: true,
    };
    /// What an edge does on a path that is used only when better ones fail. A mapping may be lost
    /// there: the first probe makes another.
    pub const ASKING_RARELY: Self = Self {
        way: Duration::from_secs(50),
        ..Self::ASKING
    };
    /// At the end that answers. It asks by itself only when the other should have, so that there is
    /// one exchange and not two.
    pub const ANSWERING: Self = Self {
        way: Duration::from_secs(40),
        own: Duration::from_secs(400),
        answers: true,
    };
    /// What a hub does on a path that is used only when better ones fail.
    pub const ANSWERING_RARELY: Self = Self {
        way: Duration::from_secs(80),
        ..Self::ANSWERING
    };
    /// Towards a peer that does not probe: within the idle timeout of any QUIC stack.
    pub const ALONE: Self = Self {
        way: Duration::from_secs(10),
        own: Duration::from_secs(10),
        answers: false,
    };
    /// The longest silence of the path that keeps the connection, which must not time out.
    const FIRST: Duration = Duration::from_secs(120);

    /// How often the path is probed that carries the acknowledgements of all: they answer what is
    /// heard there.
    pub fn of_the_first(self) -> Self {
        let own = match self.own {
            own if own > Self::ASKING.own => Self::FIRST + Self::FIRST / 4,
            own => own.min(Self::FIRST),
        };
        Self {
            own,
            answers: false,
            ..self
        }
    }
}
