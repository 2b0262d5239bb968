//! What is known of a class's protection.

use std::fmt::{self, Display};

use sennit_core::frame::Tidings;
use sennit_fec::{Code, DecoderStats, Fec};

use super::Protection;

/// Packets that are protected, and what repairs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Protected packets that left.
    pub sources_sent: u64,
    /// Repairs that left.
    pub repairs_sent: u64,
    /// Protected packets that arrived.
    pub sources_received: u64,
    /// Repairs that arrived.
    pub repairs_received: u64,
}

/// How a class is protected, and what came of it since its connection began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FecStatus {
    /// What was asked for.
    pub setting: Fec,
    /// The code that runs, if one does.
    pub code: Option<Code>,
    /// Why.
    pub reason: FecReason,
    /// What left and arrived here.
    pub symbols: Symbols,
    /// Bytes of protected packets that left, and of repairs.
    pub source_bytes: u64,
    /// Bytes of the repairs.
    pub repair_bytes: u64,
    /// Repairs that found no room on any path in time.
    pub unsent: u64,
    /// Packets that were lost and not sent again, because they had come back.
    pub spared: u64,
    /// What the decoder here made of what arrived.
    pub decoder: DecoderStats,
    /// Packets that came back when they had been given up.
    pub too_late: u64,
    /// What the far end last said of what left here.
    pub told: Tidings,
}

impl FecStatus {
    /// Of a class of which nothing is known yet.
    pub(crate) fn new(setting: Fec) -> Self {
        Self {
            setting,
            ..Self::default()
        }
    }

    /// Bytes of repairs for each byte that they protect.
    pub fn overhead(&self) -> f64 {
        self.repair_bytes as f64 / self.source_bytes.max(1) as f64
    }
}

/// Why packets are protected or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FecReason {
    /// It is not asked for.
    #[default]
    Off,
    /// The far end does not take repairs.
    Peer,
    /// It was asked for by name.
    Configured,
    /// Too little is lost.
    FewLosses,
    /// What is lost is sent again in time.
    SentAgain,
    /// Every packet is sent more than once.
    Copies,
    /// What is lost would come too late if it were sent again.
    TooFar,
    /// It would for calls and the like; transfers are not protected.
    TooFarForCalls,
    /// A lost packet is not sent again.
    NotSentAgain,
    /// Little came back of what was lost.
    NoHelp,
}

impl Display for FecReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "not asked for",
            Self::Peer => "the far end does not take repairs",
            Self::Configured => "configured",
            Self::FewLosses => "the links lose too little",
            Self::SentAgain => "what is lost is sent again in time",
            Self::Copies => "every packet is sent more than once",
            Self::TooFar => "what is lost comes late when it is sent again",
            Self::TooFarForCalls => {
                "what is lost of anything but a transfer comes late when it is sent again"
            }
            Self::NotSentAgain => "what is lost is not sent again",
            Self::NoHelp => "little of what is lost comes back by it",
        })
    }
}

impl Protection {
    /// What is known of it, for a class whose far end takes repairs or not.
    pub(crate) fn status(&self, peer_takes: bool) -> FecStatus {
        let mut status = FecStatus::new(self.fec);
        (status.code, status.reason) = match self.fec {
            Fec::Off => (None, FecReason::Off),
            Fec::Fixed(_) | Fec::Auto if !peer_takes => (None, FecReason::Peer),
            Fec::Fixed(code) => (Some(code), FecReason::Configured),
            Fec::Auto => (self.chooser.code(), self.chooser.reason()),
        };
        if let Some(sending) = &self.sending {
            status.symbols = sending.symbols;
            (status.source_bytes, status.repair_bytes) =
                (sending.source_bytes, sending.repair_bytes);
            (status.unsent, status.spared) = (sending.unsent, sending.spared);
            status.told = sending.told.clone();
        }
        if let Some(receiving) = &self.receiving {
            status.symbols.sources_received = receiving.symbols.sources_received;
            status.symbols.repairs_received = receiving.symbols.repairs_received;
            status.decoder = receiving.decoder.stats();
            status.decoder.malformed += receiving.malformed;
            status.too_late = receiving.too_late;
        }
        status
    }
}
