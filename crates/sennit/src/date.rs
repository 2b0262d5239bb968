//! Dates as programs read them: RFC 3339, in UTC.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The end of the year 9999, after 1970: RFC 3339 has four digits for a year.
const LATEST: Duration = Duration::from_secs(253_402_300_799);

/// A time that a peer gives in seconds since 1970; nothing if no date can say it. To any other a
/// lifetime may be added without a look at what times can hold.
pub(crate) fn at(seconds: u64) -> Option<SystemTime> {
    (seconds <= LATEST.as_secs()).then(|| nearest(seconds))
}

/// The time that a file gives in seconds since 1970, or the last that a date can say.
pub(crate) fn nearest(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds).min(LATEST)
}

/// In whole seconds.
pub(crate) fn seconds(time: SystemTime) -> String {
    let time = date_of(time);
    written(time.replace_nanosecond(0).unwrap_or(time))
}

/// In whole milliseconds, three digits always, so that dates stand below each other.
pub(crate) fn millis(time: SystemTime) -> String {
    let millis = date_of(time).millisecond();
    let whole = seconds(time);
    let whole = whole.trim_end_matches('Z');
    format!("{whole}.{millis:03}Z")
}

/// The nearest date that can be said.
fn date_of(time: SystemTime) -> OffsetDateTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    OffsetDateTime::UNIX_EPOCH + since.unwrap_or_default().min(LATEST)
}

fn written(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits() {
        let dates =
            [0, 7, 530].map(|it| millis(SystemTime::UNIX_EPOCH + Duration::from_millis(it)));

        assert_eq!(
            dates,
            [
                "1970-01-01T00:00:00.000Z",
                "1970-01-01T00:00:00.007Z",
                "1970-01-01T00:00:00.530Z"
            ]
        );
    }

    /// One of the year 10000 ended the daemon that was to show it.
    #[test]
    fn any_time_is_shown_as_the_nearest_date() {
        let last = LATEST.as_secs();
        assert_eq!(at(last), Some(nearest(u64::MAX)));
        assert_eq!(at(last + 1), None);

        let beyond = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(i64::MAX as u64);
        assert_eq!(seconds(beyond), "9999-12-31T23:59:59Z");
        assert_eq!(millis(beyond), "9999-12-31T23:59:59.000Z");
        assert_eq!(seconds(before), "1970-01-01T00:00:00Z");
    }
}
