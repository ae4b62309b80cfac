//! The hash chain over the commits of a run: what each hash covers.
//!
//! Every commit with events has a hash, the SHA-256 of the previous commit's hash and of its own content. The first
//! commit of the chain takes its [`anchor`] for the previous hash. A commit that was changed, moved or removed later no
//! longer matches its own hash, or the hash of the commit after it.

use crate::id::Digest;

/// Sets the content of a commit apart from everything else that is hashed. A new layout gets a new tag.
const CONTENT_TAG: &[u8] = b"holdpoint commit 1";
/// The same for the anchor of a chain that starts in the middle of a log.
const LATE_ANCHOR_TAG: &[u8] = b"holdpoint chain start 1";

/// The end of a run's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The first event of the first commit that has a hash: 1, unless an earlier version created the run.
    pub starts_at: u64,
    /// The hash of the last commit.
    pub hash: Digest,
}

/// What a commit's hash covers besides the previous hash.
#[derive(Clone, Copy, Debug)]
pub struct CommitContent<'c> {
    pub tenant: &'c str,
    pub run: &'c str,
    pub first_seq: u64,
    pub last_seq: u64,
    /// The stored name of the commit's checkpoint.
    pub checkpoint: &'c str,
    /// The stored events, one per line.
    pub body: &'c str,
}

impl CommitContent<'_> {
    /// Every text is preceded by its length, so that no byte can move from one field to the next.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let length = |text: &str| (text.len() as u64).to_be_bytes();
        let Self { tenant, run, first_seq, last_seq, checkpoint, body } = *self;
        Digest::sha256_of_parts(&[
            CONTENT_TAG,
            &length(tenant),
            tenant.as_bytes(),
            &length(run),
            run.as_bytes(),
            &first_seq.to_be_bytes(),
            &last_seq.to_be_bytes(),
            &length(checkpoint),
            checkpoint.as_bytes(),
            &length(body),
            body.as_bytes(),
        ])
    }
}

/// What takes the place of the previous hash in the first commit of a chain. In a run's first commit it is the digest
/// of the run's frozen agent. A run from before chains existed has its first hash in a later commit, whose anchor
/// also covers the number of that commit's first event.
#[must_use]
pub fn anchor(revision: &Digest, first_seq: u64) -> Digest {
    if first_seq == 1 {
        return *revision;
    }
    Digest::sha256_of_parts(&[LATE_ANCHOR_TAG, &revision.0, &first_seq.to_be_bytes()])
}

/// The hash of a commit. A store may compute it in its database: it is the SHA-256 of these 64 bytes.
#[must_use]
pub fn link(previous: &Digest, content: &Digest) -> Digest {
    Digest::sha256_of_parts(&[&previous.0, &content.0])
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use super::{CommitContent, anchor, link};
    use crate::id::Digest;

    const COMMIT: CommitContent<'_> = CommitContent {
        tenant: "acme",
        run: "run_1",
        first_seq: 3,
        last_seq: 5,
        checkpoint: "waiting",
        body: "{\"seq\":3}",
    };

    /// Stored chains must stay valid: these bytes never change.
    #[test]
    fn hashes_are_those_of_every_earlier_version() {
        let revision = Digest::sha256(b"revision");
        let hashes = [
            COMMIT.hash(),
            anchor(&revision, 1),
            anchor(&revision, 3),
            link(&anchor(&revision, 3), &COMMIT.hash()),
        ];
        assert_eq!(hashes.map(|hash| hash.to_string()), EXPECTED);
    }

    const EXPECTED: [&str; 4] = [
        "7c7c03c4fc78495d81daa59fa660cbae683b1295878a481c9c9d027d6d779318",
        "2b214ddf3326016519afcb268f63623b80b91a65265277668e4d020d87dd9078",
        "dc3fd6586affceb1182ec5be4e4e2e874aace039420d63a55241fcbea5eb814d",
        "5d265d08a98302f736d2bd18b351744dd115f66f6f0f69f27ba7d5b609e24e25",
    ];

    #[test]
    fn every_field_is_covered_and_nothing_moves_between_two() {
        let others = [
            COMMIT,
            CommitContent { tenant: "acm", ..COMMIT },
            CommitContent { tenant: "acmer", run: "un_1", ..COMMIT },
            CommitContent { run: "run_2", ..COMMIT },
            CommitContent { first_seq: 4, ..COMMIT },
            CommitContent { last_seq: 6, ..COMMIT },
            CommitContent { checkpoint: "waitin", ..COMMIT },
            CommitContent { checkpoint: "waiting{", body: "\"seq\":3}", ..COMMIT },
            CommitContent { body: "{\"seq\":4}", ..COMMIT },
        ];
        let hashes: BTreeSet<Digest> = others.iter().map(CommitContent::hash).collect();
        assert_eq!(hashes.len(), others.len());
    }

    #[test]
    fn a_link_depends_on_the_previous_hash_and_on_the_content() {
        let (one, other) = (Digest::sha256(b"1"), Digest::sha256(b"2"));
        let links = [link(&one, &one), link(&one, &other), link(&other, &one), link(&other, &other)];
        assert_eq!(BTreeSet::from(links).len(), 4);
        assert_ne!(anchor(&one, 2), anchor(&one, 3));
    }
}
