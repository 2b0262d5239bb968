//! Dates as programs read them: RFC 3339, in UTC.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// In whole seconds.
pub(crate) fn seconds(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    written(time.replace_nanosecond(0).unwrap_or(time))
}

/// In whole milliseconds.
pub(crate) fn millis(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let nanos = u32::from(time.millisecond()) * 1_000_000;
    written(time.replace_nanosecond(nanos).unwrap_or(time))
}

fn written(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
