//! Why a link waits behind others.

use std::collections::BTreeMap;

/// What puts a link before or behind others, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::daemon) struct Standing {
    /// It has used up its cap.
    pub(in crate::daemon) over: bool,
    /// As the config has it.
    pub(in crate::daemon) tier: u8,
    pub(in crate::daemon) cost: u8,
}

/// Those of an edge's links, by their names. A hub hears only in what order they are used.
pub(in crate::daemon) type Standings = BTreeMap<String, Standing>;

/// The reason for a link that waits while the best one works.
pub(super) fn reserve(own: Option<Standing>, best: Option<Standing>) -> String {
    let behind = own.zip(best).filter(|(own, best)| own > best);
    match behind {
        Some((own, best)) if own.over != best.over => "in reserve: its cap is used up".into(),
        Some((own, best)) if own.tier != best.tier => {
            let tier = own.tier;
            format!("in reserve: its tier is {tier}, and links of a lower one work")
        }
        Some(_) => "in reserve: cheaper links work".into(),
        None => "in reserve: links that the edge prefers work".into(),
    }
}

/// The reason for a link that is used alone while others work, of which `next` is the best.
pub(super) fn first(own: Option<Standing>, next: Option<Standing>) -> &'static str {
    let before = own.zip(next).filter(|(own, next)| own < next);
    match before {
        Some((own, next)) if own.over != next.over => "the caps of the others are used up",
        Some((own, next)) if own.tier != next.tier => "it has the lowest tier that works",
        Some(_) => "it is the cheapest that works",
        None => "of those that work it is the first",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_used_alone_says_what_puts_it_before_the_next() {
        let standing = |over, tier, cost| Some(Standing { over, tier, cost });
        let best = standing(false, 1, 0);
        for (next, reason) in [
            (standing(true, 1, 0), "the caps of the others are used up"),
            (standing(false, 2, 0), "it has the lowest tier that works"),
            (standing(false, 1, 5), "it is the cheapest that works"),
            (best, "of those that work it is the first"),
            (None, "of those that work it is the first"),
        ] {
            assert_eq!(first(best, next), reason);
        }
    }

    #[test]
    fn the_reason_is_the_cap_before_the_tier_and_the_tier_before_the_cost() {
        let standing = |over, tier, cost| Some(Standing { over, tier, cost });
        let best = standing(false, 1, 0);

        assert_eq!(
            reserve(standing(true, 2, 5), best),
            "in reserve: its cap is used up"
        );
        assert_eq!(
            reserve(standing(false, 2, 5), best),
            "in reserve: its tier is 2, and links of a lower one work"
        );
        assert_eq!(
            reserve(standing(false, 1, 5), best),
            "in reserve: cheaper links work"
        );
        assert_eq!(
            reserve(None, None),
            "in reserve: links that the edge prefers work"
        );
    }
}
