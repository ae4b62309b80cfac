//! Hosts and origins: which of them are on this machine, and which are equal.

use std::net::{Ipv4Addr, Ipv6Addr};

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
