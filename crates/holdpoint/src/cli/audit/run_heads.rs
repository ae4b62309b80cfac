//! The heads of runs in an export: one line for each run, and a last line that covers all of them and can be signed.

use std::fmt::Write as _;
use std::path::Path;

use engine::store::Tenant;
use machine::Timestamp;
use machine::audit::time_text;
use machine::id::Digest;
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::{Value, json};
use stores::audit_reader::AuditSource;
use stores::run_heads::{PAGE, RunComparison, RunFault, RunHead, RunHeadSource};

use super::export_file::{ChainLine, each_line, lines, parse_line, unreadable_export};
use super::signature::{PublicKey, SigningKey};
use crate::cli::problem::{Exit, Problem};

/// No text that is signed for another purpose begins like this.
const PURPOSE: &str = "holdpoint run heads\n";

/// A run's line in an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunLine {
    hash: Digest,
    run_id: String,
    seq: u64,
    tenant: String,
    thread_id: String,
}

/// The line after those of all runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsEnd {
    count: u64,
    digest: Digest,
    #[serde(default)]
    at: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    signature: String,
}

/// The number and the digest of the lines of runs.
struct RunLines {
    count: u64,
    hasher: Context,
}

impl RunLines {
    fn new() -> Self {
        Self { count: 0, hasher: Context::new(&SHA256) }
    }

    fn add(&mut self, line: &str) {
        self.count += 1;
        self.hasher.update(line.as_bytes());
        self.hasher.update(b"\n");
    }

    fn digest(&self) -> Digest {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.hasher.clone().finish().as_ref());
        Digest(digest)
    }

    fn end_line(&self, key: Option<&SigningKey>, at: Timestamp) -> String {
        let (count, digest) = (self.count, self.digest());
        let Some(key) = key else {
            return json!({"runs": {"count": count, "digest": digest.to_string()}}).to_string();
        };
        let (at, public) = (time_text(at), key.public().to_string());
        let signature = key.sign(&signed_text(&at, count, digest, &public));
        json!({"runs": {
            "at": at, "count": count, "digest": digest.to_string(), "key": public, "signature": signature,
        }})
        .to_string()
    }
}

/// In canonical form (RFC 8785).
fn signed_text(at: &str, count: u64, digest: Digest, key: &str) -> String {
    let covered = json!({"at": at, "count": count, "digest": digest.to_string(), "key": key});
    format!("{PURPOSE}{covered}")
}

/// Writes the lines of every run, or of this tenant's runs. `line` returns false if the reader closed the pipe.
pub(super) async fn export_runs(
    source: &impl RunHeadSource,
    tenant: Option<&Tenant>,
    (key, now): (Option<&SigningKey>, Timestamp),
    mut line: impl FnMut(String) -> bool,
) -> Result<(), Problem> {
    let (mut lines, mut after) = (RunLines::new(), 0);
    loop {
        let page = source.run_heads(tenant, after).await?;
        for RunHead { tenant, thread, run, seq, hash } in page.heads {
            let text = json!({"run": {
                "hash": hash.to_string(), "run_id": run, "seq": seq, "tenant": tenant.as_str(), "thread_id": thread,
            }})
            .to_string();
            lines.add(&text);
            if !line(text) {
                return Ok(());
            }
        }
        let Some(last) = page.last else { break };
        after = last;
    }
    line(lines.end_line(key, now));
    Ok(())
}

/// Checks that the lines of runs in an export are those that were written. Returns their number, or none if the export
/// has no runs. With a key, they must be signed with it.
pub(super) fn verify_run_lines(path: &Path, key: Option<&PublicKey>) -> Result<Option<u64>, Problem> {
    let (mut lines, mut end) = (RunLines::new(), None);
    each_line(path, |number, line| {
        match parse_line(line) {
            Some(ChainLine::Run(_)) if end.is_some() => {
                let why = format!("line {number} has a run after the line that covers all runs");
                return Err(unreadable_export(path, &why));
            }
            Some(ChainLine::Run(_)) => lines.add(line),
            Some(ChainLine::Runs(runs)) => end = Some(runs),
            Some(ChainLine::Chain(_) | ChainLine::Head(_)) | None => {}
        }
        Ok(())
    })?;
    let Some(RunsEnd { count, digest, at, key: signer, signature }) = end else {
        if lines.count > 0 {
            return Err(unreadable_export(path, "it ends before the line that covers all runs"));
        }
        return Ok(None);
    };
    if count != lines.count || digest != lines.digest() {
        return Err(unreadable_export(path, "the lines of runs are not those that were exported"));
    }
    if let Some(fault) =
        key.and_then(|key| key.fault(&signer, &signature, &signed_text(&at, count, digest, &signer)))
    {
        let why = format!("the runs of {}: {fault}", path.display());
        let next = "Keep the file, and find out who changed it. An export is signed with --signing-key-env.";
        return Err(Problem::new("HEAD_NOT_SIGNED", why, next, Exit::Other));
    }
    Ok(Some(count))
}

/// Compares the runs of a store with those of an export whose lines were verified.
pub(super) async fn compare_runs(
    source: &(impl AuditSource + RunHeadSource),
    path: &Path,
) -> Result<RunComparison, Problem> {
    let mut comparison = RunComparison::default();
    let mut heads = Vec::with_capacity(PAGE);
    for line in lines(path)? {
        let Some(ChainLine::Run(run)) = parse_line(&line?) else { continue };
        heads.push(run.into_head());
        if heads.len() == PAGE {
            comparison.add(source, &heads).await?;
            heads.clear();
        }
    }
    comparison.add(source, &heads).await?;
    Ok(comparison)
}

pub(super) fn as_json(compared: &RunComparison) -> Value {
    let RunComparison { same, deleted, uncompared, fault_count, faults, .. } = compared;
    let broken: Vec<Value> = faults
        .iter()
        .map(|fault| json!({"tenant": fault.tenant.as_str(), "run_id": fault.run, "why": fault.why}))
        .collect();
    json!({
        "same": same, "deleted": deleted, "uncompared": uncompared, "broken_count": fault_count, "broken": broken,
    })
}

pub(super) fn write(text: &mut String, compared: &RunComparison) {
    let RunComparison { same, deleted, uncompared, fault_count, faults, .. } = compared;
    for RunFault { tenant, run, why } in faults {
        let _ = writeln!(text, "run {run} of tenant {tenant}: BROKEN: {why}");
    }
    let more = fault_count.saturating_sub(faults.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "{more} more runs are not as they were exported");
    }
    if *uncompared > 0 {
        let _ = writeln!(
            text,
            "{uncompared} runs: NOT COMPARED: they are missing, and the records that would say who deleted them were \
             pruned. Compare with a later export"
        );
    }
    let _ = writeln!(text, "{same} runs are as they were exported, {deleted} were deleted since");
}

impl RunLine {
    fn into_head(self) -> RunHead {
        let Self { hash, run_id, seq, tenant, thread_id } = self;
        RunHead { tenant: Tenant::from(tenant.as_str()), thread: thread_id, run: run_id, seq, hash }
    }
}
