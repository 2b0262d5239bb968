//! How fast a link is.

use std::str::FromStr;
use std::time::Duration;

/// Bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bitrate(u64);

impl Bitrate {
    /// A rate in bit/s; zero is taken as one, since a link that never sends is an outage.
    pub fn bps(bits: u64) -> Self {
        Self(bits.max(1))
    }

    /// A rate in Mbit/s.
    pub fn mbit(megabits: u64) -> Self {
        Self::bps(megabits.saturating_mul(1_000_000))
    }

    /// What is taken for a rate, in Mbit/s.
    pub const RANGE_MBIT: [f64; 2] = [0.001, 100_000.0];

    /// A rate that somebody wrote in Mbit/s; `None` outside of [`Self::RANGE_MBIT`].
    pub fn from_mbit(megabits: f64) -> Option<Self> {
        let [least, most] = Self::RANGE_MBIT;
        let sane = (least..=most).contains(&megabits);
        sane.then(|| Self::bps((megabits * 1e6).round() as u64))
    }

    /// Bits per second.
    pub fn as_bps(self) -> u64 {
        self.0
    }

    /// The time that `bytes` occupy the wire.
    pub fn time_for(self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The bytes that leave within `time`.
    pub fn bytes_in(self, time: Duration) -> usize {
        let bytes = u128::from(self.0) * time.as_nanos() / 8 / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// A number of bit/s with or without a unit: `500k`, `10Mbit`, `1.5G`, `2500000`.
impl FromStr for Bitrate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix("bit").unwrap_or(text);
        let units = [('k', 1e-3), ('M', 1.0), ('G', 1e3)];
        let unit = units
            .into_iter()
            .find_map(|(unit, scale)| Some((number.strip_suffix(unit)?, scale)));
        let (number, scale) = unit.unwrap_or((number, 1e-6));
        let mbit = number.parse::<f64>().ok().map(|number| number * scale);
        let rate = mbit.and_then(Self::from_mbit);
        rate.ok_or_else(|| "write 1k to 100G bit/s, like 500k, 10Mbit or 1.5G".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_and_bounds() {
        for (text, bps) in [
            ("500k", 500_000),
            ("10Mbit", 10_000_000),
            ("1.5G", 1_500_000_000),
            ("20000", 20_000),
        ] {
            assert_eq!(text.parse(), Ok(Bitrate::bps(bps)));
        }
        for bad in ["", "M", "-5M", "1", "5Mb", "NaN", "2000G", "5 M", "0"] {
            assert!(bad.parse::<Bitrate>().is_err(), "{bad}");
        }
    }
}
