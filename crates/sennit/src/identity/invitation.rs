//! Invitations: one token that lets one site in once.
//!
//! The text is `sennit_` and base64url of: version, expiry (seconds since 1970, 8 bytes), the
//! authority's fingerprint (32), the secret (32), the site's name (length, bytes), the number of
//! hub addresses and each of them (4 or 6, address, port; or 0, length, name, port), and the first
//! four bytes of the SHA-256 of all that, by which a token cut short in copying is told from a
//! foreign one. Integers are big-endian. Version 1 has no names, and is still what is written when
//! there are none.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::secret::sha256;
use super::{Authority, Fingerprint, IdentityError, Secret};
use crate::date;
use crate::remote::Remote;
use crate::site::SiteName;
use crate::store::{Store, TokenKind};

const PREFIX: &str = "sennit_";
pub(super) const BEARER_PREFIX: &str = "sennit_bearer_";
const VERSION: u8 = 2;
const WITHOUT_NAMES: u8 = 1;
/// More than any hub has; a token stays short enough to paste.
const MAX_HUBS: usize = 16;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub site: SiteName,
    /// Where the hub listens, at most 16.
    pub hubs: Vec<Remote>,
    /// The hub's authority.
    pub authority: Fingerprint,
    pub secret: Secret,
    pub expires: SystemTime,
}

/// Why a text is not an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    #[error("this is not an invitation of Sennit, which starts with `sennit_`")]
    Foreign,
    #[error("this is a bearer token, for clients that are not Sennit; `join` wants an invitation")]
    Bearer,
    #[error("the token is damaged: it was cut short or altered")]
    Damaged,
    #[error("the token was made by a newer Sennit (format {0})")]
    Newer(u8),
    #[error("the token has expired")]
    Expired,
}

/// Lets `site` in: a token that is good once, until `ttl` is over.
pub fn invite(
    store: &mut Store,
    authority: &Authority,
    site: &SiteName,
    hubs: &[Remote],
    ttl: Duration,
    now: SystemTime,
) -> Result<Invitation, IdentityError> {
    let secret = Secret::random();
    let expires = now + ttl;
    let fingerprint = authority.fingerprint();
    store.invite(
        site,
        &secret.hash(),
        Some(expires),
        TokenKind::Invite,
        Some(fingerprint.as_bytes()),
        now,
    )?;
    let hubs = hubs.iter().take(MAX_HUBS).cloned().collect();
    Ok(Invitation {
        site: site.clone(),
        hubs,
        authority: fingerprint,
        secret,
        expires,
    })
}

/// Lets a third-party client in as `site`: the bearer token to send with each request.
pub fn invite_bearer(
    store: &mut Store,
    site: &SiteName,
    ttl: Option<Duration>,
    now: SystemTime,
) -> Result<String, IdentityError> {
    let secret = Secret::random();
    store.invite(
        site,
        &secret.hash(),
        ttl.map(|ttl| now + ttl),
        TokenKind::Bearer,
        None,
        now,
    )?;
    Ok(format!("{BEARER_PREFIX}{}", secret.to_base64().as_str()))
}

impl Invitation {
    /// The invitation, unless it has expired.
    pub fn still_valid(self, now: SystemTime) -> Result<Self, InvitationError> {
        if now >= self.expires {
            Err(InvitationError::Expired)
        } else {
            Ok(self)
        }
    }

    /// The least that can say it, so that there is one text for each invitation.
    fn version(&self) -> u8 {
        if self.hubs.iter().any(|hub| hub.address().is_none()) {
            VERSION
        } else {
            WITHOUT_NAMES
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.version()];
        let expires = self
            .expires
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        bytes.extend(expires.as_secs().to_be_bytes());
        bytes.extend(self.authority.as_bytes());
        bytes.extend(self.secret.as_bytes());
        bytes.push(self.site.as_str().len() as u8);
        bytes.extend(self.site.as_str().as_bytes());
        bytes.push(self.hubs.len() as u8);
        for hub in &self.hubs {
            match hub {
                Remote::Address(address) => match address.ip() {
                    IpAddr::V4(ip) => {
                        bytes.push(4);
                        bytes.extend(ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        bytes.push(6);
                        bytes.extend(ip.octets());
                    }
                },
                Remote::Name { host, .. } => {
                    bytes.push(0);
                    bytes.push(host.len() as u8);
                    bytes.extend(host.as_bytes());
                }
            }
            bytes.extend(hub.port().to_be_bytes());
        }
        let check = sha256(&bytes);
        bytes.extend(&check[..4]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let seconds = u64::from_be_bytes(take(&mut rest)?);
        let authority = Fingerprint::from_bytes(take(&mut rest)?);
        let secret = Secret::from_bytes(take(&mut rest)?);
        let [length] = take(&mut rest)?;
        let (name, after) = rest.split_at_checked(length.into())?;
        rest = after;
        let site = std::str::from_utf8(name).ok()?.parse().ok()?;
        let [count] = take(&mut rest)?;
        let hubs: Vec<_> = (0..count)
            .map(|_| take_remote(&mut rest))
            .collect::<Option<_>>()?;
        let expires = date::at(seconds)?;
        let sound = rest.is_empty() && (1..=MAX_HUBS).contains(&hubs.len());
        sound.then_some(Self {
            site,
            hubs,
            authority,
            secret,
            expires,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn take_remote(rest: &mut &[u8]) -> Option<Remote> {
    let ip = match take(rest)? {
        [4] => IpAddr::from(take::<4>(rest)?),
        [6] => IpAddr::from(take::<16>(rest)?),
        [0] => {
            let [length] = take(rest)?;
            let (name, after) = rest.split_at_checked(length.into())?;
            *rest = after;
            let port = u16::from_be_bytes(take(rest)?);
            let text = format!("{}:{port}", std::str::from_utf8(name).ok()?);
            return text
                .parse()
                .ok()
                .filter(|it: &Remote| it.address().is_none() && it.to_string() == text);
        }
        _ => return None,
    };
    let address = SocketAddr::new(ip, u16::from_be_bytes(take(rest)?));
    Some(Remote::Address(address))
}

/// The token.
impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.encode()))
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(token: &str) -> Result<Self, InvitationError> {
        let token = token.trim();
        if token.starts_with(BEARER_PREFIX) {
            return Err(InvitationError::Bearer);
        }
        let text = token.strip_prefix(PREFIX).ok_or(InvitationError::Foreign)?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| InvitationError::Damaged)?;
        let (body, check) = bytes
            .split_last_chunk::<4>()
            .ok_or(InvitationError::Damaged)?;
        if sha256(body)[..4] != *check {
            return Err(InvitationError::Damaged);
        }
        match body.split_first() {
            Some((&version @ (WITHOUT_NAMES | VERSION), body)) => Self::decode(body)
                .filter(|invitation| invitation.version() == version)
                .ok_or(InvitationError::Damaged),
            Some((newer, _)) => Err(InvitationError::Newer(*newer)),
            None => Err(InvitationError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            site: "van-07".parse().unwrap(),
            hubs: vec![
                "203.0.113.10:443".parse().unwrap(),
                "[2001:db8::1]:4433".parse().unwrap(),
            ],
            authority: Fingerprint::of(b"authority"),
            secret: Secret::from_bytes([7; 32]),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000),
        }
    }

    #[test]
    fn a_token_says_what_was_put_in() {
        let token = invitation().to_string();

        assert_eq!(token.parse(), Ok(invitation()));
        assert_eq!(
            format!(" {token}\n").parse(),
            Ok(invitation()),
            "as pasted or read from a file"
        );
        assert!(token.len() < 200, "{} characters", token.len());
    }

    #[test]
    fn a_token_until_a_time_that_no_date_can_say_is_none() {
        let beyond = Invitation {
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800),
            ..invitation()
        };

        let read = beyond.to_string().parse::<Invitation>();
        assert_eq!(read, Err(InvitationError::Damaged));
    }

    #[test]
    fn a_token_may_name_the_hub() {
        let named = Invitation {
            hubs: vec![
                "vpn.example.org:443".parse().unwrap(),
                "203.0.113.10:443".parse().unwrap(),
            ],
            ..invitation()
        };

        assert_eq!(named.to_string().parse(), Ok(named));
    }

    #[test]
    fn a_token_without_names_is_read_by_every_version() {
        let token = invitation().to_string();
        let bytes = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).unwrap();

        assert_eq!(bytes[0], WITHOUT_NAMES);
    }

    #[test]
    fn a_token_with_any_byte_changed_or_missing_is_damaged() {
        let token = invitation().to_string();
        for at in PREFIX.len()..token.len() {
            let mut other = token.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(
                other.parse::<Invitation>(),
                Err(InvitationError::Damaged),
                "changed at {at}"
            );
            assert_eq!(
                token[..at].parse::<Invitation>(),
                Err(InvitationError::Damaged),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        assert_eq!("".parse::<Invitation>(), Err(InvitationError::Foreign));
        assert_eq!(
            "eyJhbGciOiJIUzI1NiJ9".parse::<Invitation>(),
            Err(InvitationError::Foreign)
        );
        assert_eq!(
            "sennit_bearer_abc".parse::<Invitation>(),
            Err(InvitationError::Bearer)
        );
        let mut newer = vec![9, 1, 2, 3];
        newer.extend(&sha256(&newer.clone())[..4]);
        let newer = format!("sennit_{}", URL_SAFE_NO_PAD.encode(newer));
        assert_eq!(newer.parse::<Invitation>(), Err(InvitationError::Newer(9)));
    }

    #[test]
    fn a_token_is_good_until_its_expiry() {
        let expires = invitation().expires;
        assert!(
            invitation()
                .still_valid(expires - Duration::from_secs(1))
                .is_ok()
        );
        assert_eq!(
            invitation().still_valid(expires),
            Err(InvitationError::Expired)
        );
    }
}
