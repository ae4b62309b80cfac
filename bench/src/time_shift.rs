//! Moves every id and every timestamp in a text back in time, so that it describes other runs.

use std::ops::RangeInclusive;

/// `8-4-4-4-12` hex digits.
const UUID_BYTES: usize = 36;
/// The digits of a version 7 UUID that encode the time, with the dash between them.
const TIME_BYTES: usize = 13;

pub(crate) struct TimeShift {
    /// Milliseconds.
    pub(crate) by: i64,
    /// Numbers in this range are timestamps.
    pub(crate) window: RangeInclusive<i64>,
}

impl TimeShift {
    /// The result has the same length.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut told = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = ' ';
        while let Some(next) = rest.chars().next() {
            let length = if let Some(uuid) = uuid_in_front(rest) {
                told += &self.uuid(uuid);
                UUID_BYTES
            } else if next.is_ascii_digit() && !(before.is_ascii_alphanumeric() || "._-".contains(before)) {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                told += &self.number(&rest[..digits]);
                digits
            } else {
                told.push(next);
                next.len_utf8()
            };
            before = rest[..length].chars().next_back().unwrap_or(' ');
            rest = &rest[length..];
        }
        told
    }

    fn uuid(&self, uuid: &str) -> String {
        let (time, chance) = uuid.split_at(TIME_BYTES);
        let made_at = i64::from_str_radix(&time.replace('-', ""), 16).unwrap_or(0);
        let made_at = (made_at - self.by).max(0);
        format!("{:08x}-{:04x}{chance}", made_at >> 16, made_at & 0xffff)
    }

    fn number(&self, digits: &str) -> String {
        match digits.parse::<i64>() {
            Ok(at) if self.window.contains(&at) => (at - self.by).to_string(),
            Ok(_) | Err(_) => digits.to_owned(),
        }
    }
}

/// A version 7 UUID, which begins with a time.
pub(crate) fn uuid_in_front(text: &str) -> Option<&str> {
    let uuid = text.get(..UUID_BYTES)?;
    let fits = uuid.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        14 => byte == b'7',
        _ => byte.is_ascii_hexdigit(),
    });
    fits.then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::TimeShift;

    fn earlier(text: &str) -> String {
        TimeShift { by: 0x10, window: 1_000..=2_000 }.text(text)
    }

    #[test]
    fn an_id_keeps_its_length_and_its_chance_and_lies_earlier() {
        let id = "msg_run_019a8f00-0005-7c22-b1a5-0123456789ab_1";
        assert_eq!(earlier(id), "msg_run_019a8eff-fff5-7c22-b1a5-0123456789ab_1");
        let other_version = "019a8f00-0005-4c22-b1a5-0123456789ab";
        assert_eq!(earlier(other_version), other_version);
    }

    #[test]
    fn a_number_in_the_window_is_a_time_and_no_other_is() {
        assert_eq!(earlier(r#"{"ts":1500,"seq":3,"n":2001}"#), r#"{"ts":1484,"seq":3,"n":2001}"#);
        for not_a_time in ["a1500", "1500000", "0.1500", "x-1500", "ü", ""] {
            assert_eq!(earlier(not_a_time), not_a_time);
        }
    }
}
