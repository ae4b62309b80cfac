//! Reads and verifies the audit record of a store from outside, without a server.

use std::future::Future;

use engine::store::{StoreError, Tenant, TenantChain};
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

/// A store whose audit record is read.
pub trait AuditSource {
    /// The chain of every tenant that has one or has sealed records, by tenant.
    fn chains(&self) -> impl Future<Output = Result<Vec<TenantChain>, StoreError>>;

    /// Sealed rows of a tenant after this number, a bounded number, in order.
    fn rows(&self, tenant: &Tenant, after: u64) -> impl Future<Output = Result<Vec<AuditRow>, StoreError>>;
}

/// The result of the verification of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedChain {
    pub chain: TenantChain,
    pub records: u64,
    /// The first record that is not as it was sealed.
    pub broken: Option<BrokenRecord>,
}

/// Verifies every chain, and compares it with heads that are known from elsewhere.
pub async fn verify_audit(
    source: &impl AuditSource,
    known: &[KnownHead],
) -> Result<Vec<VerifiedChain>, StoreError> {
    let chains = source.chains().await?;
    let is_gone = |head: &&KnownHead| chains.iter().all(|chain| chain.tenant.as_str() != head.tenant);
    let start = AuditChain::START;
    let mut gone: Vec<TenantChain> = Vec::new();
    for head in known.iter().filter(is_gone) {
        let tenant = Tenant::from(head.tenant.as_str());
        if gone.iter().all(|chain| chain.tenant != tenant) {
            gone.push(TenantChain { tenant, pruned: start, head: start });
        }
    }
    let mut verified = Vec::new();
    for chain in chains.into_iter().chain(gone) {
        verified.push(verify_chain(source, chain, known).await?);
    }
    Ok(verified)
}

async fn verify_chain(
    source: &impl AuditSource,
    chain: TenantChain,
    known: &[KnownHead],
) -> Result<VerifiedChain, StoreError> {
    let mut check = ChainCheck::new(chain.tenant.as_str(), chain.pruned, known);
    let mut after = chain.pruned.seq;
    let broken = loop {
        let rows = source.rows(&chain.tenant, after).await?;
        // What was sealed since the head was read is left to the next verification.
        let rows = rows.into_iter().filter(|row| row.sealed.seq <= chain.head.seq || chain.head.seq == 0);
        let mut last = None;
        let mut broken = None;
        for row in rows {
            last = Some(row.sealed.seq);
            broken = check_row(&mut check, &row).err();
            if broken.is_some() {
                break;
            }
        }
        match (broken, last) {
            (Some(broken), _) => break Some(broken),
            (None, Some(last)) if last > after => after = last,
            (None, Some(_) | None) => break check.finish(chain.head).err(),
        }
    };
    Ok(VerifiedChain { records: check.record_count(), chain, broken })
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

/// The lines of an export: for each tenant where its chain begins, the records, and its head.
pub async fn export_audit(
    source: &impl AuditSource,
    tenant: Option<&Tenant>,
    mut line: impl FnMut(String) -> bool,
) -> Result<(), StoreError> {
    for chain in source.chains().await? {
        if tenant.is_some_and(|only| *only != chain.tenant) {
            continue;
        }
        if !line(chain_line("chain", &chain.tenant, chain.pruned)) {
            return Ok(());
        }
        let mut after = chain.pruned.seq;
        while after < chain.head.seq {
            let rows = source.rows(&chain.tenant, after).await?;
            let Some(last) = rows.last().map(|row| row.sealed.seq).filter(|last| *last > after) else {
                break;
            };
            for row in rows.into_iter().filter(|row| row.sealed.seq <= chain.head.seq) {
                // A record that was altered beyond recognition is exported as it is stored: verifying finds it.
                let text = row.sealed.to_line().unwrap_or(row.sealed.body);
                if !line(text) {
                    return Ok(());
                }
            }
            after = last;
        }
        if !line(chain_line("head", &chain.tenant, chain.head)) {
            return Ok(());
        }
    }
    Ok(())
}

fn chain_line(kind: &str, tenant: &Tenant, end: AuditChain) -> String {
    let AuditChain { seq, hash } = end;
    serde_json::json!({ kind: {"hash": hash.to_string(), "seq": seq, "tenant": tenant.as_str()} }).to_string()
}
