//! Reads and verifies an export of the audit record, and what an earlier export or a sink's file says of heads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use machine::audit::{AuditChain, BrokenRecord, ChainCheck, KnownHead, SealedRecord};
use machine::id::Digest;
use serde::Deserialize;

use super::ChainReport;
use super::run_heads::{RunLine, RunsEnd};
use super::signature::{PublicKey, SignedHead};
use crate::cli::problem::{Exit, Problem};

/// Where a chain begins in an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainStart {
    hash: Digest,
    seq: u64,
    tenant: String,
}

/// A line that is not a record.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChainLine {
    Chain(ChainStart),
    Head(SignedHead),
    Run(RunLine),
    Runs(RunsEnd),
}

/// None for a record.
pub(super) fn parse_line(line: &str) -> Option<ChainLine> {
    serde_json::from_str(line).ok()
}

/// Verifies an export. With a key, its heads must be signed with it.
pub(super) fn verify_export(
    path: &Path,
    known: &[KnownHead],
    key: Option<&PublicKey>,
) -> Result<Vec<ChainReport>, Problem> {
    let mut export = ExportCheck { key: key.copied(), ..ExportCheck::default() };
    each_line(path, |number, line| {
        if export.add(line, known) {
            return Ok(());
        }
        Err(unreadable_export(path, &format!("line {number} is neither in a chain nor does it begin one")))
    })?;
    export.end_chain(None);
    let found: BTreeSet<&str> = export.reports.iter().map(|one| one.tenant.as_str()).collect();
    let missing: BTreeSet<&str> = known.iter().map(|head| head.tenant.as_str()).collect();
    let missing: Vec<ChainReport> =
        missing.difference(&found).map(|tenant| ChainReport::of_missing(known, tenant)).collect();
    export.reports.extend(missing);
    Ok(export.reports)
}

/// The newest head of each tenant in an earlier export, or in the file of a sink. With a key, only signed heads count;
/// without one, a record is a head too.
pub(super) fn known_heads(path: &Path, key: Option<&PublicKey>) -> Result<Vec<KnownHead>, Problem> {
    let mut newest = BTreeMap::<String, KnownHead>::new();
    let mut add = |head: KnownHead| {
        if newest.get(&head.tenant).is_none_or(|known| known.seq < head.seq) {
            newest.insert(head.tenant.clone(), head);
        }
    };
    each_line(path, |number, line| {
        match (parse_line(line), key) {
            (Some(ChainLine::Chain(_) | ChainLine::Run(_) | ChainLine::Runs(_)), _) => {}
            (Some(ChainLine::Head(head)), key) => {
                if let Some(fault) = key.and_then(|key| head.fault(key)) {
                    let why = format!("line {number} of {}, tenant {}: {fault}", path.display(), head.tenant);
                    let next = "Keep the file, and find out who changed it. An export is signed with --signing-key-env.";
                    return Err(Problem::new("HEAD_NOT_SIGNED", why, next, Exit::Other));
                }
                add(KnownHead { tenant: head.tenant, seq: head.seq, hash: head.hash });
            }
            (None, Some(_)) => {}
            (None, None) => {
                let record = SealedRecord::from_line(line);
                let read = record.and_then(|record| Ok((record.text("tenant")?, record)));
                let (tenant, SealedRecord { seq, hash, .. }) =
                    read.map_err(|why| unreadable_export(path, &format!("line {number}: {why}")))?;
                add(KnownHead { tenant, seq, hash });
            }
        }
        Ok(())
    })?;
    if newest.is_empty() && key.is_some() {
        return Err(unreadable_export(path, "it has no signed head"));
    }
    Ok(newest.into_values().collect())
}

pub(super) fn each_line(
    path: &Path,
    mut read: impl FnMut(u64, &str) -> Result<(), Problem>,
) -> Result<(), Problem> {
    (1..).zip(lines(path)?).try_for_each(|(number, line)| read(number, &line?))
}

pub(super) fn lines(path: &Path) -> Result<impl Iterator<Item = Result<String, Problem>>, Problem> {
    let unreadable = |why: std::io::Error| unreadable_export(path, &why.to_string());
    let opened = File::open(path).map_err(unreadable)?;
    Ok(BufReader::new(opened).lines().map(move |line| line.map_err(unreadable)))
}

pub(super) fn unreadable_export(path: &Path, why: &str) -> Problem {
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
    key: Option<PublicKey>,
}

impl ExportCheck {
    /// Returns false for a line that belongs to no chain.
    fn add(&mut self, line: &str, known: &[KnownHead]) -> bool {
        match parse_line(line) {
            Some(ChainLine::Chain(start)) => {
                self.end_chain(None);
                let pruned = AuditChain { seq: start.seq, hash: start.hash };
                self.open = Some((start.tenant.clone(), ChainCheck::new(&start.tenant, pruned, known)));
            }
            Some(ChainLine::Head(head)) => return self.end_chain(Some(head)),
            // Verified by themselves.
            Some(ChainLine::Run(_) | ChainLine::Runs(_)) => {}
            None => return self.add_record(line),
        }
        true
    }

    fn add_record(&mut self, line: &str) -> bool {
        let Some((_, check)) = self.open.as_mut() else { return false };
        if self.broken.is_some() {
            return true;
        }
        let next = check.next_seq();
        let added = match SealedRecord::from_line(line) {
            Ok(record) => check.record(&record),
            Err(fault) => Err(check.broken(next, &fault.to_string())),
        };
        self.broken = added.err();
        true
    }

    /// An export that ends without the head of its last chain was cut off. Returns whether there is a chain to end.
    fn end_chain(&mut self, head: Option<SignedHead>) -> bool {
        let Some((tenant, check)) = self.open.take() else { return false };
        let end = head.as_ref().map(SignedHead::end);
        let unsigned = head.as_ref().zip(self.key.as_ref()).and_then(|(head, key)| head.fault(key));
        let broken = self.broken.take().or_else(|| match (&head, end) {
            (Some(head), Some(end)) if head.tenant == tenant => check.finish(end).err(),
            (_, _) => Some(check.broken(check.next_seq(), "the export ends before the head of this tenant")),
        });
        let broken =
            broken.or_else(|| unsigned.map(|why| check.broken(check.next_seq().saturating_sub(1), why)));
        let head = end.unwrap_or(AuditChain::START);
        let (records, uncompared) = (check.record_count(), check.uncompared().cloned());
        self.reports.push(ChainReport { tenant, records, head, unsealed: 0, broken, uncompared });
        true
    }
}
