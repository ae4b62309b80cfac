//! Reads and verifies the audit record of a store from outside, without a server.

use std::future::Future;

use engine::store::{StoreError, StoreFailure, Tenant, TenantChain};
use machine::audit::{AuditChain, BrokenRecord, ChainCheck, KnownHead, SealedRecord, time_text};

use crate::columns::timestamp;
use crate::doctor::{FindingCode, Findings};

/// A sealed row, with the columns beside its content.
pub struct AuditRow {
    pub(crate) sealed: SealedRecord,
    pub(crate) at: i64,
    pub(crate) action: String,
    pub(crate) actor: String,
}

/// The stored chain of a tenant, and rows that are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChain {
    pub(crate) chain: TenantChain,
    /// Rows that wait to be sealed.
    pub(crate) unsealed: u64,
    /// Rows with the number of a record that was pruned.
    pub(crate) before_start: u64,
}

/// A store whose audit record is read.
pub trait AuditSource {
    /// The chain of every tenant that has one or has rows, or only of this tenant, as of one moment, by tenant.
    fn chains(&self, only: Option<&Tenant>) -> impl Future<Output = Result<Vec<StoredChain>, StoreError>>;

    /// Sealed rows of a tenant after this number, a bounded number, in order.
    fn rows(&self, tenant: &Tenant, after: u64) -> impl Future<Output = Result<Vec<AuditRow>, StoreError>>;
}

/// The result of the verification of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedChain {
    pub chain: TenantChain,
    pub records: u64,
    /// Rows that the chain does not cover yet.
    pub unsealed: u64,
    /// The first record that is not as it was sealed.
    pub broken: Option<BrokenRecord>,
    /// The newest known head, if it lies in the part that was pruned, so that nothing could be compared.
    pub uncompared: Option<KnownHead>,
}

/// How often a chain is verified from its beginning because records were pruned meanwhile.
const RESTART_COUNT_MAX: usize = 3;

/// Verifies every chain, and compares it with heads that are known from elsewhere.
pub async fn verify_audit(
    source: &impl AuditSource,
    known: &[KnownHead],
) -> Result<Vec<VerifiedChain>, StoreError> {
    let mut chains = source.chains(None).await?;
    for head in known {
        if chains.iter().all(|stored| stored.chain.tenant.as_str() != head.tenant) {
            chains.push(StoredChain::empty(Tenant::from(head.tenant.as_str())));
        }
    }
    let mut verified = Vec::new();
    for stored in chains {
        verified.push(verify_tenant(source, stored, known).await?);
    }
    Ok(verified)
}

impl StoredChain {
    const fn empty(tenant: Tenant) -> Self {
        let chain = TenantChain { tenant, pruned: AuditChain::START, head: AuditChain::START };
        Self { chain, unsealed: 0, before_start: 0 }
    }
}

async fn reread(source: &impl AuditSource, tenant: &Tenant) -> Result<StoredChain, StoreError> {
    let found = source.chains(Some(tenant)).await?.into_iter().next();
    Ok(found.unwrap_or_else(|| StoredChain::empty(tenant.clone())))
}

/// Reads without a long transaction: records may be sealed and pruned meanwhile.
async fn verify_tenant(
    source: &impl AuditSource,
    mut stored: StoredChain,
    known: &[KnownHead],
) -> Result<VerifiedChain, StoreError> {
    let tenant = stored.chain.tenant.clone();
    let mut restarts = 0;
    loop {
        let pruned = stored.chain.pruned;
        let mut check = ChainCheck::new(tenant.as_str(), pruned, known);
        let broken = verify_rows(source, &tenant, &mut check, pruned.seq).await?;
        let now = reread(source, &tenant).await?;
        if broken.is_some() && now.chain.pruned != pruned && restarts < RESTART_COUNT_MAX {
            stored = now;
            restarts += 1;
            continue;
        }
        let stray = (now.before_start > 0).then(|| {
            let why = format!("{} rows have the number of a record that was pruned", now.before_start);
            check.broken(pruned.seq, &why)
        });
        return Ok(VerifiedChain {
            records: check.record_count(),
            unsealed: now.unsealed,
            broken: broken.or(stray),
            uncompared: check.uncompared().cloned(),
            chain: TenantChain { pruned, ..now.chain },
        });
    }
}

/// Reads the head after the rows, so that every row that was sealed is at or before it.
async fn verify_rows(
    source: &impl AuditSource,
    tenant: &Tenant,
    check: &mut ChainCheck,
    mut after: u64,
) -> Result<Option<BrokenRecord>, StoreError> {
    let mut head = None;
    loop {
        let rows = source.rows(tenant, after).await?;
        for row in &rows {
            if let Err(broken) = check_row(check, row) {
                return Ok(Some(broken));
            }
            after = row.sealed.seq;
        }
        if !rows.is_empty() {
            continue;
        }
        let now = reread(source, tenant).await?.chain.head;
        // More was sealed since the last row was read.
        if now.seq > after && head != Some(now) {
            head = Some(now);
            continue;
        }
        return Ok(check.finish(now).err());
    }
}

fn check_row(check: &mut ChainCheck, row: &AuditRow) -> Result<(), BrokenRecord> {
    check.record(&row.sealed)?;
    let columns =
        [("at", time_text(timestamp(row.at))), ("action", row.action.clone()), ("by", row.actor.clone())];
    for (name, column) in columns {
        let content =
            row.sealed.text(name).map_err(|fault| check.broken(row.sealed.seq, &fault.to_string()))?;
        if content != column {
            let why = format!("its column for `{name}` says {column}, and its content says {content}");
            return Err(check.broken(row.sealed.seq, &why));
        }
    }
    Ok(())
}

/// The doctor's part: reports every chain that is not as it was sealed.
pub(crate) async fn examine_audit(
    source: &impl AuditSource,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    for verified in verify_audit(source, &[]).await? {
        if let Some(BrokenRecord { tenant, seq, why }) = verified.broken {
            findings.add(FindingCode::AuditBroken, format!("audit record {seq} of tenant {tenant}"), why);
        }
    }
    Ok(())
}

/// The lines of an export: for each tenant where its chain begins, the records, and its head. `signed_head` returns the
/// line of a signed head, if heads are signed.
pub async fn export_audit(
    source: &impl AuditSource,
    tenant: Option<&Tenant>,
    signed_head: impl Fn(&TenantChain) -> Option<String>,
    mut line: impl FnMut(String) -> bool,
) -> Result<(), StoreError> {
    for StoredChain { chain, .. } in source.chains(tenant).await? {
        if !line(chain_line("chain", &chain.tenant, chain.pruned)) {
            return Ok(());
        }
        let mut after = chain.pruned.seq;
        while after < chain.head.seq {
            let rows = source.rows(&chain.tenant, after).await?;
            let Some(last) = rows.last().map(|row| row.sealed.seq).filter(|last| *last > after) else {
                break;
            };
            let is_pruned = rows.first().is_some_and(|row| row.sealed.seq > after.saturating_add(1))
                && reread(source, &chain.tenant).await?.chain.pruned != chain.pruned;
            if is_pruned {
                let why = "records were pruned while they were exported; export again".to_owned();
                return Err(StoreFailure::Unavailable(why).into());
            }
            for row in rows.into_iter().filter(|row| row.sealed.seq <= chain.head.seq) {
                // A record that was altered beyond recognition is exported as it is stored: verifying finds it.
                let text = row.sealed.to_line().unwrap_or(row.sealed.body);
                if !line(text) {
                    return Ok(());
                }
            }
            after = last;
        }
        let head = signed_head(&chain).unwrap_or_else(|| chain_line("head", &chain.tenant, chain.head));
        if !line(head) {
            return Ok(());
        }
    }
    Ok(())
}

fn chain_line(kind: &str, tenant: &Tenant, end: AuditChain) -> String {
    let AuditChain { seq, hash } = end;
    serde_json::json!({ kind: {"hash": hash.to_string(), "seq": seq, "tenant": tenant.as_str()} }).to_string()
}
