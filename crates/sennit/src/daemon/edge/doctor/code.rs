//! What can be wrong, as words for programs.

use std::fmt;

use serde::{Serialize, Serializer};

/// Declares an enum whose variants have one word each.
macro_rules! codes {
    ($($variant:ident = $word:literal),+ $(,)?) => {
        /// What a finding is about; the book's chapter on trouble has a line for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($variant),+ }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

codes! {
    NotJoined = "not-joined",
    SecretFile = "secret-file",
    ClockSlow = "clock-slow",
    ClockFast = "clock-fast",
    CertificateOld = "certificate-old",
    NoTun = "no-tun",
    OtherVpn = "other-vpn",
    OtherRule = "other-rule",
    ForwardBlocked = "forward-blocked",
    LanNowhere = "lan-nowhere",
    NotRunning = "not-running",
    NoInterface = "no-interface",
    SwitchedOff = "switched-off",
    NoCarrier = "no-carrier",
    NoAddress = "no-address",
    NoDhcp = "no-dhcp",
    NoGateway = "no-gateway",
    RpFilter = "rp-filter",
    NoName = "no-name",
    NoFamily = "no-family",
    FirewallHere = "firewall-here",
    HubRefused = "hub-refused",
    CaptivePortal = "captive-portal",
    UdpBlocked = "udp-blocked",
    NoAnswer = "no-answer",
    Unreachable = "unreachable",
    Ipv6Broken = "ipv6-broken",
    NoTunnel = "no-tunnel",
    SmallMtu = "small-mtu",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
