//! Stored hash chains: whether the commits of a run match their hashes, and whether the last one is the run's head.

use std::fmt::Write as _;

use engine::store::{StoreError, StoreFailure};
use machine::chain::{ChainHead, CommitContent, anchor, link};
use machine::id::Digest;

use crate::columns::digest;

/// Breaks of one chain that are described. More would not help an operator.
const BREAK_COUNT_MAX: usize = 3;

/// The columns of a run's row that say where its chain starts and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainColumns {
    /// `None` in a run whose commits were all written by a version without chains.
    pub(crate) starts_at: Option<u64>,
    pub(crate) hash: Option<Vec<u8>>,
}

impl ChainColumns {
    /// `None` if the run has no chain.
    pub(crate) fn decoded(&self) -> Result<Option<ChainHead>, StoreError> {
        match (self.starts_at, &self.hash) {
            (None, None) => Ok(None),
            (Some(starts_at), Some(hash)) => Ok(Some(ChainHead { starts_at, hash: digest(hash)? })),
            (Some(_), None) | (None, Some(_)) => {
                Err(StoreFailure::Corrupt("a run has only one half of its chain's columns".into()).into())
            }
        }
    }
}

/// A stored commit, as far as its hash depends on it.
#[derive(Clone, Copy)]
pub(crate) struct HashedCommit<'c> {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) checkpoint: &'c str,
    pub(crate) body: &'c str,
    pub(crate) hash: Option<&'c [u8]>,
}

/// Compares the commits of one run with their hashes, in the order of the log.
pub(crate) struct ChainCheck<'r> {
    tenant: &'r str,
    run: &'r str,
    head: &'r ChainColumns,
    /// The last event and the hash of the commit before the next one.
    last_seq: u64,
    hash: Option<Vec<u8>>,
    breaks: Vec<String>,
    break_count: usize,
}

impl<'r> ChainCheck<'r> {
    pub(crate) const fn new(tenant: &'r str, run: &'r str, head: &'r ChainColumns) -> Self {
        Self { tenant, run, head, last_seq: 0, hash: None, breaks: Vec::new(), break_count: 0 }
    }

    /// Begins after the commit that ends with this event and has this hash.
    pub(crate) fn after(self, last_seq: u64, hash: Option<Vec<u8>>) -> Self {
        Self { last_seq, hash, ..self }
    }

    /// Compares the next commit. `revision` is the frozen agent of the run; without it, the first commit of the chain
    /// cannot be compared.
    pub(crate) fn add(&mut self, commit: &HashedCommit<'_>, revision: Option<&Digest>) {
        if let Some(fault) = self.fault(commit, revision) {
            let HashedCommit { first_seq, last_seq, .. } = commit;
            self.note(format!("the commit of events {first_seq} to {last_seq} {fault}"));
        }
        self.last_seq = commit.last_seq;
        self.hash = commit.hash.map(<[u8]>::to_vec);
    }

    fn fault(&self, commit: &HashedCommit<'_>, revision: Option<&Digest>) -> Option<String> {
        let HashedCommit { first_seq, last_seq, checkpoint, body, hash } = *commit;
        if first_seq != self.last_seq.saturating_add(1) {
            return Some(format!("follows event {}", self.last_seq));
        }
        let starts_at = self.head.starts_at.unwrap_or(u64::MAX);
        let found = match (hash, first_seq < starts_at) {
            (None, true) => return None,
            (Some(_), true) => return Some("has a hash, but the chain of the run does not reach it".into()),
            (None, false) => return Some("has no hash".into()),
            (Some(found), false) => found,
        };
        let previous = if first_seq == starts_at {
            anchor(revision?, first_seq)
        } else {
            match self.hash.as_deref().map(digest) {
                Some(Ok(previous)) => previous,
                Some(Err(_)) | None => return Some("follows a commit without a hash".into()),
            }
        };
        let content =
            CommitContent { tenant: self.tenant, run: self.run, first_seq, last_seq, checkpoint, body };
        (link(&previous, &content.hash()).0 != found).then(|| "does not match its hash".into())
    }

    fn note(&mut self, found: String) {
        self.break_count += 1;
        if self.breaks.len() < BREAK_COUNT_MAX {
            self.breaks.push(found);
        }
    }

    /// Call after the last commit. `seq` is the last event according to the run's row. Returns where the chain breaks,
    /// or `None` if it is whole.
    pub(crate) fn finish(mut self, seq: u64) -> Option<String> {
        if self.last_seq != seq {
            self.note(format!("the log ends with event {}, and the run's row says {seq}", self.last_seq));
        } else if self.head.hash.as_deref() != self.hash.as_deref() {
            self.note(format!(
                "the head in the run's row is not the hash of the commit that ends with event {seq}"
            ));
        } else if self.head.starts_at.is_some() != self.head.hash.is_some() {
            self.note("the run's row has only one half of its chain's columns".into());
        }
        if self.break_count == 0 {
            return None;
        }
        let mut text = self.breaks.join("; ");
        if self.break_count > self.breaks.len() {
            let _ = write!(text, "; and {} more", self.break_count - self.breaks.len());
        }
        Some(text)
    }
}

/// The last commit of a run, read together with the run's row.
pub(crate) struct LastCommit {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) checkpoint: String,
    pub(crate) body: String,
    pub(crate) hash: Option<Vec<u8>>,
    /// The hash of the commit before it.
    pub(crate) hash_before: Option<Vec<u8>>,
}

/// The end of a stored chain, which is compared whenever a worker loads the run.
pub(crate) struct ChainEnd {
    pub(crate) head: ChainColumns,
    pub(crate) last: Option<LastCommit>,
}

impl ChainEnd {
    /// [`StoreFailure::Corrupt`] if the last commit of the run is not the one that its row names. `seq` is the last
    /// event according to the row.
    pub(crate) fn check(
        &self,
        tenant: &str,
        run: &str,
        seq: u64,
        revision: &Digest,
    ) -> Result<(), StoreError> {
        let check = ChainCheck::new(tenant, run, &self.head);
        let check = match &self.last {
            Some(last) => {
                let mut check = check.after(last.first_seq.saturating_sub(1), last.hash_before.clone());
                check.add(&last.as_hashed(), Some(revision));
                check
            }
            None => check,
        };
        check.finish(seq).map_or(Ok(()), |found| {
            let why = format!("the hash chain of run {run} is broken: {found}; run `holdpoint doctor`");
            Err(StoreFailure::Corrupt(why).into())
        })
    }
}

impl LastCommit {
    fn as_hashed(&self) -> HashedCommit<'_> {
        HashedCommit {
            first_seq: self.first_seq,
            last_seq: self.last_seq,
            checkpoint: &self.checkpoint,
            body: &self.body,
            hash: self.hash.as_deref(),
        }
    }
}
