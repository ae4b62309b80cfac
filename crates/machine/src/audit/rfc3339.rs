//! Times as the record writes them: RFC 3339, UTC, with milliseconds.

use alloc::format;
use alloc::string::String;

use crate::time::Timestamp;

const MS_PER_DAY: u64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z. A later time can only be a limit that is never reached.
const MS_MAX: u64 = 253_402_300_799_999;

pub(super) fn text(at: Timestamp) -> String {
    let ms = at.0.min(MS_MAX);
    let (year, month, day) = date(ms / MS_PER_DAY);
    let time = ms % MS_PER_DAY;
    let (hour, minute, second) = (time / 3_600_000, time / 60_000 % 60, time / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", time % 1_000)
}

/// The date that is this many days after 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}
