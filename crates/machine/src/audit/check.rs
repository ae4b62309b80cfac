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
    known: Vec<KnownHead>,
    record_count: u64,
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
        Self { tenant: tenant.to_string(), chain: pruned, known, record_count: 0 }
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
        let differs = self.known.iter().find(|head| head.seq == record.seq && head.hash != record.hash);
        if let Some(head) = differs {
            let why = format!("its hash was {} when its head was exported or signed", head.hash);
            return Err(self.broken(record.seq, &why));
        }
        self.record_count += 1;
        Ok(())
    }

    /// The records are over, and `head` is the stored end of the chain.
    pub fn finish(&self, head: AuditChain) -> Result<(), BrokenRecord> {
        let last = self.chain.seq;
        if self.chain != head {
            let why = format!("the records end with {last}, and the stored head is {}", head.seq);
            return Err(self.broken(last.saturating_add(1), &why));
        }
        match self.known.iter().find(|known| known.seq > last) {
            Some(known) => {
                let why = format!(
                    "the chain ends with record {last}, and a head of record {} was exported or signed: \
                     the end was cut off",
                    known.seq
                );
                Err(self.broken(last.saturating_add(1), &why))
            }
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn broken(&self, seq: u64, why: &str) -> BrokenRecord {
        BrokenRecord { tenant: self.tenant.clone(), seq, why: why.into() }
    }
}
