//! Hosts and origins: which of them are on this machine, which are equal, and which other origins may call.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::Authority;

pub(crate) fn is_loopback_host(host: &str) -> bool {
    !host.contains('@') && host.parse::<Authority>().is_ok_and(|authority| is_loopback(authority.host()))
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || bare.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}

/// Scheme, host and port of an origin or of a URL, in normal form.
pub(crate) fn origin_parts(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    // No browser sends a user or a password in an origin.
    if uri.authority()?.as_str().contains('@') {
        return None;
    }
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = match (uri.port_u16(), scheme.as_str()) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return None,
    };
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// The origin of a web page as a browser sends it: `scheme://host` or `scheme://host:port`, without the scheme's default
/// port and in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// What a wrong origin is refused with, after what is wrong with it.
    const WANTED: &'static str =
        "write the origin as the browser sends it, such as \"https://app.example.com\"";

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("{text:?} {why}; {}", Self::WANTED));
        if text.contains('*') {
            return refuse("has a wildcard, which would let pages of other sites call");
        }
        let Some((scheme, rest)) = text.split_once("://") else { return refuse("is no origin") };
        let is_scheme_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_scheme_letter) {
            return refuse("has no scheme");
        }
        if rest.contains('@') {
            return refuse("has a user name");
        }
        if rest.contains(['/', '?', '#', '\\']) {
            return refuse("has more than a scheme, a host and a port");
        }
        let scheme = scheme.to_ascii_lowercase();
        let Some((host, port)) = host_and_port(rest) else { return refuse("has no valid host and port") };
        let default_port = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port = port.filter(|port| Some(*port) != default_port);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self(format!("{scheme}://{host}{port}")))
    }
}

/// The host in lower case, and the port if one is written.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (host, port) = text.split_at_checked(end)?;
            let is_host_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if host.is_empty() || !host.chars().all(is_host_letter) {
                return None;
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(digits.parse::<u16>().ok().filter(|port| *port > 0)?)
        }
        None if port.is_empty() => None,
        Some(_) | None => return None,
    };
    Some((host, port))
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_a_host_and_perhaps_a_port() {
        for (text, normal) in [
            ("https://app.example.com", "https://app.example.com"),
            ("HTTPS://App.Example.com:443", "https://app.example.com"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[0:0::1]:3000", "http://[::1]:3000"),
            ("tauri://localhost", "tauri://localhost"),
        ] {
            assert_eq!(text.parse::<WebOrigin>().as_ref().map(WebOrigin::as_str), Ok(normal), "{text}");
        }
        for bad in [
            "*",
            "https://*.example.com",
            "null",
            "",
            "app.example.com",
            "//app.example.com",
            "https://",
            "https://app.example.com/",
            "https://app.example.com/path",
            "https://app.example.com?a",
            "https://app.example.com#a",
            "https://ann@app.example.com",
            "https://ann:word@app.example.com",
            "https://app.example.com:",
            "https://app.example.com:0",
            "https://app.example.com:65536",
            "https://app.example.com:+1",
            "https://app example.com",
            "https://b\u{fc}cher.example",
            "https://[::1",
            "https://[app]",
            " https://app.example.com",
            "ht tp://a",
        ] {
            assert!(bad.parse::<WebOrigin>().is_err(), "{bad}");
        }
    }
}
