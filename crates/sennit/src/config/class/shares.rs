//! What classes are promised of links: no more than there is.

use std::collections::BTreeSet;

use sennit_packet::Bitrate;

use super::ReadClass;
use crate::config::{Link, Share, finding::Finding};

/// Looks at what classes are promised together on each link, and at what each may have at most.
pub(in crate::config) fn check(classes: &[ReadClass], links: &[Link], findings: &mut Vec<Finding>) {
    check_percentages(classes, links, findings);
    for class in classes {
        check_limit(class, findings);
    }
    check_rates(classes, links, findings);
}

fn check_percentages(classes: &[ReadClass], links: &[Link], findings: &mut Vec<Finding>) {
    // Of each share one link is named.
    let mut said = BTreeSet::new();
    let complete = classes.iter().any(ReadClass::catches_all);
    for link in links.iter().map(|link| link.name.as_str()) {
        let there: Vec<&ReadClass> = classes.iter().filter(|it| it.may_use(link)).collect();
        let shares = || there.iter().filter_map(|class| class.share.as_ref());
        let mut sum = 0_u32;
        for share in shares() {
            sum += match *share.get_ref() {
                Share::Percent(part) => u32::from(part),
                Share::Rate(_) => 0,
            };
            if sum > 100 && said.insert(share.span().start) {
                let message = format!("the shares add up to {sum} % on link `{link}`");
                findings.push(Finding::error(share.span(), message).help(
                    "a share is guaranteed on each link that its class may use, so those of a link \
                     are at most 100 % together",
                ));
            }
        }
        let all_share = complete && there.iter().all(|class| class.share.is_some());
        if sum == 100
            && !all_share
            && let Some(last) = shares().next_back()
            && said.insert(last.span().start)
        {
            let message =
                format!("the shares leave nothing for the other classes on link `{link}`");
            findings.push(Finding::warning(last.span(), message).help(
                "a class without a share, like `default`, has 1 % of a link while the others are \
                 busy",
            ));
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
fn check_rates(classes: &[ReadClass], links: &[Link], findings: &mut Vec<Finding>) {
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
