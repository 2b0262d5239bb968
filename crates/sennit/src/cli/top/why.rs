//! Why the selected row is as it is, and which flows there are: sentences, without a layout.

use super::entries::{Key, Kind};
use super::picture::Picture;
use crate::status::{self, FlowReason, FlowStatus, LinkAccount, LinkStatus, Reason, Status};

/// Why a link carries what it carries, or why a class or site goes the ways that it goes.
pub(super) fn reasons(picture: &Picture, key: &Key) -> Vec<String> {
    let status = &picture.seen.status;
    let name = key.name.as_str();
    let mut lines = match key.kind {
        Kind::Link => status
            .links
            .iter()
            .find(|link| link.name == name)
            .map(of_link),
        Kind::Class | Kind::Site => of_row(picture, key),
    }
    .unwrap_or_default();
    lines.extend(ways(status, key).iter().map(|reason| way(reason, key.kind)));
    lines
}

/// The reasons of the paths that a row is made of.
fn ways(status: &Status, key: &Key) -> Vec<Reason> {
    let name = key.name.as_str();
    match key.kind {
        Kind::Link => status::reasons(status, Some(name)),
        Kind::Class | Kind::Site => {
            let mut ways = status::reasons(status, None);
            ways.retain(|reason| match key.kind {
                Kind::Site => reason.site.as_deref() == Some(name),
                Kind::Class | Kind::Link => reason.class == name,
            });
            ways
        }
    }
}

fn way(reason: &Reason, kind: Kind) -> String {
    let Reason {
        class, link, why, ..
    } = reason;
    let what = match kind {
        Kind::Link => class.clone(),
        Kind::Class => link.clone(),
        Kind::Site => format!("{class} on {link}"),
    };
    let share = reason
        .share_ratio
        .map(|share| format!(" {}", percent(share)));
    format!("{what}{}: {why}", share.unwrap_or_default())
}

fn of_link(link: &LinkStatus) -> Vec<String> {
    let limits = status::limits(link);
    let cycle = link.account.as_ref().and_then(cycle);
    let known = link.reason.iter().chain(&link.hub);
    known.chain(&limits).chain(&cycle).cloned().collect()
}

/// What is used of a cap.
fn cycle(account: &LinkAccount) -> Option<String> {
    let (used, cap) = (
        status::bytes(account.used_bytes),
        status::bytes(account.cap_bytes?),
    );
    let forecast = account.forecast_bytes.map(status::bytes);
    let forecast = forecast.map(|forecast| format!(", and comes to {forecast}"));
    Some(format!(
        "its cycle until {} has carried {used} of {cap}{}",
        account.cycle_end,
        forecast.unwrap_or_default()
    ))
}

/// What a row of a class or a site says itself, if that is more than its paths do.
fn of_row(picture: &Picture, key: &Key) -> Option<Vec<String>> {
    let entry = picture.entries.iter().find(|entry| entry.key == *key)?;
    let why = Some(entry.row.why.clone()).filter(|why| !why.is_empty());
    Some(why.into_iter().collect())
}

/// The flows that the daemon tells of, those that send most first.
pub(super) fn flows(status: &Status) -> Vec<FlowReason> {
    let mut flows = status::flow_reasons(status);
    let rate = |it: &FlowReason| it.flow.rate_bytes_per_second;
    flows.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    flows
}

/// Which class a flow is in, and at a hub of which site.
pub(super) fn class_of(flow: &FlowReason) -> String {
    match &flow.site {
        Some(site) => format!("{site}/{}", flow.class),
        None => flow.class.clone(),
    }
}

/// The links that a flow takes, with what each carries of it.
pub(super) fn links_of(flow: &FlowStatus) -> String {
    let shares = flow.links.iter();
    let shares: Vec<String> = shares
        .map(|it| format!("{} {}", it.link, percent(it.share_ratio)))
        .collect();
    match shares.is_empty() {
        true => "silent".into(),
        false => shares.join(", "),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", 100.0 * ratio)
}
