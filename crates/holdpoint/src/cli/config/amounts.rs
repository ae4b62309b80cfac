//! Durations, sizes and addresses as they are written in the file.

use std::net::IpAddr;
use std::time::Duration;

use super::table::Entry;

const DURATION: &str = "a whole number and ms, s, m, h or d, such as \"30s\"";
const SIZE: &str = "a whole number and B, KiB, MiB or GiB, such as \"1MiB\"";

impl Entry<'_> {
    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.text(DURATION)?;
        let found = amount(text, |unit| match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        });
        match found {
            Some(milliseconds) => Some(Duration::from_millis(milliseconds)),
            None => self.location.refuse(format!("{text:?} is no duration; write {DURATION}")),
        }
    }

    /// For settings where a duration of zero would make no sense.
    pub(super) fn nonzero_duration(&self) -> Option<Duration> {
        let duration = self.duration()?;
        if duration.is_zero() {
            return self.location.refuse("no time is too short; write a longer one, such as \"30s\"");
        }
        Some(duration)
    }

    pub(super) fn size(&self) -> Option<u64> {
        let text = self.text(SIZE)?;
        let found = amount(text, |unit| match unit {
            "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        });
        found
            .filter(|bytes| *bytes > 0)
            .or_else(|| self.location.refuse(format!("{text:?} is no size; write {SIZE}")))
    }

    pub(super) fn http_url(&self) -> Option<&str> {
        const URL: &str = "an address that begins with http:// or https://";
        let text = self.text(URL)?;
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
        let host = rest.unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
        if has_host && host.contains('@') && !text.contains(char::is_whitespace) {
            return self.location.refuse(
                "this address has a user or a password in it, which logs and errors could show; remove them. A secret goes into \
                 the environment variable that bearer_env or api_key_env names",
            );
        }
        if has_host && !text.contains(char::is_whitespace) {
            return Some(text);
        }
        // An address can contain a password, and other people may read the message.
        let shown = if text.contains(['@', '?']) { "this value".to_owned() } else { format!("{text:?}") };
        self.location.refuse(format!("{shown} is no such address; write {URL}"))
    }
}

pub(super) const KEY_IN_CLEAR: &str = "the key is sent over plain HTTP to another machine, so every machine on the way can read it; \
    use an https:// address";

/// Whether requests to this address can be read on the network: it uses plain HTTP and is on another machine.
pub(super) fn is_sent_in_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !is_loopback && !host.eq_ignore_ascii_case("localhost")
}

#[test]
fn only_plain_http_to_another_machine_is_sent_in_clear() {
    for url in [
        "http://example.com/x",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://[2001:db8::1]:80/",
    ] {
        assert!(is_sent_in_clear(url), "{url}");
    }
    for url in ["https://example.com", "http://localhost:1/x", "http://127.9.9.9", "http://[::1]:9/x"] {
        assert!(!is_sent_in_clear(url), "{url}");
    }
}

fn amount(text: &str, unit_size: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    count.parse::<u64>().ok()?.checked_mul(unit_size(unit)?)
}

/// Whether the name can be used in an address, a list of tools and a log without quotes.
pub(super) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) const NAME_BYTES_MAX: usize = machine::revision::TOOL_NAME_BYTES_MAX;
