//! The `sennit` header: what two Sennits tell each other beside standard CONNECT-IP.
//!
//! A client adds it to its request and a hub to its answer; whoever does not see it from the other
//! side speaks RFC 9484 and nothing more. Its presence allocates the private contexts of
//! [`sennit_core::frame`] and allows link capsules. The form is that of a structured field
//! (RFC 9651 §3.3.3): a version, then parameters; unknown parameters are ignored.
//!
//! ```text
//! sennit: 1;class=bulk;index=1;policy=bond;delivery=repair;copies=2;congestion=auto;
//!         fec=auto;checksums=partial;halves=joined;reports=items;headers=thin;repairs=symbols;
//!         fares=told;authority=moves
//! ```
//!
//! It is one line on the wire. The class of what no rule of the edge matches says `fallback=1` as
//! well: a flow that begins at the hub goes by it. A hub also says which addresses it has itself
//! in the tunnel: `inside=10.200.0.1,fd5e:1::1`.
//!
//! `checksums=partial`, from either side, says that it takes packets of [`CONTEXT_PARTIAL`],
//! `halves=joined` that it takes those of [`CONTEXT_HALF`], `reports=items` that it takes reports
//! of [`CONTEXT_ITEMS`], `headers=thin` that it takes [`CONTEXT_TEMPLATE`] and [`CONTEXT_THIN`],
//! `repairs=symbols` that it takes packets of [`CONTEXT_SOURCE`] and what repairs them,
//! `fares=told` that reports may, and do, tell an edge how its classes fare at the hub, and
//! `authority=moves` that it takes capsules that tell of another authority ([`Abilities`]). An edge
//! whose class has whole headers does not say `headers`.
//!
//! A class says which run of numbers it has, if it is to go on with that, and a hub which one the
//! tunnel has ([`crate::numbers`]). A class that has a tunnel says `beside=1` of another one that
//! is to take its place: then what is on its way over the first still counts for a while.
//!
//! How the classes share the links is said by [`terms`].
//!
//! [`CONTEXT_PARTIAL`]: sennit_core::frame::CONTEXT_PARTIAL
//! [`CONTEXT_HALF`]: sennit_core::frame::CONTEXT_HALF
//! [`CONTEXT_ITEMS`]: sennit_core::frame::CONTEXT_ITEMS
//! [`CONTEXT_SOURCE`]: sennit_core::frame::CONTEXT_SOURCE
//! [`CONTEXT_TEMPLATE`]: sennit_core::frame::CONTEXT_TEMPLATE
//! [`CONTEXT_THIN`]: sennit_core::frame::CONTEXT_THIN

mod terms;

use std::net::IpAddr;

use sennit_core::ClassId;
use sennit_fec::Fec;

pub(crate) use self::terms::Wishes;
use crate::{
    codec::{Abilities, Peer},
    numbers::{NUMBERS, Numbers, Run},
    treatment::{MOST_COPIES, Treatment},
};

/// Header name.
pub(crate) const NAME: &str = "sennit";
const VERSION: &str = "1";
/// Numbers that classes of a site may have, and so how many tunnels it may have. The config of an
/// edge has 64 classes; it gives the lowest numbers that are free, to those that a reload brings
/// beside those that it takes away, and its former tunnels may still be there when it has begun
/// anew.
const CLASS_NUMBERS: u8 = 2 * 64;
const FALLBACK: &str = ";fallback=1";
const BESIDE: &str = ";beside=1";
const INSIDE: &str = ";inside=";
/// One address for each family.
const MAX_INSIDE: usize = 2;
/// Longest class name.
const MAX_NAME: usize = 32;

/// Where a hub takes enrolments.
pub(crate) const ENROL_PATH: &str = "/.well-known/sennit/enroll";
/// Why a tunnel is closed whose class has a newer one.
pub(crate) const REPLACED: &str = "replaced by a newer connection";

/// What an edge asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) class: String,
    pub(crate) index: ClassId,
    pub(crate) treatment: Treatment,
    /// It is the class of what no rule of the edge matches.
    pub(crate) fallback: bool,
    /// What else it takes than numbered packets.
    pub(crate) abilities: Abilities,
    /// What it may have of the links.
    pub(crate) wishes: Wishes,
    /// The run of numbers that the class has, or none if it is to have a new one.
    pub(crate) run: Option<Run>,
    /// The class has a tunnel, which carries until this one is granted.
    pub(crate) beside: bool,
}

impl Hello {
    pub(crate) fn encode(&self) -> String {
        let Self {
            class,
            index,
            treatment,
            fallback,
            abilities,
            wishes,
            run,
            beside,
        } = self;
        let Treatment {
            policy,
            delivery,
            copies,
            congestion,
            headers: _,
            fec,
        } = treatment;
        format!(
            "{VERSION};class={class};index={};policy={policy};delivery={delivery};copies={copies};\
             congestion={congestion};fec={fec}{}{}{}{}{}",
            index.0,
            if *fallback { FALLBACK } else { "" },
            abilities.encode(),
            wishes.encode(),
            run.map_or_else(String::new, |run| format!(";{NUMBERS}={run}")),
            if *beside { BESIDE } else { "" },
        )
    }

    /// Reads the header; `None` if it is of another version or malformed.
    pub(crate) fn decode(value: &str) -> Option<Self> {
        let mut parts = value.split(';').map(str::trim);
        if parts.next() != Some(VERSION) {
            return None;
        }
        let (mut class, mut index) = (None, None);
        let mut treatment = Treatment {
            fec: Fec::Off,
            ..Treatment::default()
        };
        let (mut fallback, mut beside) = (false, false);
        let mut abilities = Abilities::default();
        let (mut wishes, mut run) = (Wishes::default(), None);
        for part in parts {
            match part.split_once('=')? {
                ("class", name) => class = Some(name).filter(|name| is_name(name)),
                ("index", number) => {
                    let number = number.parse().ok()?;
                    index = (number < CLASS_NUMBERS).then_some(ClassId(number));
                }
                ("policy", word) => treatment.policy = word.parse().ok()?,
                ("delivery", word) => treatment.delivery = word.parse().ok()?,
                ("copies", number) => treatment.copies = copies_of(number)?,
                ("congestion", word) => treatment.congestion = word.parse().ok()?,
                // An older edge says nothing, and expects nothing.
                ("fec", word) => treatment.fec = word.parse().ok()?,
                ("fallback", word) => fallback = word == "1",
                ("beside", word) => beside = word == "1",
                (NUMBERS, name) => run = name.parse().ok(),
                other => {
                    abilities.learn(other);
                    wishes.learn(other);
                }
            }
        }
        treatment.headers = abilities.headers();
        Some(Self {
            class: class?.to_owned(),
            index: index?,
            treatment,
            fallback,
            abilities,
            wishes,
            run,
            beside,
        })
    }

    /// What a hub makes of it that does not know shares unless it `shares`.
    pub(crate) fn known(mut self, shares: bool) -> Self {
        if !shares {
            self.wishes = Wishes::default();
            self.abilities.fares = false;
        }
        self
    }

    /// What can be sent to who said this.
    pub(crate) fn peer(&self) -> Peer {
        Peer::Sennit(self.abilities)
    }
}

/// The answer of a hub that understood, that has these addresses in the tunnel, that knows shares
/// or does not, and whose tunnel has these numbers.
pub(crate) fn answer(inside: &[IpAddr], shares: bool, numbers: Option<Numbers>) -> String {
    let abilities = Abilities {
        fares: shares,
        ..Abilities::OURS
    };
    let mut answer = format!("{VERSION}{}", abilities.encode());
    let all = [terms::KEPT, terms::CHANGE, terms::TREATMENT];
    for (key, word) in all.iter().filter(|_| shares) {
        answer += &format!(";{key}={word}");
    }
    if let Some(numbers) = numbers {
        answer += &format!(";{NUMBERS}={numbers}");
    }
    if !inside.is_empty() {
        let inside: Vec<String> = inside.iter().map(ToString::to_string).collect();
        answer += &format!("{INSIDE}{}", inside.join(","));
    }
    answer
}

/// The addresses that a hub with this answer has in the tunnel.
pub(crate) fn inside(value: &str) -> Vec<IpAddr> {
    let list = value
        .split(';')
        .find_map(|part| part.trim().strip_prefix(&INSIDE[1..]));
    let addresses = list.unwrap_or_default().split(',');
    addresses
        .take(MAX_INSIDE)
        .filter_map(|address| address.parse().ok())
        .filter(is_host)
        .collect()
}

/// Whether a packet can be for it.
fn is_host(address: &IpAddr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// The numbers that a tunnel has whose hub gave this answer; `None` if it does not say.
pub(crate) fn numbers(value: &str) -> Option<Numbers> {
    let mut parameters = value
        .split(';')
        .filter_map(|part| part.trim().split_once('='));
    let (_, word) = parameters.find(|(name, _)| *name == NUMBERS)?;
    Numbers::parse(word)
}

/// What can be sent to a hub that gave this answer.
pub(crate) fn answered(value: &str) -> Peer {
    let mut parts = value.split(';').map(str::trim);
    if parts.next() != Some(VERSION) {
        return Peer::Standard;
    }
    let mut abilities = Abilities::default();
    for parameter in parts.filter_map(|part| part.split_once('=')) {
        abilities.learn(parameter);
    }
    Peer::Sennit(abilities)
}

/// What the hub of a tunnel takes of its class beside the request, as it has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Takes {
    /// It shares links by what it is told.
    pub(crate) shares: bool,
    /// It takes other terms while the tunnel is up.
    pub(crate) terms: bool,
    /// It takes all of another request while the tunnel is up.
    pub(crate) treatment: bool,
}

/// What a hub with this answer takes.
pub(crate) fn takes(value: &str) -> Takes {
    Takes {
        shares: says(value, terms::KEPT),
        terms: says(value, terms::CHANGE),
        treatment: says(value, terms::TREATMENT),
    }
}

fn says(value: &str, parameter: (&str, &str)) -> bool {
    let mut parts = value.split(';').map(str::trim);
    parts.any(|part| part.split_once('=') == Some(parameter))
}

fn copies_of(number: &str) -> Option<u8> {
    let copies = number.parse().ok()?;
    (1..=MOST_COPIES).contains(&copies).then_some(copies)
}

fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use sennit_core::{Congestion, Delivery, Headers, Policy};

    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let hello = Hello {
            class: "bulk-1".into(),
            index: ClassId(2),
            treatment: Treatment {
                policy: Policy::Redundant,
                delivery: Delivery::Datagram,
                copies: 3,
                congestion: Congestion::Bbr,
                headers: Headers::Thin,
                fec: "rs:10+2".parse().unwrap(),
            },
            fallback: true,
            abilities: Abilities::OURS,
            wishes: Wishes::default(),
            run: "9f1c".parse().ok(),
            beside: true,
        };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello.clone()));
        assert_eq!(
            Hello::decode(&format!("{}; later=1", hello.encode())),
            Some(hello)
        );
        let partial = Abilities {
            partial: true,
            ..Abilities::default()
        };
        let none = Abilities::default();
        assert_eq!(
            answered(&answer(&[], true, None)),
            Peer::Sennit(Abilities::OURS)
        );
        assert_eq!(answered("1;checksums=partial"), Peer::Sennit(partial));
        assert_eq!(answered("1; later=1"), Peer::Sennit(none));
        assert_eq!(answered("2;checksums=partial"), Peer::Standard);
    }

    #[test]
    fn a_hub_says_that_it_shares_links() {
        let all = Takes {
            shares: true,
            terms: true,
            treatment: true,
        };
        let shares = Takes {
            shares: true,
            ..Takes::default()
        };
        assert_eq!(takes(&answer(&[], true, None)), all);
        assert_eq!(takes("1;shares=kept"), shares);
        assert_eq!(takes("1;checksums=partial"), Takes::default());
    }

    #[test]
    fn a_hub_says_which_numbers_a_tunnel_has() {
        let told = Numbers::parse("old:9f1c");
        assert_eq!(numbers(&answer(&[], true, told)), told);
        assert_eq!(numbers(&answer(&[], true, None)), None);
        let peer = answered(&answer(&[], true, told));
        assert_eq!(peer, Peer::Sennit(Abilities::OURS));
    }

    #[test]
    fn a_hub_says_where_it_is_inside() {
        let both: Vec<IpAddr> = ["10.200.0.1", "fd5e:1::1"]
            .map(|address| address.parse().unwrap())
            .into();
        assert_eq!(inside(&answer(&both, true, None)), both);
        assert_eq!(
            answered(&answer(&both, true, None)),
            Peer::Sennit(Abilities::OURS)
        );
        assert!(inside(&answer(&[], true, None)).is_empty());
        assert!(inside("1;inside=0.0.0.0,127.0.0.1,10.9.0.1").is_empty());
        assert_eq!(inside("1;inside=x,10.9.0.1").len(), 1);
    }

    #[test]
    fn nonsense_is_not_understood() {
        for value in [
            "",
            "2;class=a;index=0",
            "1;class=a",
            "1;class=A;index=0",
            "1;class=;index=0",
            "1;class=a;index=128",
            "1;class=a;index=256",
            "1;class=a;index=0;policy=fast",
            "1;class=a;index=0;copies=0",
            "1;class=a;index=0;copies=9",
            "1;class=a;index=0;fec=rs:10+200",
            "1;class=a;index=0;x",
        ] {
            assert_eq!(Hello::decode(value), None, "{value}");
        }
    }
}
