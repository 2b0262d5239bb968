//! `[[class]]`.

pub(super) mod shares;

use std::ops::Range;

use sennit_engine::MOST_COPIES;
use sennit_linux::{DeviceName, MAX_ROUTED_CLASSES};
use sennit_packet::Bitrate;
use toml::Spanned;

use super::finding::Finding;
use super::limits::{MOST_CLASSES, MOST_RULES};
use super::matching::{self, Match};
use super::section::Section;
use super::{Class, Congestion, Delivery, Fec, Headers, HubClass, Policy, Share, tables, values};

/// `[[class]]` with the places that later checks point at; what is absent has its default.
pub(super) struct ReadClass {
    header: Range<usize>,
    name: Option<Spanned<String>>,
    matches: Vec<Spanned<Match>>,
    /// `match` is there, even if none of its rules could be read.
    has_match: bool,
    pub(super) policy: Option<Spanned<Policy>>,
    pub(super) links: Option<Vec<Spanned<String>>>,
    pub(super) copies: Option<Spanned<u8>>,
    pub(super) delivery: Option<Spanned<Delivery>>,
    congestion: Option<Spanned<Congestion>>,
    pub(super) share: Option<Spanned<Share>>,
    pub(super) limit: Option<Spanned<Bitrate>>,
    dscp: Option<Spanned<u8>>,
    pub(super) fec: Option<Spanned<Fec>>,
    pub(super) headers: Option<Spanned<Headers>>,
    pub(super) device: Option<Spanned<DeviceName>>,
    has_device: bool,
}

impl ReadClass {
    pub(super) fn name(&self) -> &str {
        self.name.as_ref().map_or("?", |name| name.get_ref())
    }

    pub(super) fn may_use(&self, link: &str) -> bool {
        let links = self.links.as_ref();
        links.is_none_or(|links| links.iter().any(|name| name.get_ref() == link))
    }

    /// Whether the file says this of it.
    pub(super) fn has_policy(&self, wanted: Policy) -> bool {
        let policy = self.policy.as_ref();
        policy.is_some_and(|policy| *policy.get_ref() == wanted)
    }

    pub(super) fn catches_all(&self) -> bool {
        !self.has_match && !self.has_device
    }

    /// Packets come to it from a device of its own, which a class that takes everything leaves to
    /// it.
    fn is_routed(&self) -> bool {
        self.has_device || self.matches.iter().any(|it| it.get_ref().is_kernel())
    }

    fn into_class(self) -> Class {
        let default = Class::default();
        Class {
            name: self.name.map_or(default.name, Spanned::into_inner),
            matches: self.matches.into_iter().map(Spanned::into_inner).collect(),
            policy: self.policy.map_or(default.policy, Spanned::into_inner),
            links: self
                .links
                .map(|links| links.into_iter().map(Spanned::into_inner).collect()),
            copies: self.copies.map_or(default.copies, Spanned::into_inner),
            delivery: self.delivery.map_or(default.delivery, Spanned::into_inner),
            congestion: self
                .congestion
                .map_or(default.congestion, Spanned::into_inner),
            share: self.share.map(Spanned::into_inner),
            limit: self.limit.map(Spanned::into_inner),
            dscp: self.dscp.map(Spanned::into_inner),
            fec: self.fec.map_or(default.fec, Spanned::into_inner),
            headers: self.headers.map_or(default.headers, Spanned::into_inner),
            device: self.device.map(Spanned::into_inner),
        }
    }
}

pub(super) fn read(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Vec<ReadClass> {
    let values = tables(file, "class", MOST_CLASSES, findings);
    let sections = values
        .into_iter()
        .filter_map(|value| Section::open("[[class]]", value, text, findings));
    let sections: Vec<_> = sections.collect();
    let mut classes: Vec<ReadClass> = sections
        .into_iter()
        .map(|section| read_class(section, findings))
        .collect();
    limit_rules(classes.iter_mut().map(|class| &mut class.matches), findings);
    classes
}

/// Takes away the rules that are too many.
fn limit_rules<'a>(
    lists: impl Iterator<Item = &'a mut Vec<Spanned<Match>>>,
    findings: &mut Vec<Finding>,
) {
    let (mut count, mut first) = (0, None);
    for list in lists {
        let left = MOST_RULES.saturating_sub(count);
        count += list.len();
        if list.len() > left {
            first.get_or_insert(list[left].span());
            list.truncate(left);
        }
    }
    if let Some(first) = first {
        let message =
            format!("all classes together have at most {MOST_RULES} rules, and here are {count}");
        let help = "the first packet of a flow is compared with each rule";
        findings.push(Finding::error(first, message).help(help));
    }
}

fn read_class(mut class: Section<'_, '_>, findings: &mut Vec<Finding>) -> ReadClass {
    class.require("name", "\"critical\"", findings);
    let name = class.string("name", values::name, findings);
    class.require_some(
        "match",
        "a class without `match` takes everything",
        findings,
    );
    class.require_some("links", "a class without `links` uses all", findings);
    let (has_match, has_device) = (class.has("match"), class.has("device"));
    let read = ReadClass {
        header: class.header(),
        name,
        matches: class
            .strings("match", matching::rule, findings)
            .unwrap_or_default(),
        has_match,
        policy: class.string("policy", values::policy, findings),
        links: class.strings("links", values::name, findings),
        copies: class.integer("copies", 2..=i64::from(MOST_COPIES), findings),
        delivery: class.string("delivery", values::delivery, findings),
        congestion: class.string("congestion", values::congestion, findings),
        share: class.string("share", values::share, findings),
        limit: class.string("limit", values::rate, findings),
        dscp: class.string("dscp", matching::code_point, findings),
        fec: class.string("fec", values::fec, findings),
        headers: class.string("headers", values::headers, findings),
        has_device,
        device: class.string("device", values::device, findings),
    };
    class.finish(findings);
    read
}

/// `[[class]]` in the file of a hub: rules for classes that sites have.
pub(super) fn read_rules(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Vec<HubClass> {
    let values = tables(file, "class", MOST_RULES, findings);
    let mut classes: Vec<(String, Vec<Spanned<Match>>)> = Vec::new();
    for value in values {
        let Some(mut class) = Section::open("[[class]]", value, text, findings) else {
            continue;
        };
        class.require("name", "\"critical\"", findings);
        class.require("match", "[\"udp port 5060\"]", findings);
        let name = class.string("name", values::name, findings);
        let matches = class.strings("match", matching::rule, findings);
        class.finish(findings);
        let matches = matches.unwrap_or_default();
        for rule in matches.iter().filter(|it| it.get_ref().is_kernel()) {
            let message = "a hub cannot look at mark, in and uid";
            let help = "it goes by what a packet says itself; the edge may look at these";
            findings.push(Finding::error(rule.span(), message).help(help));
        }
        let name = name.map(Spanned::into_inner).unwrap_or_default();
        classes.push((name, matches));
    }
    limit_rules(classes.iter_mut().map(|(_, matches)| matches), findings);
    let class = |(name, matches): (String, Vec<Spanned<Match>>)| HubClass {
        name,
        matches: matches.into_iter().map(Spanned::into_inner).collect(),
    };
    classes.into_iter().map(class).collect()
}

/// What one class alone cannot know.
pub(super) fn check(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    check_names(classes, findings);
    check_order(classes, findings);
    for class in classes {
        check_copies(class, findings);
        check_fec(class, findings);
    }
}

fn check_names(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    for (n, class) in classes.iter().enumerate() {
        let Some(name) = &class.name else { continue };
        if classes[..n]
            .iter()
            .any(|other| other.name.as_ref() == Some(name))
        {
            findings.push(Finding::error(
                name.span(),
                format!("two classes are named `{}`", name.get_ref()),
            ));
        }
    }
    let last_resort = classes.iter().any(ReadClass::catches_all);
    let taken = classes
        .iter()
        .filter_map(|class| class.name.as_ref())
        .find(|name| name.get_ref() == "default");
    if let (false, Some(name)) = (last_resort, taken) {
        findings.push(
            Finding::error(name.span(), "class `default` does not take everything")
                .help("`default` is the class of what no other matches: give it no `match` and no `device`"),
        );
    }
}

/// Classes and rules that no packet can reach.
fn check_order(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let last = classes.iter().position(ReadClass::catches_all);
    let below = last.map_or(&[][..], |last| &classes[last + 1..]);
    for class in below.iter().filter(|class| !class.is_routed()) {
        let span = class
            .name
            .as_ref()
            .map_or(class.header.clone(), Spanned::span);
        let message = format!("class `{}` gets no packet", class.name());
        let all = last.map_or("?", |last| classes[last].name());
        let help = format!("class `{all}` above takes everything, so move it to the end");
        findings.push(Finding::warning(span, message).help(help));
    }
    check_rules(classes, findings);
}

/// Rules of which earlier ones take everything.
fn check_rules(classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let rules = classes.iter().enumerate();
    let rules = rules.flat_map(|(class, it)| it.matches.iter().map(move |rule| (class, rule)));
    let rules: Vec<(usize, &Spanned<Match>)> = rules.collect();
    let earlier = |n: usize| {
        let mut earlier = rules[..n].iter();
        earlier.find(|(_, it)| it.get_ref().covers(rules[n].1.get_ref()))
    };
    let earlier: Vec<_> = (0..rules.len()).map(earlier).collect();
    let is_lost = |class: usize| {
        let mut all = rules.iter().zip(&earlier);
        !classes[class].has_device && all.all(|((of, _), it)| *of != class || it.is_some())
    };
    for ((class, rule), earlier) in rules.iter().zip(&earlier) {
        let Some((first, earlier)) = earlier else {
            continue;
        };
        let (own, first) = (&classes[*class], &classes[*first]);
        let lost = match is_lost(*class) {
            true => format!("class `{}` gets no packet", own.name()),
            false => "this one gets no packet".to_owned(),
        };
        let earlier = earlier.get_ref();
        let message = match earlier == rule.get_ref() {
            true => format!("an earlier rule is the same, so {lost}"),
            false => format!("the earlier rule \"{earlier}\" takes all of it, so {lost}"),
        };
        let finding = Finding::warning(rule.span(), message);
        findings.push(match std::ptr::eq(own, first) {
            true => finding,
            false => finding.help(format!(
                "move class `{}` above class `{}`",
                own.name(),
                first.name()
            )),
        });
    }
}

/// A class with rules for the kernel has a device: its own, or one named after the edge's.
pub(super) fn name_devices(
    classes: &mut [ReadClass],
    main: &DeviceName,
    findings: &mut Vec<Finding>,
) {
    for (number, class) in classes.iter_mut().enumerate() {
        let kernel = |it: &&Spanned<Match>| it.get_ref().is_kernel();
        let Some(rule) = class.matches.iter().find(kernel) else {
            continue;
        };
        let span = rule.span();
        if number >= usize::from(MAX_ROUTED_CLASSES) {
            let most = MAX_ROUTED_CLASSES;
            let message = format!("only the first {most} classes may have such a rule");
            let help = "the kernel sorts by mark, in and uid, and has a table for each class";
            findings.push(Finding::error(span, message).help(help));
        } else if !class.has_device {
            match format!("{main}-{number}").parse() {
                Ok(name) => class.device = Some(Spanned::new(span, name)),
                Err(_) => findings.push(
                    Finding::error(span, "there is no short enough name for the class's device")
                        .help("rules with mark, in or uid need one: write device = \"NAME\""),
                ),
            }
        }
    }
}

fn check_copies(class: &ReadClass, findings: &mut Vec<Finding>) {
    if let (Some(copies), false) = (&class.copies, class.has_policy(Policy::Redundant)) {
        findings.push(
            Finding::warning(copies.span(), "`copies` has no effect here")
                .help("it belongs to policy = \"redundant\""),
        );
    }
}

/// A code beside copies brings nothing back that the other copy does not.
fn check_fec(class: &ReadClass, findings: &mut Vec<Finding>) {
    let code = class.fec.as_ref();
    let code = code.filter(|fec| matches!(fec.get_ref(), Fec::Fixed(_)));
    if let (Some(code), true) = (code, class.has_policy(Policy::Redundant)) {
        findings.push(
            Finding::warning(code.span(), "`fec` is pointless here")
                .help("policy = \"redundant\" sends every packet more than once already"),
        );
    }
}

/// The classes in order of matching, with a last one that takes everything.
pub(super) fn complete(classes: Vec<ReadClass>) -> Vec<Class> {
    let mut classes: Vec<Class> = classes.into_iter().map(ReadClass::into_class).collect();
    if !classes.iter().any(Class::catches_all) {
        classes.push(Class::default());
    }
    classes
}
