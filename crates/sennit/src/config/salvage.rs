//! What a file with errors still says, for whoever has to do something all the same.
//!
//! A guard has to make something unreachable at boot, and who cleans up or asks a daemon has to
//! know which one. Errors are passed over here: [`super::Config::load`] is what tells them.

use std::path::PathBuf;

use sennit_linux::DeviceName;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::{
    DEFAULT_EDGE_CONTROL, DEFAULT_HUB_CONTROL, DEFAULT_STATE, Leak, Prefix, default_device,
    private, values,
};

/// What is known of a daemon by a file that may have errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// Which of the two files it is: `edge` or `hub`.
    pub role: &'static str,
    pub device: DeviceName,
    pub control: PathBuf,
    pub state: PathBuf,
    /// What an edge would make unreachable while there is no tunnel; in doubt, everything. Nothing
    /// for a hub.
    pub blocked: Vec<Prefix>,
}

/// Reads what can be read.
pub fn salvage(source: &[u8]) -> Salvaged {
    let text = String::from_utf8_lossy(source);
    let (root, errors) = DeTable::parse_recoverable(&text);
    let root = root.get_ref();
    let table = |name| root.get(name).and_then(|it| it.get_ref().as_table());
    let (hub, edge) = (table("hub"), table("edge"));
    // Some errors end the TOML, and what is below them stands there all the same.
    let lines = match errors.is_empty() {
        true => String::new(),
        false => own_lines(&text),
    };
    let said = |key| {
        let value = edge.or(hub).and_then(|section| string(section, key));
        let value = value.map(str::to_owned);
        value.or_else(|| private::written(&lines, key))
    };
    let device = said("device").and_then(|device| values::device(&device).ok());
    let control = said("control").and_then(|path| values::socket_path(&path).ok());
    let state = said("state").and_then(|path| values::path(&path).ok());
    let (role, default_control, blocked) = match (hub, edge) {
        (Some(_), None) => ("hub", DEFAULT_HUB_CONTROL, Vec::new()),
        _ => {
            let blocked = blocked(edge, &errors, &text).unwrap_or_else(everything);
            ("edge", DEFAULT_EDGE_CONTROL, blocked)
        }
    };
    Salvaged {
        role,
        device: device.unwrap_or_else(default_device),
        control: control.unwrap_or_else(|| default_control.into()),
        state: state.unwrap_or_else(|| DEFAULT_STATE.into()),
        blocked,
    }
}

fn string<'a>(section: &'a DeTable<'_>, key: &str) -> Option<&'a str> {
    section.get(key)?.get_ref().as_str()
}

/// The lines of a config that are about the daemon itself: a class has a `device` too.
fn own_lines(text: &str) -> String {
    let mut is_own = true;
    let lines = text.split_inclusive('\n').filter(|line| {
        let line = line.trim_start();
        if line.starts_with('[') {
            is_own = !line.starts_with("[[");
        }
        is_own && !line.starts_with('#')
    });
    lines.collect()
}

/// What `[edge]` says of it, if that is beyond doubt.
fn blocked(edge: Option<&DeTable<'_>>, errors: &[Error], text: &str) -> Option<Vec<Prefix>> {
    let edge = edge?;
    // Of a key that is there twice the first is read, and the second may be what is meant.
    if errors.iter().any(|it| it.message() == "duplicate key") {
        return None;
    }
    let sound = |key| edge.get(key).filter(|it| is_whole(it, errors, text));
    let leak = sound("leak").and_then(|leak| values::leak(leak.get_ref().as_str()?).ok());
    if leak == Some(Leak::Allow) {
        return Some(Vec::new());
    }
    // Without any, they may be under a mistyped key, or in a part that cannot be read.
    prefixes(sound("routes")?.get_ref())
}

/// Whether no error touches a value, or the lines that it is on.
fn is_whole(value: &Spanned<DeValue<'_>>, errors: &[Error], text: &str) -> bool {
    let span = value.span();
    let rest = text.get(span.end..).unwrap_or_default();
    let end = span.end + rest.find('\n').unwrap_or(rest.len());
    let touches = |error: &Error| {
        error
            .span()
            .is_none_or(|at| at.start <= end && at.end >= span.start)
    };
    !errors.iter().any(touches)
}

fn prefixes(routes: &DeValue<'_>) -> Option<Vec<Prefix>> {
    let list = routes.as_array()?.iter();
    list.map(|item| values::prefix(item.get_ref().as_str()?).ok())
        .collect()
}

fn everything() -> Vec<Prefix> {
    vec![
        Prefix::V4(ipnet::Ipv4Net::default()),
        Prefix::V6(ipnet::Ipv6Net::default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EdgeConfig;

    const GOOD: &str = "[edge]\nhub = ['203.0.113.10:443']\ndevice = 'wan0'\n\
                        routes = ['10.9.0.0/16']\ncontrol = '/run/x.sock'\n\
                        [[link]]\nname = 'lte'\ninterface = 'wwan0'\n";

    fn blocked(text: &str) -> Vec<String> {
        let blocked = salvage(text.as_bytes()).blocked;
        blocked.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_error_elsewhere_takes_nothing_from_what_is_blocked() {
        let typos = [
            GOOD.to_owned(),
            GOOD.replace("name =", "nam ="),
            GOOD.replace("'wwan0'", "'wwan0"),
            GOOD.replace("'/run/x.sock'", "'/run/x.sock"),
            GOOD.replace("[[link]]", "[[link]"),
            format!("{GOOD}<<<<<<< HEAD\n"),
        ];
        for (number, text) in typos.iter().enumerate() {
            let is_valid = EdgeConfig::parse("edge.toml", text.as_bytes()).is_ok();
            assert_eq!(is_valid, number == 0, "{text}");
            assert_eq!(blocked(text), ["10.9.0.0/16"], "{text}");
            assert_eq!(salvage(text.as_bytes()).device.as_str(), "wan0", "{text}");
        }
    }

    #[test]
    fn in_doubt_everything_is_blocked() {
        for text in [
            "",
            "\0\0\0\0",
            "[edg]\nroutes = []\n",
            &GOOD.replace("'203.0.113.10:443'", "'203.0.113.10:443"),
            &GOOD.replace("'10.9.0.0/16'", "'10.9.0.0/16', '::/O'"),
            &GOOD.replace("'10.9.0.0/16'", "'10.9.0.0/16', '::/0"),
            &GOOD.replace("'10.9.0.0/16'", "'10.9.0.0/16' '::/0'"),
            &GOOD.replace("'10.9.0.0/16']", "'10.9.0.0/16'"),
            &GOOD.replace("['10.9.0.0/16']", "[10.9.0.0/16']"),
            &GOOD.replace("['10.9.0.0/16']", "'10.9.0.0/16'"),
            &GOOD.replace("routes =", "routes"),
            &GOOD.replace("routes =", "rotes ="),
            &GOOD.replace("routes =", "routes = []\nroutes ="),
            &GOOD.replace("routes =", "leak = 'allow'\nleak = 'block'\nroutes ="),
            &format!("{GOOD}[edge]\nroutes = ['::/0']\n"),
            "[edge]\nhub = ['203.0.113.10:443']\n[",
        ] {
            assert_eq!(blocked(text), ["0.0.0.0/0", "::/0"], "{text}");
        }
    }

    #[test]
    fn what_may_leave_and_what_a_hub_has_is_not_blocked() {
        for text in [
            GOOD.replace("'10.9.0.0/16'", ""),
            GOOD.replace("device", "nonsense = 1\nleak = 'allow'\ndevice"),
            "[hub]\nlisten = 443\n".to_owned(),
        ] {
            assert_eq!(blocked(&text), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_an_edge_blocks_is_blocked_also_beside_a_stray_hub_and_with_a_slip_at_leak() {
        for text in [
            format!("{GOOD}[hub]\n"),
            format!("[hub]\ndevice = 'far0'\n{GOOD}"),
            GOOD.replace("routes =", "leak = 'allow' 'block'\nroutes ="),
        ] {
            assert_eq!(blocked(&text), ["10.9.0.0/16"], "{text}");
            assert_eq!(salvage(text.as_bytes()).device.as_str(), "wan0", "{text}");
        }
    }

    #[test]
    fn who_it_is_stands_also_below_a_line_that_ends_the_toml() {
        let class = "[[class]]\ndevice = 'bulk0'\n";
        for slip in ["mtu 1400", "- mtu = 1400", "[", "'", "leak block", "= 5"] {
            let edge = format!(
                "{class}[edge]\n{slip}\n# device = 'old0'\ndevice = 'van'\nstate = \"/srv/van\"\n\
                 control = '/run/van.sock' # mine\n[[link]]\nname = 'lte'\n"
            );
            let found = salvage(edge.as_bytes());
            assert_eq!(found.device.as_str(), "van", "{edge}");
            assert_eq!(found.state, PathBuf::from("/srv/van"), "{edge}");
            assert_eq!(found.control, PathBuf::from("/run/van.sock"), "{edge}");
        }
        let plain = format!("[edge]\nmtu 1400\n{class}");
        assert_eq!(salvage(plain.as_bytes()).device.as_str(), "sennit0");
    }

    #[test]
    fn a_daemon_is_known_by_a_file_with_errors() {
        let edge = salvage(GOOD.replace("hub", "hubs").as_bytes());
        assert_eq!(edge.control, PathBuf::from("/run/x.sock"));
        let hub = salvage(b"[hub]\ndevice = 'far0'\nlisten = 443\n");
        assert_eq!((hub.device.as_str(), hub.role), ("far0", "hub"));
        assert_eq!(hub.control, PathBuf::from(DEFAULT_HUB_CONTROL));
        let nothing = salvage(b"device = '../x'");
        assert_eq!(nothing.device.as_str(), "sennit0");
        assert_eq!(nothing.control, PathBuf::from(DEFAULT_EDGE_CONTROL));
    }
}
