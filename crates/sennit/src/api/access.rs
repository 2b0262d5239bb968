//! Who may do what.
//!
//! Whoever may open the control socket may do everything, as with the commands. Over TCP a bearer
//! token says who asks. Without tokens in the config whoever is on this host may read.
//!
//! A browser on an operator's desk can be made to ask anything by any page. So over TCP the `Host`
//! must be an address, `localhost` or a name from the config, because a name that an attacker
//! points here (DNS rebinding) is none of them; and an `Origin` must be the host that is asked.
//! Links of other pages may lead to the page, and who follows one gets it without the status in it.

use std::{net::IpAddr, time::Instant};

use axum::http::{HeaderMap, StatusCode, header};

use super::{
    limit::Limit,
    problem::Problem,
    terms::{Credential, Locks, Terms},
};

/// Requests that a peer may make a second: more than a page and a monitor want.
const REQUESTS: (f64, f64) = (400.0, 800.0);
/// Wrong tokens that a peer may show a second; nobody guesses one of 128 bits at that pace.
const GUESSES: (f64, f64) = (1.0, 10.0);

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// The control socket.
    Local,
    Remote(IpAddr),
}

impl Peer {
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Local => None,
            Self::Remote(address) => Some(address.to_canonical()),
        }
    }

    fn is_on_this_host(self) -> bool {
        self.address().is_none_or(|address| address.is_loopback())
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A file of the page, which is the same for everybody.
    PageFile,
    Anything,
}

/// Who is let in by the terms of now.
pub(super) struct Access {
    locks: Locks,
    requests: Limit,
    guesses: Limit,
}

impl Access {
    pub(super) fn new(locks: Locks) -> Self {
        Self {
            locks,
            requests: Limit::new(REQUESTS.0, REQUESTS.1),
            guesses: Limit::new(GUESSES.0, GUESSES.1),
        }
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// What whoever sent a request has shown for it; `host` is the one that the request line names.
    pub(super) fn admit(
        &self,
        peer: Peer,
        wish: Wish,
        headers: &HeaderMap,
        host: Option<&str>,
        now: Instant,
    ) -> Result<Credential, Problem> {
        let (address, terms) = (peer.address(), self.locks.terms());
        let crowded = |after| Problem::too_many(after, "too many requests from this address");
        self.requests.take(address, now).map_err(crowded)?;
        if headers.get_all(header::HOST).iter().count() > 1 {
            // RFC 9112 §3.2
            return Err(Problem::bad_request("one Host is named, not several"));
        }
        let host = host.or_else(|| text(headers, header::HOST));
        check_host(&terms, peer, host)?;
        if wish == Wish::PageFile && follows_a_link(headers) {
            return Ok(Credential::None);
        }
        check_origin(headers, host)?;
        if peer == Peer::Local {
            return Ok(Credential::Socket);
        }
        let Some(shown) = headers.get(header::AUTHORIZATION) else {
            return Ok(match peer.is_on_this_host() {
                true => Credential::ThisHost,
                false => Credential::None,
            });
        };
        let guessed = |after| Problem::too_many(after, "too many wrong tokens from this address");
        self.guesses.look(address, now).map_err(guessed)?;
        let token = shown.to_str().ok().and_then(bearer);
        let token = token.map(Credential::of_token);
        let known = token.filter(|token| terms.role_of(token).is_some());
        known.ok_or_else(|| {
            let _ = self.guesses.take(address, now);
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "the token is not known here",
            )
        })
    }
}

fn check_host(terms: &Terms, peer: Peer, host: Option<&str>) -> Result<(), Problem> {
    let known = host.is_some_and(|host| is_ours(terms, name_of(host)));
    if known || peer == Peer::Local {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "unknown_host",
        "this is no host of that name: ask by address, or name it in `hosts` of [api]",
    ))
}

fn is_ours(terms: &Terms, name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || terms.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a browser goes to another page here from one of another site, which learns nothing of
/// what it finds. Such a request names no origin unless it sends a form.
fn follows_a_link(headers: &HeaderMap) -> bool {
    let fetch = |name| text(headers, header::HeaderName::from_static(name));
    fetch("sec-fetch-site") == Some("cross-site")
        && fetch("sec-fetch-mode") == Some("navigate")
        && !headers.contains_key(header::ORIGIN)
}

fn check_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Problem> {
    let cross = || Problem::forbidden("a page of another site may not ask this");
    if text(headers, header::HeaderName::from_static("sec-fetch-site")) == Some("cross-site") {
        return Err(cross());
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
    match (origin, host) {
        (Some((_, from)), Some(host)) if from.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(cross()),
    }
}

/// A host without its port and brackets.
fn name_of(host: &str) -> &str {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split_once(']').map_or("", |(address, _)| address);
    }
    host.split_once(':').map_or(host, |(name, _)| name)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::api::Role;

    const READER: &str = "reader-0123456789abcdefghij";
    const ADMIN: &str = "admin-0123456789abcdefghijk";

    fn access(tokens: &[(Role, &str)]) -> Access {
        Access {
            locks: Locks::new(Terms::of(tokens, &["router.lan"])),
            requests: Limit::new(1e6, 1e6),
            guesses: Limit::new(1e6, 1e6),
        }
    }

    fn admit(
        access: &Access,
        peer: Peer,
        pairs: &[(&'static str, &str)],
    ) -> Result<Option<Role>, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let admitted = access.admit(peer, Wish::Anything, &headers, None, Instant::now());
        let role_of = |shown| access.locks.terms().role_of(&shown);
        admitted.map(role_of).map_err(|problem| {
            serde_json::to_value(problem).unwrap()["status"]
                .as_u64()
                .unwrap() as u16
        })
    }

    const NEAR: Peer = Peer::Remote(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const FAR: Peer = Peer::Remote(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)));

    #[test]
    fn without_tokens_this_host_may_read_and_nobody_else() {
        let open = access(&[]);
        let host = [("host", "127.0.0.1:8080")];

        assert_eq!(admit(&open, NEAR, &host), Ok(Some(Role::Read)));
        assert_eq!(admit(&open, FAR, &host), Ok(None));
        assert_eq!(admit(&open, Peer::Local, &[]), Ok(Some(Role::Admin)));
    }

    #[test]
    fn a_token_says_the_role_and_a_wrong_one_is_refused() {
        let closed = access(&[(Role::Read, READER), (Role::Admin, ADMIN)]);
        let with = |value: &str| {
            let pairs = [("host", "localhost"), ("authorization", value)];
            admit(&closed, NEAR, &pairs)
        };

        assert_eq!(with(&format!("Bearer {READER}")), Ok(Some(Role::Read)));
        assert_eq!(with(&format!("bearer {ADMIN}")), Ok(Some(Role::Admin)));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Basic YTpi",
            &format!("Bearer {READER}x"),
        ] {
            assert_eq!(with(wrong), Err(401), "{wrong}");
        }
        assert_eq!(admit(&closed, NEAR, &[("host", "localhost")]), Ok(None));
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused_over_tcp() {
        let open = access(&[]);
        for good in [
            "127.0.0.1:1",
            "[::1]:8080",
            "localhost",
            "Router.LAN:80",
            "192.0.2.1",
        ] {
            assert!(admit(&open, NEAR, &[("host", good)]).is_ok(), "{good}");
        }
        for bad in [
            "evil.example:8080",
            "localhost.evil.example",
            "",
            "[::1",
            "127.0.0.1.evil",
        ] {
            assert_eq!(admit(&open, NEAR, &[("host", bad)]), Err(421), "{bad}");
        }
        assert_eq!(admit(&open, NEAR, &[]), Err(421));
        assert!(admit(&open, Peer::Local, &[("host", "whatever")]).is_ok());
        // RFC 9112 §3.2
        let both = [("host", "localhost"), ("host", "router.lan")];
        for peer in [NEAR, FAR, Peer::Local] {
            assert_eq!(admit(&open, peer, &both), Err(400));
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let open = access(&[]);
        let from = |origin: &str| {
            admit(
                &open,
                NEAR,
                &[("host", "127.0.0.1:8080"), ("origin", origin)],
            )
        };

        assert!(from("http://127.0.0.1:8080").is_ok());
        for other in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:9090",
            "http://localhost:8080",
        ] {
            assert_eq!(from(other), Err(403), "{other}");
        }
        let fetched = [("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")];
        assert_eq!(admit(&open, NEAR, &fetched), Err(403));
        let unix = [("origin", "http://evil.example")];
        assert_eq!(admit(&open, Peer::Local, &unix), Err(403));
    }

    #[test]
    fn who_guesses_tokens_is_soon_told_to_wait() {
        let mut closed = access(&[(Role::Read, READER)]);
        closed.guesses = Limit::new(0.1, 3.0);
        let wrong = [("host", "localhost"), ("authorization", "Bearer x")];
        let right = format!("Bearer {READER}");
        let right = [("host", "localhost"), ("authorization", right.as_str())];

        assert_eq!(
            [(); 3].map(|()| admit(&closed, NEAR, &wrong)),
            [Err(401); 3]
        );
        assert_eq!(admit(&closed, NEAR, &wrong), Err(429));
        assert_eq!(
            admit(&closed, NEAR, &right),
            Err(429),
            "it might be a guess"
        );
        let far = [("host", "192.0.2.1"), right[1]];
        assert_eq!(admit(&closed, FAR, &far), Ok(Some(Role::Read)));
    }
}
