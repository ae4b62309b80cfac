//! `holdpoint audit`: exports and verifies the audit record, without a server.

mod export_file;
mod run_chains;
mod run_heads;
mod signature;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use engine::store::{Tenant, TenantChain};
use machine::Timestamp;
use machine::audit::{AuditChain, BrokenRecord, ChainCheck, KnownHead};
use serde_json::json;
use stores::audit_reader::{AuditSource, export_audit, verify_audit};
use stores::postgres::upkeep::{self, Upkeep};
use stores::run_heads::{RunComparison, RunHeadSource};
use stores::sqlite::audit::SqliteAudit;

use super::output::{print, print_json, write_stdout};
use super::problem::{Exit, Problem};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database};
use export_file::{known_heads, verify_export};
use run_chains::RunChains;
use run_heads::{compare_runs, export_runs, verify_run_lines};
use signature::PublicKey;
pub(super) use signature::SigningKey;

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
        /// Sign the heads with the Ed25519 key in this environment variable
        #[arg(long, value_name = "NAME")]
        signing_key_env: Option<String>,
        /// Also print the end of the log of every run, so that `verify --against` finds logs that were cut off
        #[arg(long)]
        runs: bool,
    },
    /// Print a new key pair for signing heads
    ///
    /// Keep the secret only in the environment of the server, or of the person who exports. Keep the public key where
    /// the person who verifies can trust it.
    Key,
    /// Check that no sealed record was altered, removed or moved
    ///
    /// Without FILE, verifies the store. Exits with 1 if a record is broken, and names the first one of each tenant.
    Verify {
        /// An export to verify instead of the store
        file: Option<PathBuf>,
        /// An earlier export, or the file of a sink. If the record was cut off or rewritten since, that is found too
        #[arg(long, value_name = "EXPORT")]
        against: Option<PathBuf>,
        /// Heads in FILE and in EXPORT count only if they are signed with this key
        #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
        public_key: Option<PublicKey>,
    },
}

impl Audit {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        match &self.action {
            AuditCommand::Export { tenant, signing_key_env, runs } => {
                let key = signing_key_env.as_deref().map(signing_key).transpose()?;
                export(global, tenant.as_deref(), key.as_ref(), *runs)
            }
            AuditCommand::Key => print_new_key(global),
            AuditCommand::Verify { file, against, public_key } => {
                let key = public_key.as_ref();
                if key.is_some() && file.is_none() && against.is_none() {
                    return Err(Problem::new(
                        "NOTHING_SIGNED",
                        "a store has no signatures, so --public-key has nothing to check",
                        "Name a signed export or the file of a sink with --against EXPORT.",
                        Exit::Configuration,
                    ));
                }
                verify_run_lines_of(file.as_deref(), key)?;
                let known =
                    against.as_ref().map(|path| known_heads(path, key)).transpose()?.unwrap_or_default();
                let verified = match file {
                    Some(path) => Verified {
                        name: path.display().to_string(),
                        chains: verify_export(path, &known, key)?,
                        runs: None,
                        compared: None,
                    },
                    None => Verified {
                        name: global.store.to_string(),
                        chains: verify_store(global, &known)?,
                        runs: Some(run_chains::verify(global)?),
                        compared: verify_runs(global, against.as_deref(), key)?,
                    },
                };
                report(global, &verified)
            }
        }
    }
}

/// The lines of runs in an export that is verified by itself.
fn verify_run_lines_of(file: Option<&Path>, key: Option<&PublicKey>) -> Result<(), Problem> {
    file.map_or(Ok(()), |path| verify_run_lines(path, key).map(|_| ()))
}

fn signing_key(variable: &str) -> Result<SigningKey, Problem> {
    let text = std::env::var(variable).unwrap_or_default();
    SigningKey::parse(&text).ok_or_else(|| {
        Problem::new(
            "NO_SIGNING_KEY",
            format!("the environment variable {variable} does not hold a key"),
            format!("Set it to {}.", SigningKey::FORM),
            Exit::Configuration,
        )
    })
}

fn print_new_key(global: &GlobalArgs) -> CommandResult {
    let secret = signature::new_secret();
    let Some((secret, key)) = secret.and_then(|secret| SigningKey::parse(&secret).map(|key| (secret, key)))
    else {
        let next = "Try again once the system gives random bytes.";
        return Err(Problem::new("NO_RANDOM_BYTES", "a key cannot be drawn", next, Exit::Other));
    };
    let public = key.public().to_string();
    if global.json {
        print_json(&json!({"secret": secret, "public_key": public}))?;
    } else {
        print(&format!("secret: {secret}\npublic key: {public}\n"))?;
    }
    Ok(CommandStatus::Success)
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What was verified.
struct Verified {
    name: String,
    chains: Vec<ChainReport>,
    /// None for an export, which has no logs.
    runs: Option<RunChains>,
    /// The runs of a store, compared with those of an earlier export that has them.
    compared: Option<RunComparison>,
}

/// The verification of one tenant's records.
struct ChainReport {
    tenant: String,
    records: u64,
    head: AuditChain,
    /// Rows of a store that wait to be sealed.
    unsealed: u64,
    broken: Option<BrokenRecord>,
    uncompared: Option<KnownHead>,
}

impl ChainReport {
    /// Nothing of this tenant was found.
    fn of_missing(known: &[KnownHead], tenant: &str) -> Self {
        let check = ChainCheck::new(tenant, AuditChain::START, known);
        let broken = check.finish(AuditChain::START).err();
        let head = AuditChain::START;
        Self { tenant: tenant.into(), records: 0, head, unsealed: 0, broken, uncompared: None }
    }

    const fn is_good(&self) -> bool {
        self.broken.is_none() && self.uncompared.is_none()
    }
}

fn export(global: &GlobalArgs, tenant: Option<&str>, key: Option<&SigningKey>, runs: bool) -> CommandResult {
    let mut failed = None;
    let line = |line: String| match write_stdout(&format!("{line}\n")) {
        Ok(continues) => continues,
        Err(problem) => {
            failed = Some(problem);
            false
        }
    };
    let tenant = tenant.map(Tenant::from);
    let export = Export { tenant: tenant.as_ref(), key, runs, now: system_time() };
    database::runtime()?.block_on(async {
        match &global.store {
            StoreUrl::Postgres { url } => {
                export.write(&Upkeep::open(url, upkeep::settings()).await?, line).await
            }
            StoreUrl::Sqlite { .. } | StoreUrl::Memory => export.write(&file(global)?, line).await,
        }
    })?;
    failed.map_or(Ok(CommandStatus::Success), Err)
}

/// What is exported, and how.
struct Export<'a> {
    tenant: Option<&'a Tenant>,
    key: Option<&'a SigningKey>,
    runs: bool,
    now: Timestamp,
}

impl Export<'_> {
    async fn write(
        &self,
        source: &(impl AuditSource + RunHeadSource),
        mut line: impl FnMut(String) -> bool,
    ) -> Result<(), Problem> {
        let Self { tenant, key, runs, now } = *self;
        let head = |chain: &TenantChain| key.map(|key| key.head_line(chain.tenant.as_str(), chain.head, now));
        export_audit(source, tenant, head, &mut line).await?;
        if runs {
            export_runs(source, tenant, (key, now), line).await?;
        }
        Ok(())
    }
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
            unsealed: one.unsealed,
            broken: one.broken,
            uncompared: one.uncompared,
        })
        .collect())
}

/// Compares the runs of the store with those of an earlier export, if it has them.
fn verify_runs(
    global: &GlobalArgs,
    against: Option<&Path>,
    key: Option<&PublicKey>,
) -> Result<Option<RunComparison>, Problem> {
    let Some(path) = against else { return Ok(None) };
    if verify_run_lines(path, key)?.is_none() {
        return Ok(None);
    }
    let compared = database::runtime()?.block_on(async {
        match &global.store {
            StoreUrl::Postgres { url } => {
                compare_runs(&Upkeep::open(url, upkeep::settings()).await?, path).await
            }
            StoreUrl::Sqlite { .. } | StoreUrl::Memory => compare_runs(&file(global)?, path).await,
        }
    })?;
    Ok(Some(compared))
}

fn report(global: &GlobalArgs, verified: &Verified) -> CommandResult {
    let Verified { name, chains, runs, compared } = verified;
    let broken_runs = runs.as_ref().map_or(0, |runs| runs.broken_count)
        + compared.as_ref().map_or(0, |compared| compared.fault_count);
    let is_intact = broken_runs == 0 && chains.iter().all(|chain| chain.broken.is_none());
    let is_compared = chains.iter().all(|chain| chain.uncompared.is_none())
        && compared.as_ref().is_none_or(|compared| compared.uncompared == 0);
    if global.json {
        let chains: Vec<_> = chains.iter().map(as_json).collect();
        let verified = json!({
            "verified": name, "intact": is_intact, "compared": is_compared, "tenants": chains,
            "runs": runs.as_ref().map(RunChains::as_json),
            "runs_compared": compared.as_ref().map(run_heads::as_json),
        });
        print_json(&verified)?;
    } else {
        let mut text = String::new();
        chains.iter().for_each(|chain| write_chain(&mut text, chain));
        if let Some(runs) = runs {
            runs.write(&mut text);
        }
        if let Some(compared) = compared {
            run_heads::write(&mut text, compared);
        }
        let verdict = match (is_intact, is_compared) {
            (false, _) if broken_runs == 0 => "The audit record is broken.",
            (false, _) => "The audit record or the log of a run is broken.",
            (true, false) => {
                "The records that are left are as they were sealed, but not all of them could be compared with what \
                 is known from elsewhere."
            }
            (true, true) => "Every record is as it was sealed.",
        };
        print(&format!("{text}{name}: {verdict}\n"))?;
    }
    let is_good = broken_runs == 0 && is_compared && chains.iter().all(ChainReport::is_good);
    Ok(if is_good { CommandStatus::Success } else { CommandStatus::Failure })
}

fn as_json(chain: &ChainReport) -> serde_json::Value {
    json!({
        "tenant": chain.tenant,
        "records": chain.records,
        "unsealed": chain.unsealed,
        "head": {"seq": chain.head.seq, "hash": chain.head.hash.to_string()},
        "broken": chain.broken.as_ref().map(|broken| json!({"seq": broken.seq, "why": broken.why})),
        "uncompared": chain.uncompared.as_ref().map(|head| json!({"seq": head.seq, "hash": head.hash.to_string()})),
    })
}

fn write_chain(text: &mut String, chain: &ChainReport) {
    let ChainReport { tenant, records, head, unsealed, broken, uncompared } = chain;
    let _ = match broken {
        Some(BrokenRecord { seq, why, .. }) => writeln!(text, "{tenant}: BROKEN at record {seq}: {why}"),
        None => writeln!(text, "{tenant}: {records} records, head {} {}", head.seq, head.hash),
    };
    if let (None, Some(KnownHead { seq, .. })) = (broken, uncompared) {
        let _ = writeln!(
            text,
            "{tenant}: NOT COMPARED: the known head {seq} is older than every record that is left; the records up to \
             it were pruned, as an `audit.pruned` record says. Compare with a later export"
        );
    }
    if *unsealed > 0 {
        let _ = writeln!(
            text,
            "{tenant}: {unsealed} more records are not sealed yet, so nothing protects them. A running server seals \
             them within a second"
        );
    }
}
