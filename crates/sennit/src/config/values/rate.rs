//! Rates, as people write them.

use std::ops::RangeInclusive;

use sennit_packet::Bitrate;

use super::Wrong;

/// Units of rates, and the bits per second in each.
const RATES: [(&str, f64); 3] = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
/// In bits per second: below it no tunnel works, above it no link goes.
const RATE: RangeInclusive<f64> = 100e3..=1000e9;

/// Bits per second of a unit: `Mbit`, `Mbit/s`, `Mb/s`. `MB/s` are bytes, and `Mb` alone may be.
fn bits_of(unit: &str) -> Option<f64> {
    let ends = ["/s", "ps"];
    let each_second = ends.iter().find_map(|end| unit.strip_suffix(end));
    let name = match each_second {
        Some(bits) if bits.ends_with('b') => format!("{bits}it"),
        Some(name) => name.to_owned(),
        None => unit.to_owned(),
    };
    let known = RATES
        .iter()
        .find(|(unit, _)| name.eq_ignore_ascii_case(unit));
    known.map(|(_, bits)| *bits)
}

/// `20Mbit`, or as rates are printed: `20 Mb/s`.
pub(in crate::config) fn rate(typed: &str) -> Result<Bitrate, Wrong> {
    const HELP: &str = "write a rate like \"500kbit\", \"20Mbit\" or \"1.5Gbit\"";
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let (number, unit) = typed.split_at(typed.find(|c| !digits(c)).unwrap_or(typed.len()));
    let number: f64 = number
        .parse()
        .map_err(|_| Wrong::new(format!("`{}` is no rate", typed.escape_debug())).help(HELP))?;
    let unit = unit.trim();
    if unit.is_empty() {
        return Err(Wrong::new(format!("the rate `{typed}` has no unit")).help(HELP));
    }
    let Some(bits) = bits_of(unit) else {
        let wrong = Wrong::new(format!("`{}` is no unit of rates", unit.escape_debug()));
        return Err(wrong.help(HELP));
    };
    let rate = number * bits;
    if rate < *RATE.start() {
        return Err(Wrong::new(format!("{typed} is too little"))
            .label("100kbit is the least")
            .help("less than that does not even carry what keeps a tunnel alive"));
    }
    if rate > *RATE.end() {
        return Err(Wrong::new(format!("{typed} is more than any link carries")).help(HELP));
    }
    Ok(Bitrate::bps(rate as u64))
}
