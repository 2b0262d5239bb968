//! Networks by name.
//!
//! Delays are one way, in each direction. The first four are those of [`sennit_netem::NETWORKS`],
//! without a rate; the others are the usual shape of such a network, not one that somebody
//! measured.

use std::{fs, path::Path, str::FromStr, sync::Arc, time::Duration};

use sennit_netem::{Config, LinkSpec, Queue, Trace};

/// The networks with a name: what they are, and what that is as a link. One without a rate has `-`.
pub const NAMED: [(&str, &str); 10] = [
    ("production", "-/production"),
    ("mobile", "-/mobile"),
    ("satellite", "-/satellite"),
    ("high-loss", "-/high-loss"),
    ("LEO", "starlink*0.15:starlink/20/0.1%"),
    ("GEO", "3:20/280/0.1%"),
    ("LTE", "lte*0.4:lte/25"),
    ("5G", "50:200/12±4/0.1%"),
    ("Wi-Fi", "wifi/2"),
    ("DSL", "10:50/8"),
];

/// One way, of a network that a file describes, unless it says another.
const DELAY_OF_FILE: f64 = 20.0;
/// What such a network, and one of satellites or old copper, holds back before it drops.
const LONG_QUEUE: Queue = Queue::Time(Duration::from_millis(200));

/// A network to emulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// As it was asked for.
    pub name: String,
    /// Both directions.
    pub spec: LinkSpec,
}

impl FromStr for Profile {
    type Err = String;

    /// Reads a name of [`NAMED`], a link like `30:5/20±3/0.5%`, or files with scripts:
    /// `FILE[,FILE down][@delay in ms]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = NAMED.iter().find(|(name, _)| plain(name) == plain(text));
        let spec = match known {
            Some((name, link)) => named(name, link)?,
            None if is_file(files(text).0) => from_files(text)?,
            None => text.parse::<LinkSpec>().map_err(|error| {
                let names = NAMED.map(|(name, _)| name).join(", ");
                format!("write one of {names}, a file with a trace, or a link ({error})")
            })?,
        };
        Ok(Self {
            name: known.map_or(text, |(name, _)| *name).to_owned(),
            spec,
        })
    }
}

/// Whether this is a file, or can be nothing else: links and names begin otherwise.
fn is_file(text: &str) -> bool {
    text.starts_with(['/', '.']) || Path::new(text).exists()
}

/// Small letters and digits only: `wifi` is Wi-Fi.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

fn named(name: &str, link: &str) -> Result<LinkSpec, String> {
    let endless = link.strip_prefix('-').map(|rest| format!("1{rest}"));
    let text = endless.as_deref().unwrap_or(link);
    let mut spec: LinkSpec = text.parse().map_err(|error| format!("{error}"))?;
    for config in [&mut spec.up, &mut spec.down] {
        if endless.is_some() {
            config.rate = None;
        }
        if matches!(name, "GEO" | "DSL") {
            config.queue = LONG_QUEUE;
        }
    }
    Ok(spec)
}

/// The first file, the second if there is one, and the delay.
fn files(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (files, delay) = match text.rsplit_once('@') {
        Some((files, delay)) => (files, Some(delay)),
        None => (text, None),
    };
    let (up, down) = match files.split_once(',') {
        Some((up, down)) => (up, Some(down)),
        None => (files, None),
    };
    (up, down, delay)
}

fn from_files(text: &str) -> Result<LinkSpec, String> {
    let (up, down, delay) = files(text);
    let millis = delay.map_or(Ok(DELAY_OF_FILE), str::parse).ok();
    let delay = millis.and_then(Config::delay_of_ms).ok_or_else(|| {
        let most = Config::DELAY_MAX.as_millis();
        format!("after @ stands the delay one way, 0 to {most} ms")
    })?;
    let config = Config {
        delay,
        queue: LONG_QUEUE,
        ..Config::default()
    };
    let moving = |file: &str| {
        let text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let trace = Trace::read(file, &text).map_err(|error| format!("{file}: {error}"))?;
        Ok::<_, String>(config.clone().moving(Arc::new(trace)))
    };
    let up = moving(up)?;
    let down = down.map_or(Ok(up.clone()), moving)?;
    Ok(LinkSpec { up, down })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sennit_netem::Loss;

    #[test]
    fn each_name_is_a_link_however_it_is_spelt() {
        for (name, _) in NAMED {
            let profile: Profile = name.parse().expect(name);
            assert_eq!(profile.name, name);
        }
        let loose: Profile = "highloss".parse().expect("it is known");
        assert_eq!(loose.name, "high-loss");
        assert_eq!(loose.spec.up.rate, None);
        assert_eq!(loose.spec.down.loss, Loss::Random(0.1));
        assert_eq!(loose.spec.down.delay, Duration::from_millis(50));
        assert_eq!(
            "wifi".parse::<Profile>().map(|p| p.name),
            Ok("Wi-Fi".into())
        );
    }

    #[test]
    fn a_trace_of_a_file_moves_the_link_and_a_bad_one_is_told_by_line() {
        let folder = tempfile::tempdir().expect("there is room");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("there is room");
            path.to_str().expect("it is plain text").to_owned()
        };
        let (good, bad) = (file("good", "1\n1\n2\n5\n"), file("bad", "5\n3\n"));

        let profile: Profile = format!("{good}@35").parse().expect("it is a trace");

        assert_eq!(profile.spec.up, profile.spec.down);
        assert_eq!(profile.spec.up.delay, Duration::from_millis(35));
        // Four packets in 5 ms.
        let mean = profile.spec.up.rate.map(sennit_netem::Bitrate::as_bps);
        assert_eq!(mean, Some(9_600_000));
        for (text, reason) in [
            (bad.clone(), "line 2"),
            (format!("{good},{bad}"), "line 2"),
            (format!("{good}@far"), "after @"),
            (format!("{good},nowhere"), "cannot read nowhere"),
            ("/nowhere/far".into(), "cannot read /nowhere/far"),
            ("nonsense".into(), "production, mobile"),
            ("30/10/100%".into(), "the loss"),
        ] {
            let error = text.parse::<Profile>().expect_err(&text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
