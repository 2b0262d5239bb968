//! From the config to what the engine knows of how classes share links.

use std::{sync::Arc, time::Instant};

use sennit_core::ClassId;
use sennit_engine::{Plan, Sharing, Terms};
use sennit_packet::Bitrate;

use crate::config::{self, Class, EdgeConfig};

/// How classes share links, all of them with their numbers; what was before is kept if nothing of
/// it has changed, and else what it has found out about the links.
pub(super) fn sharing(
    config: &EdgeConfig,
    numbers: &[ClassId],
    links: &[config::Link],
    before: Option<&Arc<Sharing>>,
) -> Option<Arc<Sharing>> {
    let plan = plan(config, numbers, links);
    match before.filter(|before| *before.plan() == plan) {
        Some(same) => Some(Arc::clone(same)),
        None => Sharing::upward(plan, before, Instant::now()),
    }
}

fn plan(config: &EdgeConfig, numbers: &[ClassId], links: &[config::Link]) -> Plan {
    let classes = || numbers.iter().copied().zip(&config.classes);
    let caps = |of: fn(&config::Link) -> Option<Bitrate>| {
        let links = links.iter();
        links
            .filter_map(move |link| Some((link.name.clone(), of(link)?)))
            .collect()
    };
    Plan {
        classes: classes().map(|(id, class)| (id, terms(class))).collect(),
        names: classes()
            .map(|(id, class)| (id, class.name.clone()))
            .collect(),
        up: caps(|link| link.up),
        down: caps(|link| link.down),
        total: None,
        asked: config.share_links || links.iter().any(|link| link.overflow),
    }
}

fn terms(class: &Class) -> Terms {
    Terms {
        share: class.share,
        limit: class.limit,
    }
}
