//! Formats times: since the start of a run, and how long ago.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970. None if the text is not a time.
pub(super) fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

pub(super) fn now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// Formatted as `+0:00:01.420`: hours, minutes, seconds.
pub(super) fn elapsed(start: i64, at: i64) -> String {
    let ms = at.saturating_sub(start).max(0);
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!("+{}:{:02}:{seconds:02}.{ms:03}", minutes / 60, minutes % 60)
}

/// A rounded duration for people: `42s`, `3m`, `5h`, `12d`.
pub(super) fn short_duration(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago this was, or the text itself if it is not a time.
pub(super) fn age(text: &str, now: i64) -> String {
    parse_ms(text)
        .map_or_else(|| super::terminal_text::escaped(text), |at| short_duration(now.saturating_sub(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_since_the_start_of_the_run() {
        let at = |text: &str| parse_ms(text).expect("a time");
        let start = at("2026-01-01T00:00:00.000Z");
        for (text, expected) in [
            ("2026-01-01T00:00:00.915Z", "+0:00:00.915"),
            ("2026-01-01T02:00:01.420Z", "+2:00:01.420"),
            ("2026-01-03T00:00:00.000Z", "+48:00:00.000"),
            ("2025-12-31T00:00:00.000Z", "+0:00:00.000"),
        ] {
            assert_eq!(elapsed(start, at(text)), expected);
        }
        assert_eq!(parse_ms("soon"), None);
    }

    #[test]
    fn ages_are_as_long_as_they_need_to_be() {
        let ages = [0, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000 * 12].map(short_duration);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "12d"]);
    }
}
