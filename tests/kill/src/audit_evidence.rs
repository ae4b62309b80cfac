//! The audit record of a store: sealed, verified and read, as `/v1/audit` and `holdpoint audit verify` do.

use engine::store::{AUDIT_RECORDS_MAX, AuditFilter, Store, TenantChain, seal_all};
use machine::audit::{AuditAction, BrokenRecord, ChainCheck, SealedRecord};
use machine::id::{CallId, DecisionId, Principal, RunId, SuspensionId};
use serde::Deserialize;
use serde_json::Value;

use crate::node::Failure;

#[derive(Clone, Debug, Default)]
pub struct AuditEvidence {
    /// The records of all tenants, each tenant's in the order of its chain.
    pub records: Vec<AuditedRecord>,
    /// Records that are not as they were sealed.
    pub broken: Vec<BrokenRecord>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AuditedRecord {
    pub tenant: String,
    pub action: String,
    pub by: Principal,
    pub run_id: Option<RunId>,
    pub call_id: Option<CallId>,
    pub suspension_id: Option<SuspensionId>,
    pub detail: Value,
}

impl AuditedRecord {
    #[must_use]
    pub fn is(&self, action: AuditAction) -> bool {
        self.action == action.as_str()
    }

    /// The grant that the record is about.
    #[must_use]
    pub fn grant(&self) -> Option<&str> {
        self.detail.get("grant_id").and_then(Value::as_str)
    }

    /// The decision that the record names.
    #[must_use]
    pub fn decision(&self) -> Option<DecisionId> {
        self.detail.get("decision_id").and_then(Value::as_str).map(DecisionId::from)
    }
}

pub async fn read(store: &impl Store) -> Result<AuditEvidence, Failure> {
    if let Some(tenant) = seal_all(store).await?.into_iter().next() {
        return Err(format!("the audit record of {tenant} cannot be sealed").into());
    }
    let mut evidence = AuditEvidence::default();
    for chain in store.audit_chains().await? {
        read_chain(store, &chain, &mut evidence).await?;
    }
    Ok(evidence)
}

async fn read_chain(
    store: &impl Store,
    TenantChain { tenant, pruned, head }: &TenantChain,
    evidence: &mut AuditEvidence,
) -> Result<(), Failure> {
    let mut check = ChainCheck::new(tenant.as_str(), *pruned, &[]);
    let mut after = pruned.seq;
    loop {
        let records = store.audit(tenant, &AuditFilter::default(), after, AUDIT_RECORDS_MAX).await?;
        let Some(last) = records.last() else { break };
        after = last.seq;
        for sealed in &records {
            evidence.broken.extend(check.record(sealed).err());
            let SealedRecord { body, .. } = sealed;
            evidence.records.push(serde_json::from_str(body)?);
        }
    }
    evidence.broken.extend(check.finish(*head).err());
    Ok(())
}
