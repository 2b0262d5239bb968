//! What is written on the command line of a test.

use std::net::{SocketAddr, ToSocketAddrs as _};

use clap::builder::RangedI64ValueParser;
use sennit_core::Congestion;
use sennit_fec::{BadCode, Fec};

use crate::exit::{Exit, Failure};
use crate::loadtest::{PORT, Plan};

/// The first address of a server that is written as `host`, `host:port`, `v6` or `[v6]:port`.
pub(super) fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let (host, port) = target(text).ok_or_else(|| {
        let message = format!("`{text}` is no server");
        let hint = "write an address or a name, and a port if it is not 4774: 203.0.113.10, \
                    test.example.org:5000, [2001:db8::1]:5000";
        Failure::usage(message).hint(hint)
    })?;
    let found = (host, port).to_socket_addrs();
    let address = found.map(|mut addresses| addresses.next());
    match address {
        Ok(Some(address)) if address.ip().is_unspecified() || address.ip().is_multicast() => Err(
            Failure::usage(format!("nobody can be reached at {address}")),
        ),
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::new(
            Exit::NotFound,
            format!("{host} has no address"),
        )),
        Err(error) => {
            let message = format!("cannot look up {host}: {error}");
            Err(Failure::new(Exit::NotFound, message))
        }
    }
}

fn target(text: &str) -> Option<(&str, u16)> {
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some((text, PORT));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, some_port(port)?)),
            None => port.is_empty().then_some((host, PORT)),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, some_port(port)?),
        None => (text, PORT),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

fn some_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

pub(super) fn congestion(text: &str) -> Result<Congestion, String> {
    text.parse().map_err(|_| {
        let words: Vec<_> = Congestion::ALL.iter().map(|word| word.as_str()).collect();
        format!("write one of {}", words.join(", "))
    })
}

/// `off`, `auto`, or a code as the config writes it.
pub(super) fn fec(text: &str) -> Result<Fec, String> {
    match text.to_ascii_lowercase().parse() {
        Ok(known) => Ok(known),
        Err(BadCode::Form) => Err("write off, auto, xor:10+1, rs:10+2 or rlc:1/8".into()),
        Err(impossible) => Err(format!("it {impossible}")),
    }
}

/// `500k`, `5Mbit`, `1.5G`, in bit/s.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix("bit").unwrap_or(text);
    let scales = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let scale = scales.iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, scale) = match scale {
        Some((unit, scale)) => (text.trim_end_matches(*unit), *scale),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * scale);
    let sane = |rate: &f64| (1e3..=1e12).contains(rate);
    rate.filter(sane)
        .ok_or_else(|| "write 1k to 1000G bit/s, like 500k, 5Mbit or 1.5G".into())
}

/// Bytes of a message.
pub(super) fn message_bytes() -> RangedI64ValueParser<u16> {
    let (least, most) = Plan::MESSAGE_BYTES.into_inner();
    clap::value_parser!(u16).range(i64::from(least)..=i64::from(most))
}

/// How many a second.
pub(super) fn per_second(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (0.01..=1e6).contains(number))
        .ok_or_else(|| "write 0.01 to 1000000 a second".into())
}

/// `500k`, `20M`, `1G`, in bytes.
pub(in crate::cli) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let scales = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let scale = scales.iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, scale) = match scale {
        Some((unit, scale)) => (text.trim_end_matches(*unit), *scale),
        None => (text, 1),
    };
    let bytes = number.parse::<u64>().ok();
    let bytes = bytes.and_then(|number| number.checked_mul(scale));
    bytes
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "write a number of bytes, like 500k, 20M or 1G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_with_or_without_a_port() {
        for (text, expected) in [
            ("203.0.113.10", Some(("203.0.113.10", 4774))),
            ("203.0.113.10:5000", Some(("203.0.113.10", 5000))),
            ("test.example.org:5000", Some(("test.example.org", 5000))),
            ("2001:db8::1", Some(("2001:db8::1", 4774))),
            ("[2001:db8::1]", Some(("2001:db8::1", 4774))),
            ("[2001:db8::1]:5000", Some(("2001:db8::1", 5000))),
            ("", None),
            (":5000", None),
            ("host:", None),
            ("host:0", None),
            ("host:99999", None),
            ("[host]:1", None),
            ("[2001:db8::1]5000", None),
            ("https://host", None),
            ("two words", None),
        ] {
            assert_eq!(target(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_have_units_and_are_not_nothing() {
        assert_eq!(bytes("500k"), Ok(500_000));
        assert_eq!(bytes("20MB"), Ok(20_000_000));
        assert_eq!(bytes("17"), Ok(17));
        for bad in ["", "0", "M", "-1", "1.5G", "99999999999999999999", "1T"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_code_is_written_as_in_the_config() {
        for good in ["off", "auto", "xor:10+1", "rs:10+2", "rlc:1/8"] {
            assert_eq!(fec(good).map(|it| it.to_string()), Ok(good.into()));
        }
        for (bad, reason) in [
            ("rs", "write off, auto, xor:10+1"),
            ("rs:0+2", "it protects 1 to 255 packets"),
            ("xor:300+1", "it protects 1 to 255 packets"),
            ("rlc:2/1", "as in `rlc:1/8`"),
        ] {
            assert!(fec(bad).is_err_and(|why| why.contains(reason)), "{bad}");
        }
    }

    #[test]
    fn rates_have_units_and_bounds() {
        assert_eq!(rate("500k"), Ok(500e3));
        assert_eq!(rate("5Mbit"), Ok(5e6));
        assert_eq!(rate("1.5G"), Ok(1.5e9));
        assert_eq!(rate("20000"), Ok(20e3));
        for bad in ["", "M", "-5M", "1", "5Mb", "NaN", "2000G", "5 M"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
