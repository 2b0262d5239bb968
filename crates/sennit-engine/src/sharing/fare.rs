//! How a class fares on a link, as one end tells it to the other.

use std::collections::BTreeMap;

use sennit_core::{ClassId, frame::Fare};
use sennit_packet::Bitrate;

use super::{Cause, Others};
use crate::facts::PathShare;

/// What is told of a class on a path, of which so many millionths were `lost`; of the others those
/// that send most.
pub(crate) fn fare(path: u32, share: &PathShare, mut others: Others, lost: u32) -> Fare {
    others.sort_by_key(|&(_, rate)| std::cmp::Reverse(rate));
    others.truncate(Fare::MOST_OTHERS);
    others.sort_unstable();
    Fare {
        path,
        configured: share.configured,
        held: share.held,
        cause: share.cause.number(),
        link_queue: share.link_queue,
        link_rate: share.link_rate,
        guaranteed: share.guaranteed,
        rate: share.rate,
        lost,
        others: others
            .into_iter()
            .map(|(class, rate)| (class.0, rate))
            .collect(),
    }
}

/// What was told. Classes that are not among `names` are left out.
pub(crate) fn heard(fare: &Fare, names: &BTreeMap<ClassId, String>) -> PathShare {
    let named = |&(class, rate): &(u8, Bitrate)| Some((names.get(&ClassId(class))?.clone(), rate));
    PathShare {
        link_rate: fare.link_rate,
        configured: fare.configured,
        cause: Cause::of(fare.cause),
        link_queue: fare.link_queue,
        guaranteed: fare.guaranteed,
        rate: fare.rate,
        held: fare.held,
        others: fare.others.iter().filter_map(named).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard_and_unknown_classes_are_left_out() {
        let rate = Bitrate::bytes_per_second;
        let share = PathShare {
            link_rate: Bitrate::mbit(50),
            configured: false,
            cause: Cause::Stalled,
            link_queue: None,
            guaranteed: Bitrate::mbit(1),
            rate: Bitrate::mbit(2),
            held: true,
            others: Vec::new(),
        };
        let all = (0..12).map(|class| (ClassId(class), rate(125 * u64::from(class))));
        let told = fare(3, &share, all.collect(), 17);
        let classes: Vec<u8> = told.others.iter().map(|&(class, _)| class).collect();
        assert_eq!(classes, [4, 5, 6, 7, 8, 9, 10, 11]);
        let names = [(ClassId(5), "bulk".to_owned()), (ClassId(77), "x".into())].into();
        let expected = PathShare {
            others: vec![("bulk".into(), rate(625))],
            ..share
        };
        assert_eq!(heard(&told, &names), expected);
        let later = Fare { cause: 99, ..told };
        assert_eq!(heard(&later, &names).cause, Cause::Unknown);
    }
}
