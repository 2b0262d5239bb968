//! How fast a link is, or a flow on it.

use std::iter::Sum;
use std::str::FromStr;
use std::time::Duration;

/// Bits per second.
///
/// Configs are written in bits and counters count bytes, so both are said by name. The send path of
/// the engine reckons in whole bytes per second, as its congestion controllers do.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Nothing passes, or nobody knows what does.
    pub const ZERO: Self = Self(0);

    /// A rate in bit/s.
    pub const fn bps(bits: u64) -> Self {
        Self(bits)
    }

    /// A rate in Mbit/s.
    pub const fn mbit(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// A rate in bytes per second.
    pub const fn bytes_per_second(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// What is taken for a rate, in Mbit/s.
    pub const RANGE_MBIT: [f64; 2] = [0.001, 100_000.0];

    /// A rate that somebody wrote in Mbit/s; `None` outside of [`Self::RANGE_MBIT`].
    pub fn from_mbit(megabits: f64) -> Option<Self> {
        let [least, most] = Self::RANGE_MBIT;
        let sane = (least..=most).contains(&megabits);
        sane.then(|| Self((megabits * 1e6).round() as u64))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Whole bytes per second.
    pub const fn as_bytes_per_second(self) -> u64 {
        self.0 / 8
    }

    /// Bytes per second, for words and programs.
    pub fn as_bytes_per_second_f64(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// Whether it is [`Self::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// What is left of it beside another.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The time that `bytes` occupy the wire, where at least a bit passes in a second.
    pub fn time_for(self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(u128::from(self.0.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The bytes that leave within `time`.
    pub fn bytes_in(self, time: Duration) -> usize {
        let bytes = u128::from(self.0) * time.as_nanos() / 8 / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Sum for Bitrate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        Self(rates.fold(0, |sum, rate| sum.saturating_add(rate.0)))
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

    #[test]
    fn bits_and_bytes_are_the_same_rate() {
        let rate = Bitrate::bytes_per_second(125_000);
        assert_eq!(rate, Bitrate::mbit(1));
        assert_eq!(rate.as_bytes_per_second(), 125_000);
        assert_eq!(Bitrate::bps(12).as_bytes_per_second(), 1);
        assert_eq!(Bitrate::bps(12).as_bytes_per_second_f64(), 1.5);
        assert_eq!(Bitrate::bytes_per_second(u64::MAX).as_bps(), u64::MAX);
        assert!(Bitrate::ZERO.time_for(1) > Duration::ZERO);
    }
}
