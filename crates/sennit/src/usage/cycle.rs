//! Billing cycles.

use time::{Date, Month};

use super::Day;

/// 1970-01-01 in the days of the calendar.
const EPOCH: i32 = 2_440_588;

/// The days that a cap is about: from one reset to the day before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub first: Day,
    /// The day of the next reset.
    pub end: Day,
}

/// How a cycle will end if it goes on like this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub bytes: u64,
}

impl Cycle {
    /// The cycle of a day. In a month without the reset day, its last day is that.
    pub fn around(day: Day, reset_day: u8) -> Self {
        let date = date(day);
        let reset = |(year, month): (i32, Month)| {
            let reset_day = reset_day.clamp(1, month.length(year));
            let date = Date::from_calendar_date(year, month, reset_day);
            date.map_or(day, |date| i64::from(date.to_julian_day() - EPOCH))
        };
        let this = (date.year(), date.month());
        let [start, end] = if day >= reset(this) {
            [this, after(this)]
        } else {
            [before(this), this]
        };
        Self {
            first: reset(start),
            end: reset(end),
        }
    }

    /// What the cycle comes to, from what was used by a moment of it; `None` in its first day,
    /// which says little.
    pub fn forecast(self, used: u64, now_days: f64) -> Option<Forecast> {
        let gone = now_days - self.first as f64;
        let all = (self.end - self.first) as f64;
        (gone >= 1.0).then(|| Forecast {
            bytes: (used as f64 * (all / gone).max(1.0)) as u64,
        })
    }
}

fn after((year, month): (i32, Month)) -> (i32, Month) {
    match month {
        Month::December => (year + 1, month.next()),
        _ => (year, month.next()),
    }
}

fn before((year, month): (i32, Month)) -> (i32, Month) {
    match month {
        Month::January => (year - 1, month.previous()),
        _ => (year, month.previous()),
    }
}

/// The date of a day; beyond the calendar, 1970-01-01.
pub(crate) fn date(day: Day) -> Date {
    let julian = i32::try_from(day)
        .ok()
        .and_then(|day| day.checked_add(EPOCH));
    let date = julian.and_then(|julian| Date::from_julian_day(julian).ok());
    date.unwrap_or(Date::from_julian_day(EPOCH).expect("it is in the calendar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(year: i32, month: u8, day: u8) -> Day {
        let month = Month::try_from(month).unwrap();
        let date = Date::from_calendar_date(year, month, day).unwrap();
        i64::from(date.to_julian_day() - EPOCH)
    }

    #[test]
    fn a_cycle_ends_on_the_day_before_the_next_reset() {
        let cycle = |today, reset| {
            let cycle = Cycle::around(today, reset);
            (cycle.first, cycle.end)
        };
        assert_eq!(day(1970, 1, 1), 0);
        assert_eq!(
            cycle(day(2026, 11, 26), 1),
            (day(2026, 11, 1), day(2026, 12, 1))
        );
        assert_eq!(
            cycle(day(2026, 11, 26), 27),
            (day(2026, 10, 27), day(2026, 11, 27))
        );
        assert_eq!(
            cycle(day(2026, 12, 31), 28),
            (day(2026, 12, 28), day(2027, 1, 28))
        );
        assert_eq!(
            cycle(day(2027, 1, 1), 15),
            (day(2026, 12, 15), day(2027, 1, 15))
        );
        assert_eq!(
            cycle(day(2028, 2, 29), 28),
            (day(2028, 2, 28), day(2028, 3, 28))
        );
    }

    #[test]
    fn a_reset_day_that_a_month_has_not_is_its_last_day() {
        let cycle = |today, reset| {
            let cycle = Cycle::around(today, reset);
            (cycle.first, cycle.end)
        };
        let february = (day(2027, 1, 31), day(2027, 2, 28));
        assert_eq!(cycle(day(2027, 1, 31), 31), february);
        assert_eq!(cycle(day(2027, 2, 27), 31), february);
        let march = (day(2027, 2, 28), day(2027, 3, 31));
        assert_eq!(cycle(day(2027, 2, 28), 31), march);
        assert_eq!(cycle(day(2027, 3, 30), 31), march);
        let april = (day(2027, 3, 31), day(2027, 4, 30));
        assert_eq!(cycle(day(2027, 4, 29), 31), april);
        let leap = (day(2028, 2, 29), day(2028, 3, 29));
        assert_eq!(cycle(day(2028, 2, 29), 29), leap);
        let after_short = (day(2027, 2, 28), day(2027, 3, 29));
        assert_eq!(cycle(day(2027, 3, 28), 29), after_short);
        let over_the_year = (day(2026, 12, 31), day(2027, 1, 31));
        assert_eq!(cycle(day(2026, 12, 31), 31), over_the_year);
        assert_eq!(cycle(day(2027, 1, 1), 31), over_the_year);
    }

    #[test]
    fn cycles_follow_each_other_without_a_gap() {
        for reset_day in 1..=31 {
            for today in day(2026, 11, 1)..day(2028, 4, 1) {
                let (now, next) = (
                    Cycle::around(today, reset_day),
                    Cycle::around(today + 1, reset_day),
                );
                assert!((now.first..now.end).contains(&today), "{reset_day} {today}");
                let goes_on = next == now;
                let begins = next.first == now.end && now.end == today + 1;
                assert!(goes_on || begins, "{reset_day} {today}");
            }
        }
    }

    #[test]
    fn a_forecast_goes_on_as_it_was_and_needs_a_day() {
        let cycle = Cycle::around(day(2026, 11, 11), 1);
        let at = |days: f64| cycle.first as f64 + days;
        assert_eq!(cycle.forecast(10, at(0.5)), None);
        assert_eq!(cycle.forecast(10, at(10.0)), Some(Forecast { bytes: 30 }));
    }
}
