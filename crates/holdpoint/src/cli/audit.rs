//! `holdpoint audit`: exports and verifies the audit record, without a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use engine::store::Tenant;
use machine::audit::{AuditChain, BrokenRecord, ChainCheck, KnownHead, SealedRecord};
use machine::id::Digest;
use serde::Deserialize;
use serde_json::json;
use stores::audit_reader::{AuditSource, export_audit, verify_audit};
use stores::postgres::upkeep::{self, Upkeep};
use stores::sqlite::audit::SqliteAudit;

use super::output::{print, print_json, write_stdout};
use super::problem::{Exit, Problem};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database};

/// Export or verify the audit record
///
/// Works on a store or a backup, also while a server runs, and on an export without any store.
#[derive(Debug, Args)]
pub(super) struct Audit {
    #[command(subcommand)]
    action: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Print the sealed records of the store, one JSON object per line
    Export {
        /// Only this tenant
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Check that no sealed record was altered, removed or moved
    ///
    /// Without FILE, verifies the store. Exits with 1 if a record is broken, and names the first one of each tenant.
    Verify {
        /// An export to verify instead of the store
        file: Option<PathBuf>,
        /// An earlier export. If the record was cut off after it, that is found too
        #[arg(long, value_name = "EXPORT")]
        against: Option<PathBuf>,
    },
}

impl Audit {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        match &self.action {
            AuditCommand::Export { tenant } => export(global, tenant.as_deref()),
            AuditCommand::Verify { file, against } => {
                let known = match against {
                    Some(path) => read_export(path, &[])?.1,
                    None => Vec::new(),
                };
                let (name, chains) = match file {
                    Some(path) => (path.display().to_string(), read_export(path, &known)?.0),
                    None => (global.store.to_string(), verify_store(global, &known)?),
                };
                report(global, &name, &chains)
            }
        }
    }
}

/// The verification of one tenant's records.
struct ChainReport {
    tenant: String,
    records: u64,
    head: AuditChain,
    broken: Option<BrokenRecord>,
}

fn export(global: &GlobalArgs, tenant: Option<&str>) -> CommandResult {
    let tenant = tenant.map(Tenant::from);
    let mut failed = None;
    let line = |line: String| match write_stdout(&format!("{line}\n")) {
        Ok(continues) => continues,
        Err(problem) => {
            failed = Some(problem);
            false
        }
    };
    database::runtime()?.block_on(async {
        match &global.store {
            StoreUrl::Postgres { url } => {
                export_audit(&Upkeep::open(url, upkeep::settings()).await?, tenant.as_ref(), line).await?;
            }
            StoreUrl::Sqlite { .. } | StoreUrl::Memory => {
                export_audit(&file(global)?, tenant.as_ref(), line).await?;
            }
        }
        Ok::<_, Problem>(())
    })?;
    failed.map_or(Ok(CommandStatus::Success), Err)
}

fn file(global: &GlobalArgs) -> Result<SqliteAudit, Problem> {
    Ok(SqliteAudit::open(global.store.require_file("")?)?)
}

fn verify_store(global: &GlobalArgs, known: &[KnownHead]) -> Result<Vec<ChainReport>, Problem> {
    database::runtime()?.block_on(async {
        match &global.store {
            StoreUrl::Postgres { url } => {
                verify_source(&Upkeep::open(url, upkeep::settings()).await?, known).await
            }
            StoreUrl::Sqlite { .. } | StoreUrl::Memory => verify_source(&file(global)?, known).await,
        }
    })
}

async fn verify_source(source: &impl AuditSource, known: &[KnownHead]) -> Result<Vec<ChainReport>, Problem> {
    let verified = verify_audit(source, known).await?;
    Ok(verified
        .into_iter()
        .map(|one| ChainReport {
            tenant: one.chain.tenant.to_string(),
            records: one.records,
            head: one.chain.head,
            broken: one.broken,
        })
        .collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainEnd {
    hash: Digest,
    seq: u64,
    tenant: String,
}

/// The first or the last line of a tenant in an export.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChainLine {
    Chain(ChainEnd),
    Head(ChainEnd),
}

/// Verifies an export. Also returns the heads that it contains.
fn read_export(path: &Path, known: &[KnownHead]) -> Result<(Vec<ChainReport>, Vec<KnownHead>), Problem> {
    let opened = File::open(path).map_err(|why| unreadable_export(path, &why.to_string()))?;
    let mut export = ExportCheck::default();
    for line in BufReader::new(opened).lines() {
        let line = line.map_err(|why| unreadable_export(path, &why.to_string()))?;
        export.add(&line, known);
    }
    export.end_chain(None);
    if export.reports.is_empty() && export.has_lines {
        return Err(unreadable_export(path, "it has no line that begins a chain"));
    }
    let found: BTreeMap<&str, ()> = export.reports.iter().map(|one| (one.tenant.as_str(), ())).collect();
    let missing: Vec<&KnownHead> =
        known.iter().filter(|head| !found.contains_key(head.tenant.as_str())).collect();
    let missing: Vec<ChainReport> = missing
        .into_iter()
        .map(|head| {
            let check = ChainCheck::new(&head.tenant, AuditChain::START, known);
            let broken = check.finish(AuditChain::START).err();
            ChainReport { tenant: head.tenant.clone(), records: 0, head: AuditChain::START, broken }
        })
        .collect();
    export.reports.extend(missing);
    Ok((export.reports, export.heads))
}

fn unreadable_export(path: &Path, why: &str) -> Problem {
    Problem::new(
        "EXPORT_UNREADABLE",
        format!("{} cannot be read as an export: {why}", path.display()),
        "Name a file that `holdpoint audit export` printed.",
        Exit::Configuration,
    )
}

/// Verifies the lines of an export.
#[derive(Default)]
struct ExportCheck {
    open: Option<(String, ChainCheck)>,
    broken: Option<BrokenRecord>,
    reports: Vec<ChainReport>,
    heads: Vec<KnownHead>,
    has_lines: bool,
}

impl ExportCheck {
    fn add(&mut self, line: &str, known: &[KnownHead]) {
        self.has_lines = true;
        match serde_json::from_str(line) {
            Ok(ChainLine::Chain(start)) => {
                self.end_chain(None);
                let pruned = AuditChain { seq: start.seq, hash: start.hash };
                self.open = Some((start.tenant.clone(), ChainCheck::new(&start.tenant, pruned, known)));
            }
            Ok(ChainLine::Head(head)) => self.end_chain(Some(head)),
            Err(_) => self.add_record(line),
        }
    }

    fn add_record(&mut self, line: &str) {
        let Some((_, check)) = self.open.as_mut().filter(|_| self.broken.is_none()) else { return };
        let next = check.next_seq();
        let added = match SealedRecord::from_line(line) {
            Ok(record) => check.record(&record),
            Err(fault) => Err(check.broken(next, &fault.to_string())),
        };
        self.broken = added.err();
    }

    /// An export that ends without the head of its last chain was cut off.
    fn end_chain(&mut self, head: Option<ChainEnd>) {
        let Some((tenant, check)) = self.open.take() else { return };
        let end = head.as_ref().map(|head| AuditChain { seq: head.seq, hash: head.hash });
        let broken = self.broken.take().or_else(|| match (&head, end) {
            (Some(head), Some(end)) if head.tenant == tenant => check.finish(end).err(),
            (_, _) => Some(check.broken(check.next_seq(), "the export ends before the head of this tenant")),
        });
        if let Some(ChainEnd { hash, seq, tenant }) = head {
            self.heads.push(KnownHead { tenant, seq, hash });
        }
        let head = end.unwrap_or(AuditChain::START);
        self.reports.push(ChainReport { tenant, records: check.record_count(), head, broken });
    }
}

fn report(global: &GlobalArgs, name: &str, chains: &[ChainReport]) -> CommandResult {
    let is_intact = chains.iter().all(|chain| chain.broken.is_none());
    if global.json {
        let chains: Vec<_> = chains
            .iter()
            .map(|chain| {
                json!({
                    "tenant": chain.tenant,
                    "records": chain.records,
                    "head": {"seq": chain.head.seq, "hash": chain.head.hash.to_string()},
                    "broken": chain.broken.as_ref().map(|broken| json!({"seq": broken.seq, "why": broken.why})),
                })
            })
            .collect();
        print_json(&json!({"verified": name, "intact": is_intact, "tenants": chains}))?;
    } else {
        let mut text = String::new();
        for ChainReport { tenant, records, head, broken } in chains {
            let _ = match broken {
                Some(BrokenRecord { seq, why, .. }) => {
                    writeln!(text, "{tenant}: BROKEN at record {seq}: {why}")
                }
                None => writeln!(text, "{tenant}: {records} records, head {} {}", head.seq, head.hash),
            };
        }
        let verdict =
            if is_intact { "Every record is as it was sealed." } else { "The audit record is broken." };
        print(&format!("{text}{name}: {verdict}\n"))?;
    }
    Ok(if is_intact { CommandStatus::Success } else { CommandStatus::Failure })
}
