//! Which addresses a tool's host name may resolve to. A public name that resolves to a private network is an attack
//! path.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Resolves names, and returns only addresses that may be contacted.
#[derive(Clone)]
pub(super) struct GuardedResolver {
    private_network: bool,
    system: GaiResolver,
}

impl GuardedResolver {
    /// For the host in the configured address: `localhost` is always allowed, and a numeric address is never looked up.
    pub(super) fn for_host(host: &str, private_network: bool) -> Self {
        let local = host.eq_ignore_ascii_case("localhost");
        Self { private_network: private_network || local, system: GaiResolver::new() }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.system.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let private_network = self.private_network;
        let found = self.system.call(name);
        Box::pin(async move { permitted(found.await?.collect(), private_network) })
    }
}

/// All or nothing: if one address of a name is private, the whole name is refused.
pub(super) fn permitted(
    found: Vec<SocketAddr>,
    private_network: bool,
) -> io::Result<vec::IntoIter<SocketAddr>> {
    if !private_network && found.iter().any(|address| !is_public(address.ip())) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "its name resolves to a private address; set `private_network = true` if that is meant",
        ));
    }
    Ok(found.into_iter())
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    let protocols = first == 192 && second == 0 && third == 0;
    let relays = first == 192 && second == 88 && third == 99;
    let benchmarks = first == 198 && (18..20).contains(&second);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        || first >= 224
        || shared
        || protocols
        || relays
        || benchmarks)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inside) = address.to_ipv4_mapped() {
        return is_public_v4(inside);
    }
    let [first, second, ..] = address.segments();
    // IPv6 addresses that embed an IPv4 address lead to wherever that address leads.
    let translated = first == 0x64 && second == 0xff9b || first == 0x2002;
    // Reserved for protocols, such as the one that embeds an IPv4 address into 2001:0::/32.
    let protocols = first == 0x2001 && second < 0x200;
    let documentation = first == 0x2001 && second == 0xdb8 || first == 0x3fff && second < 0x1000;
    // Only this block is assigned to globally reachable addresses.
    first & 0xe000 == 0x2000 && !translated && !protocols && !documentation
}
