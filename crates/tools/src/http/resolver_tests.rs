//! Which addresses are private.

use std::net::SocketAddr;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::resolver::{GuardedResolver, permitted};

fn found(addresses: &[&str]) -> Vec<SocketAddr> {
    addresses.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 80)).collect()
}

#[test]
fn names_that_lead_into_a_private_network_are_refused() {
    let private = [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd12::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "::ffff:169.254.169.254",
        "192.88.99.1",
        "192.0.2.1",
        "198.51.100.7",
        "203.0.113.9",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:1ff:ffff::1",
        "2001:db8::1",
        "3fff::1",
        "3fff:fff:ffff::1",
        "64:ff9b:1::a00:1",
        "5f00::1",
        "100::1",
        "::10.0.0.1",
    ];
    for address in private {
        assert!(permitted(found(&[address]), false).is_err(), "{address}");
        assert!(permitted(found(&[address]), true).is_ok(), "{address}");
        assert!(
            permitted(found(&["93.184.216.34", address]), false).is_err(),
            "{address} beside a public one"
        );
    }
    let public = [
        "93.184.216.34",
        "172.32.0.1",
        "100.128.0.1",
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "192.88.100.1",
        "2001:200::1",
        "2001:4860:4860::8888",
        "3fff:1000::1",
        "3ffe::1",
    ];
    for address in public {
        assert!(permitted(found(&[address]), false).is_ok(), "{address}");
    }
}

/// The host name of a tool may later resolve to an address that the operator did not expect.
#[tokio::test]
async fn what_a_name_resolves_to_is_looked_at_each_time() {
    let here: Name = "localhost".parse().unwrap();
    let refused = GuardedResolver::for_host("tools.example.com", false).call(here.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("private_network = true"), "{refused}");
    assert!(GuardedResolver::for_host("tools.example.com", true).call(here.clone()).await.unwrap().len() > 0);
    assert!(GuardedResolver::for_host("LOCALHOST", false).call(here).await.unwrap().len() > 0);
}
