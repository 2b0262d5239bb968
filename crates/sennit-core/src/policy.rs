//! The words of a class: how it uses the links, what happens to a lost packet, how it shares.
//!
//! They travel in the handshake by name, so that both ends of a tunnel treat the class alike.

use std::{fmt, str::FromStr};

/// Declares an enum whose variants have one lower-case name, used in config and on the wire.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every value, in the order the documentation lists them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for this value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
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
    }
}
