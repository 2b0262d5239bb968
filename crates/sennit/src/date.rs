//! Dates as programs read them: RFC 3339, in UTC.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// In whole seconds.
pub(crate) fn seconds(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    written(time.replace_nanosecond(0).unwrap_or(time))
}

/// In whole milliseconds, three digits always, so that dates stand below each other.
pub(crate) fn millis(time: SystemTime) -> String {
    let millis = OffsetDateTime::from(time).millisecond();
    let whole = seconds(time);
    let whole = whole.trim_end_matches('Z');
    format!("{whole}.{millis:03}Z")
}

fn written(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
