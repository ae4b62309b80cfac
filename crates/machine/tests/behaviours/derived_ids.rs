//! Ids that are derived: their form, and that none is ever stored as another.

use machine::id::{CallId, Digest, RunId, SuspensionId, grant_id, idempotency_key};

use crate::story::Story;

/// The ids of many suspensions: of approvals, and of calls that a front end performs.
fn derived() -> Vec<SuspensionId> {
    let mut story = Story::begin();
    let calls: Vec<(String, &str)> =
        (0..60).map(|n| (format!("c{n}"), if n % 2 == 0 { "transfer" } else { "pick_file" })).collect();
    let calls: Vec<(&str, &str)> = calls.iter().map(|(id, tool)| (id.as_str(), *tool)).collect();
    story.asks_for(&calls);
    story.run.control.pending().into_iter().map(|pending| pending.suspension_id).collect()
}

#[test]
fn derived_ids_have_the_form_of_a_version_7_uuid_after_their_prefix() {
    let ids = derived();
    assert_eq!(ids.len(), 60);
    let mut variants = std::collections::BTreeSet::new();
    for (id, n) in ids.iter().zip(0..) {
        let text = id.as_str();
        assert_eq!(&text[..4], if n % 2 == 0 { "apr_" } else { "sus_" });
        let groups: Vec<&str> = text[4..].split('-').collect();
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{text}");
        assert!(
            text[4..]
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        );
        assert_eq!(&groups[2][..1], "7", "{text}");
        // The time in front, in milliseconds: the story begins at 1,000.
        assert_eq!(&text[4..17], "00000000-03e8", "{text}");
        variants.insert(groups[3][..1].to_owned());
    }
    assert_eq!(variants.into_iter().collect::<Vec<_>>(), ["8", "9", "a", "b"]);
}

#[test]
fn an_id_is_stored_in_few_bytes_where_it_was_derived_and_is_never_read_back_as_another() {
    for id in derived() {
        let stored = postcard::to_allocvec(&id).unwrap();
        assert_eq!(stored.len(), 17, "{id}");
        assert_eq!(postcard::from_bytes::<SuspensionId>(&stored).unwrap(), id);
    }
    let odd = [
        "apr_1",
        "",
        "apr_0190F3C4-7A3B-7C22-B1A5-0123456789AB",
        "apr_0190f3c47a3b7c22b1a50123456789ab",
        "apr_0190f3c4-7a3b-7c22-b1a5-0123456789ag",
        "apr_0190f3c47-a3b-7c22-b1a5-0123456789ab",
        "run_0190f3c4-7a3b-7c22-b1a5-0123456789ab",
        "apr_sus_0190f3c4-7a3b-7c22-b1a5-0123456789ab",
    ];
    for text in odd {
        let id = SuspensionId::from(text);
        let stored = postcard::to_allocvec(&id).unwrap();
        assert_eq!(postcard::from_bytes::<SuspensionId>(&stored).unwrap(), id, "{text}");
    }
}

#[test]
fn a_digest_is_written_in_lower_case_hex_and_nothing_else_is_read_as_one() {
    let digest = Digest::sha256(b"");
    let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!((digest.to_string(), format!("{digest:?}")), (hex.to_owned(), format!("Digest({hex})")));
    assert_eq!(serde_json::to_value(digest).unwrap(), hex);
    assert_eq!(serde_json::from_value::<Digest>(hex.into()).unwrap(), digest);
    for text in ["", &hex[1..], &format!("{hex}0"), &hex.to_uppercase(), &hex.replace('b', "g")] {
        assert!(serde_json::from_value::<Digest>((*text).into()).is_err(), "{text}");
    }
}

#[test]
fn ids_that_are_derived_never_change_between_versions() {
    let (run, call) = (RunId::from("run_1"), CallId::from("call_1"));
    let arguments = Digest::sha256(b"{}");
    let key = "d30a045b72dec7b1ddbc02b8754bd30a837e56c14e3010370acd1489eb5f9089";
    assert_eq!(idempotency_key(&run, &call, &arguments), key);
    assert_eq!(grant_id(&"apr_7".into()).as_str(), "grt_7");
    assert_eq!(grant_id(&"other".into()).as_str(), "grt_other");
}

#[test]
fn keyed_digests_are_those_of_rfc_4231() {
    let short = Digest::hmac_sha256(b"Jefe", b"what do ya want for nothing?");
    assert_eq!(format!("{short}"), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    let long = Digest::hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
    assert_eq!(format!("{long}"), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
