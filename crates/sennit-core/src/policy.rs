//! The words of a class: how it uses the links, what happens to a lost packet, how it shares.
//!
//! They travel in the handshake by name, so that both ends of a tunnel treat the class alike.

use std::{fmt, str::FromStr};

/// An enum whose values are words: in configs, on the wire and in documents.
pub trait Word: Copy + FromStr + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// What it is about, as a sentence.
    const MEANING: &'static str;
    /// Every value.
    const VALUES: &'static [Self];

    /// The word for this value.
    fn word(self) -> &'static str;
}

/// Declares such an enum, whose variants have one lower-case name each.
macro_rules! words {
    ($(#[doc = $meaning:literal])+ $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[doc = $meaning])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every value, in the order the documentation lists them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The words for them.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for this value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl Word for $name {
            const NAME: &'static str = stringify!($name);
            const MEANING: &'static str = concat!($($meaning),+).trim_ascii_start();
            const VALUES: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str { self.as_str() }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                match s { $($word => Ok(Self::$variant),)+ _ => Err(UnknownWord) }
            }
        }
    };
}

/// A word that names no value of the enum it was parsed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown word")]
pub struct UnknownWord;

words! {
    /// How a class uses the links.
    Policy {
        /// One path only, the first that works.
        Single = "single",
        /// The lowest tier that works.
        Failover = "failover",
        /// Whole flows spread over the links by weight.
        Balanced = "balanced",
        /// All links of the best tier together; one flow may use them all.
        Bond = "bond",
        /// Every packet on two links, the second copy dropped at the far end.
        Redundant = "redundant",
    }
}

words! {
    /// What happens to a packet that a path loses.
    Delivery {
        /// Nothing: the inner protocol notices.
        Datagram = "datagram",
        /// It is sent again while that is still useful.
        Repair = "repair",
        /// It is sent again while any path lives.
        Reliable = "reliable",
    }
}

words! {
    /// The congestion controller of each path of a class.
    Congestion {
        /// Chosen per path from what is seen.
        Auto = "auto",
        /// RFC 9438.
        Cubic = "cubic",
        /// BBR version 1.
        Bbr = "bbr",
        /// BBR version 3.
        Bbr3 = "bbr3",
        /// What arrived a moment ago, on paths whose rate moves.
        Follow = "follow",
    }
}

words! {
    /// How the headers of inner packets travel.
    Headers {
        /// Without what the flow's packets have in common.
        Thin = "thin",
        /// As they are.
        Whole = "whole",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_back_to_its_value() {
        for &policy in Policy::ALL {
            assert_eq!(policy.as_str().parse(), Ok(policy));
        }
        for &delivery in Delivery::ALL {
            assert_eq!(delivery.to_string().parse(), Ok(delivery));
        }
        assert_eq!("Bond".parse::<Policy>(), Err(UnknownWord));
        assert_eq!(Delivery::WORDS, ["datagram", "repair", "reliable"]);
    }

    #[test]
    fn the_words_say_what_they_are_about() {
        assert_eq!((Policy::NAME, Policy::VALUES), ("Policy", Policy::ALL));
        assert_eq!(Policy::MEANING, "How a class uses the links.");
        assert_eq!(Policy::Bond.word(), "bond");
    }
}
