//! Conditions on what only the kernel knows: marks, incoming interfaces and users.

use sennit_linux::DeviceName;

use super::{Match, Word, words};
use crate::config::values::Wrong;

pub(super) fn mark(word: &Word<'_>) -> Result<(u32, u32), Wrong> {
    let wrong = |message: String| Wrong::new(message).at(word.at.clone());
    let (mark, mask) = word
        .text
        .split_once('/')
        .unwrap_or((word.text, "0xffffffff"));
    let (Some(mark), Some(mask)) = (number(mark), number(mask)) else {
        let message = format!("`{}` is no mark", word.text.escape_debug());
        return Err(wrong(message).help("write it as 0x10, 16 or 0x10/0xff"));
    };
    if mask == 0 {
        return Err(wrong("a mask of 0 looks at no bit".into())
            .help("every packet would match; leave the mask away to look at the whole mark"));
    }
    if mark & !mask != 0 {
        return Err(wrong("the mark has bits that the mask leaves out".into())
            .label(format!("did you mean `{:#x}/{mask:#x}`?", mark & mask)));
    }
    Ok((mark, mask))
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn interface(word: &Word<'_>) -> Result<String, Wrong> {
    let name: Result<DeviceName, _> = word.text.parse();
    let name = name.map_err(|error| Wrong::new(error.to_string()).at(word.at.clone()));
    name.map(|name| name.to_string())
}

pub(super) fn uids(word: &Word<'_>) -> Result<(u32, u32), Wrong> {
    let (first, last) = word.text.split_once('-').unwrap_or((word.text, word.text));
    // The last number stands for nobody.
    let uid = |text: &str| text.parse::<u32>().ok().filter(|uid| *uid < u32::MAX);
    match uid(first).zip(uid(last)) {
        Some((first, last)) if first <= last => Ok((first, last)),
        Some((first, last)) => Err(Wrong::new(format!("the range {first}-{last} is empty"))
            .at(word.at.clone())
            .label(format!("did you mean `{last}-{first}`?"))),
        None => Err(
            Wrong::new(format!("`{}` is no user number", word.text.escape_debug()))
                .at(word.at.clone())
                .help("write a number as `id -u NAME` prints it, or a range like 1000-1999"),
        ),
    }
}

/// Refuses what a routing rule cannot look at.
pub(super) fn check(rule: &Match, typed: &str) -> Result<(), Wrong> {
    if !rule.is_kernel() {
        return Ok(());
    }
    let foreign = ["dscp", "size"];
    let mut all = words(typed);
    if let Some(word) = all.find(|word| foreign.contains(&&*word.text.to_ascii_lowercase())) {
        let message = format!("`{0}` does not go with mark, in or uid", word.text);
        return Err(Wrong::new(message).at(word.at).help(format!(
            "the kernel sorts such packets, and looks at protocol, addresses and ports besides; a \
             class with a rule \"{0} ...\" that stands before this one takes its part of them",
            word.text
        )));
    }
    if rule.kernel.incoming.is_some() && rule.kernel.uids.is_some() {
        return Err(
            Wrong::new("no packet comes in and is sent by a user of this host")
                .help("write two rules for either-or"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rule;

    #[test]
    fn a_rule_for_the_kernel_says_what_it_was_made_from() {
        for typed in [
            "mark 0x10/0xff",
            "mark 0x7",
            "udp dport 5060 in eth1.20",
            "udp port 5060 mark 0x10",
            "uid 1000-1999",
            "uid 0",
        ] {
            let read = rule(typed).unwrap();
            assert!(read.is_kernel(), "{typed}");
            assert_eq!(read.to_string(), typed);
        }
        assert_eq!(rule("mark 16").unwrap().kernel.mark, Some((16, u32::MAX)));
    }

    #[test]
    fn what_no_packet_can_meet_is_refused_where_it_stands() {
        for (typed, said) in [
            ("mark 0x10/0", "a mask of 0 looks at no bit"),
            ("mark 0x110/0xff", "bits that the mask leaves out"),
            ("mark ten", "is no mark"),
            ("in eth/1", "eth/1"),
            ("uid root", "is no user number"),
            ("uid 9-1", "is empty"),
            ("mark 1 dscp ef", "`dscp` does not go with"),
            ("in eth0 uid 7", "no packet comes in"),
        ] {
            let wrong = format!("{:?}", rule(typed).unwrap_err());
            assert!(wrong.contains(said), "{typed}: {wrong}");
        }
    }

    #[test]
    fn a_wider_rule_covers_a_narrower_one() {
        let covers = |wide: &str, narrow: &str| rule(wide).unwrap().covers(&rule(narrow).unwrap());
        assert!(covers("udp", "udp port 5060"));
        assert!(covers(
            "udp port 5000-6000",
            "udp dport 5060 src 10.0.0.1/32"
        ));
        assert!(covers("dst 10.0.0.0/8", "tcp dst 10.9.0.0/16"));
        assert!(!covers("udp port 5060", "udp"));
        assert!(!covers("udp sport 5060", "udp port 5060"));
        assert!(!covers("dst 10.9.0.0/16", "dst 10.0.0.0/8"));
        assert!(covers("mark 0x10/0xf0", "mark 0x12/0xff"));
        assert!(!covers("mark 0x10/0xff", "mark 0x10/0xf0"));
        assert!(covers("uid 1000-1999", "uid 1500 tcp"));
        assert!(!covers("uid 1000", "uid 1000-1999"));
        assert!(!covers("in eth1", "udp"));
    }
}
