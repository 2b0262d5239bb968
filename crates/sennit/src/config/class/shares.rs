//! What classes are promised of links: no more than there is.

use sennit_packet::Bitrate;
use toml::Spanned;

use super::ReadClass;
use crate::config::{Link, Share, finding::Finding};

/// Looks at what all classes are promised together, and at what each may have at most.
pub(super) fn check(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    check_percentages(classes, findings);
    for class in classes {
        check_limit(class, findings);
    }
}

fn check_percentages(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let percent = |share: &Spanned<Share>| match *share.get_ref() {
        Share::Percent(part) => u32::from(part),
        Share::Rate(_) => 0,
    };
    let mut sum = 0_u32;
    for share in classes.iter().filter_map(|class| class.share.as_ref()) {
        sum += percent(share);
        if sum > 100 {
            findings.push(
                Finding::error(share.span(), format!("the shares add up to {sum} %")).help(
                    "a share is guaranteed on each link, so all of them together are at most 100 %",
                ),
            );
        }
    }
    let last = classes.iter().rev().find_map(|class| class.share.as_ref());
    if let (100, Some(last)) = (sum, last) {
        let all_share = classes.iter().all(|class| class.share.is_some());
        let complete = classes.iter().any(ReadClass::catches_all);
        if !(all_share && complete) {
            findings.push(
                Finding::warning(
                    last.span(),
                    "the shares leave nothing for the other classes",
                )
                .help(
                    "a class without a share, like `default`, has 1 % of a link while the others \
                     are busy",
                ),
            );
        }
    }
}

/// A share is of no use above the limit.
fn check_limit(class: &ReadClass, findings: &mut Vec<Finding>) {
    let (Some(share), Some(limit)) = (&class.share, &class.limit) else {
        return;
    };
    if matches!(*share.get_ref(), Share::Rate(rate) if rate > *limit.get_ref()) {
        let message = format!("class `{}` is limited to less than its share", class.name());
        findings.push(Finding::warning(share.span(), message));
    }
}

/// Shares that are rates, on links whose rates the config says.
pub(in crate::config) fn check_rates(
    classes: &[ReadClass],
    links: &[Link],
    findings: &mut Vec<Finding>,
) {
    for link in links {
        for (way, rate) in [("up", link.up), ("down", link.down)] {
            let lacking = rate.and_then(|rate| first_without(classes, &link.name, way, rate));
            findings.extend(lacking);
        }
    }
}

/// The first share that a link does not carry beside those before it. That percentages alone are
/// more than the link is an error already.
fn first_without(classes: &[ReadClass], link: &str, way: &str, rate: Bitrate) -> Option<Finding> {
    let (mut left, mut is_rate) = (rate, false);
    for class in classes.iter().filter(|class| class.may_use(link)) {
        let Some(share) = &class.share else { continue };
        let wanted = match *share.get_ref() {
            Share::Percent(part) => Bitrate::bps(rate.as_bps() / 100 * u64::from(part)),
            Share::Rate(wanted) => {
                is_rate = true;
                wanted
            }
        };
        if is_rate && wanted > left {
            let name = class.name();
            let (message, help) = match wanted > rate {
                true => (
                    format!("link `{link}` carries less {way} than the share of class `{name}`"),
                    "the class gets no more there than the link carries",
                ),
                false => (
                    format!("the shares add up to more than link `{link}` carries {way}"),
                    "they are served in the order of the file, and the last get less than theirs",
                ),
            };
            return Some(Finding::warning(share.span(), message).help(help));
        }
        left = left.saturating_sub(wanted);
    }
    None
}
