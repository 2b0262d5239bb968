//! Values of options.

use std::time::Duration;

use crate::config::Prefix;
use crate::remote::{Remote, RemoteError};

/// Where a hub can be reached.
pub(super) fn hub(text: &str) -> Result<Remote, String> {
    text.parse().map_err(|error: RemoteError| error.to_string())
}

pub(super) fn server_name(text: &str) -> Result<String, String> {
    match rustls::pki_types::ServerName::try_from(text) {
        Ok(_) => Ok(text.into()),
        Err(_) => Err("write a DNS name or an IP address".into()),
    }
}

/// What not everybody knows: a variable that is not set is nothing of the kind.
pub(super) fn secret(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it is empty: leave the option out, or say something".into()),
        false => Ok(text.into()),
    }
}

/// A CIDR prefix without host bits.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || "write an address and a length, like 192.168.8.0/24 or fd08::/64".to_owned();
    let prefix: Prefix = text.parse().map_err(|_| wrong())?;
    if prefix.trunc() != prefix {
        return Err(format!("its network is {}", prefix.trunc()));
    }
    Ok(prefix)
}

/// `90s`, `30m`, `24h`, `7d`, up to ten years.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit, like 90s, 30m, 24h or 7d".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit) {
        Some(0) => Err("it must be longer than nothing".into()),
        Some(seconds) if seconds <= 3_650 * 86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err("ten years (3650d) are the longest".into()),
    }
}

/// Up to a day, as seconds or with a unit: `8`, `0.5`, `8s`, `500ms`, `2m`, `1h`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let scale = match unit {
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "m" => Some(60.0),
        "h" => Some(3_600.0),
        _ => None,
    };
    let number = number.parse::<f64>().ok();
    let seconds = number.zip(scale).map(|(number, scale)| number * scale);
    let seconds =
        seconds.ok_or("write a number of seconds, or a unit with it, like 8, 500ms or 2m")?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("0 to 86400 seconds are allowed".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_an_end() {
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for bad in [
            "",
            "24",
            "h",
            "1w",
            "-1h",
            "0s",
            "1.5h",
            "99999999999999999999h",
            "3651d",
            "1é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn timeouts_are_finite() {
        for half in ["0.5", "0.5s", "500ms"] {
            assert_eq!(seconds(half), Ok(Duration::from_millis(500)), "{half}");
        }
        assert_eq!(seconds("2m"), Ok(Duration::from_secs(120)));
        for bad in [
            "", "-1", "inf", "NaN", "1e9", "s", "8 s", "8d", "-8s", "25h",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
