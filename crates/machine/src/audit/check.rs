//! Verifies a whole chain, record by record, and compares it with heads that are known from elsewhere.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::chain::{AuditChain, SealedRecord};
use crate::id::Digest;

/// The end of a chain as it was at an earlier time, from an export or a signed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHead {
    pub tenant: String,
    pub seq: u64,
    pub hash: Digest,
}

/// The verification of one tenant's chain.
#[derive(Clone, Debug)]
pub struct ChainCheck {
    tenant: String,
    chain: AuditChain,
    /// Where the chain begins according to the store or the export. It counts only if a record says so.
    pruned: AuditChain,
    prune_is_recorded: bool,
    known: Vec<KnownHead>,
    /// The last record that says that the store was restored.
    restored: Option<Restored>,
    record_count: u64,
}

/// The store was started from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Restored {
    /// When the backup was taken.
    pub(super) taken_at: String,
    /// The last record in the backup.
    pub(super) head_seq: u64,
}

/// The first record of a chain that is not as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenRecord {
    pub tenant: String,
    pub seq: u64,
    pub why: String,
}

impl ChainCheck {
    /// Begins after what was pruned. Heads of other tenants are ignored.
    #[must_use]
    pub fn new(tenant: &str, pruned: AuditChain, known: &[KnownHead]) -> Self {
        let known = known.iter().filter(|head| head.tenant == tenant).cloned().collect();
        let prune_is_recorded = pruned == AuditChain::START;
        let tenant = tenant.to_string();
        Self { tenant, chain: pruned, pruned, prune_is_recorded, known, restored: None, record_count: 0 }
    }

    /// The newest known head, if it lies in the part that was pruned: then nothing could be compared with what is known
    /// from elsewhere.
    #[must_use]
    pub fn uncompared(&self) -> Option<&KnownHead> {
        self.known.iter().max_by_key(|head| head.seq).filter(|head| head.seq < self.pruned.seq)
    }

    #[must_use]
    pub const fn record_count(&self) -> u64 {
        self.record_count
    }

    /// The number that the next record must have.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.chain.seq.saturating_add(1)
    }

    /// The next record.
    pub fn record(&mut self, record: &SealedRecord) -> Result<(), BrokenRecord> {
        self.chain.verify(record).map_err(|fault| self.broken(record.seq, &fault.to_string()))?;
        let tenant = record.text("tenant").map_err(|fault| self.broken(record.seq, &fault.to_string()))?;
        if tenant != self.tenant {
            return Err(self.broken(record.seq, &format!("it is a record of tenant {tenant}")));
        }
        if let Some(restored) = record.restored_from() {
            self.restored = Some(restored);
        }
        let differs = self.known.iter().find(|head| head.seq == record.seq && head.hash != record.hash);
        if let Some(head) = differs {
            let why = format!("its hash was {} when its head was exported or signed", head.hash);
            return Err(self.not_in_backup(head).unwrap_or_else(|| self.broken(record.seq, &why)));
        }
        self.prune_is_recorded |= record.pruned_through() == Some(self.pruned);
        self.record_count += 1;
        Ok(())
    }

    /// The records are over, and `head` is the stored end of the chain.
    pub fn finish(&self, head: AuditChain) -> Result<(), BrokenRecord> {
        let last = self.chain.seq;
        if self.chain != head {
            let why = if head.seq < last {
                format!(
                    "the stored head is {}, and records follow it, up to {last}: they were added without being \
                     sealed, or the head was set back",
                    head.seq
                )
            } else {
                format!("the records end with {last}, and the stored head is {}", head.seq)
            };
            return Err(self.broken(last.min(head.seq).saturating_add(1), &why));
        }
        if !self.prune_is_recorded {
            return Err(self.without_prune_record());
        }
        let at_start = |known: &&KnownHead| known.seq == self.pruned.seq && known.hash != self.pruned.hash;
        if let Some(known) = self.known.iter().find(at_start) {
            let why = format!("its hash was {} when its head was exported or signed", known.hash);
            return Err(self.broken(known.seq, &why));
        }
        match self.known.iter().find(|known| known.seq > last) {
            Some(known) => {
                let why = format!(
                    "the chain ends with record {last}, and a head of record {} was exported or signed: \
                     the end was cut off",
                    known.seq
                );
                Err(self.not_in_backup(known).unwrap_or_else(|| self.broken(last.saturating_add(1), &why)))
            }
            None => Ok(()),
        }
    }

    /// What to say of a known head that was lost when the store was restored.
    fn not_in_backup(&self, known: &KnownHead) -> Option<BrokenRecord> {
        let Restored { taken_at, head_seq } =
            self.restored.as_ref().filter(|restored| restored.head_seq < known.seq)?;
        let first = head_seq.saturating_add(1);
        let why = format!(
            "this store was restored from a backup that was taken at {taken_at} and ends with record {head_seq}; \
             records {first} to {}, which existed when a head was exported or signed, are not in it",
            known.seq
        );
        Some(self.broken(first, &why))
    }

    /// An attacker who deletes the oldest records can also change where the chain begins, but cannot add the record that
    /// retention leaves without changing the chain.
    fn without_prune_record(&self) -> BrokenRecord {
        let AuditChain { seq, hash } = self.pruned;
        if seq == 0 {
            return self.broken(1, "the chain does not begin with 32 zero bytes, and no record was pruned");
        }
        let why = format!(
            "records 1 to {seq} are missing, and no `audit.pruned` record with through_seq {seq} and through_hash \
             {hash} says that retention deleted them"
        );
        self.broken(1, &why)
    }

    #[must_use]
    pub fn broken(&self, seq: u64, why: &str) -> BrokenRecord {
        BrokenRecord { tenant: self.tenant.clone(), seq, why: why.into() }
    }
}
