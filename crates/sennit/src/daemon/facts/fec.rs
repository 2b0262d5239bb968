//! Forward error correction, as a status shows it.

use sennit_engine::facts::{FecStatus as Facts, Symbols};

use crate::status::{FecStatus, PathFecStatus};

pub(super) fn class(facts: &Facts) -> FecStatus {
    let Facts {
        symbols, decoder, ..
    } = facts;
    let came = decoder.sources + decoder.recovered - decoder.late;
    FecStatus {
        setting: facts.setting.to_string(),
        code: facts.code.map(|code| code.to_string()),
        reason: facts.reason.to_string(),
        sources_sent: symbols.sources_sent,
        repairs_sent: symbols.repairs_sent,
        overhead_ratio: facts.overhead(),
        repairs_unsent: facts.unsent,
        spared_packets: facts.spared,
        sources_received: symbols.sources_received,
        repairs_received: symbols.repairs_received,
        recovered_packets: decoder.recovered,
        too_late_packets: facts.too_late,
        failed_repairs: decoder.failed,
        lost_packets: decoder.lost,
        residual_loss_ratio: decoder.lost as f64 / (decoder.lost + came).max(1) as f64,
        malformed_repairs: decoder.malformed,
        far_recovered_packets: facts.told.recovered.into(),
        far_lost_packets: facts.told.lost.into(),
    }
}

pub(super) fn path(symbols: Symbols) -> PathFecStatus {
    PathFecStatus {
        sources_sent: symbols.sources_sent,
        repairs_sent: symbols.repairs_sent,
        sources_received: symbols.sources_received,
        repairs_received: symbols.repairs_received,
    }
}
