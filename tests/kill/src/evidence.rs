//! The evidence: what is left when no process is alive, read from the store and the ledger by the parent.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::store::{ApprovalFilter, Page, RunFilter, RunView, Store, SuspensionView, Tenant, decoded};
use machine::event::Event;
use machine::id::{CallId, DecisionId, Digest, RunId, SuspensionId, ThreadId};
use machine::revision::Revision;
use machine::thread::ThreadState;
use machine::{Control, Fact, Timestamp};
use serde_json::Value;
use stores::sqlite::{SqliteSettings, SqliteStore};

use crate::audit_evidence::{self, AuditEvidence};
use crate::hook_server::{self, AskedQuestion};
use crate::ledger::{self, Act};
use crate::node::Failure;
use crate::people::People;

#[derive(Clone, Debug)]
pub struct Evidence {
    /// Oldest first.
    pub runs: Vec<RunEvidence>,
    pub acts: Vec<Act>,
    /// What the hook was asked.
    pub questions: Vec<AskedQuestion>,
    pub audit: AuditEvidence,
    /// Every suspension that people saw or may see, as the store shows it.
    pub suspensions: BTreeMap<SuspensionId, Option<SuspensionView>>,
    /// The suspensions in the list of approvals.
    pub listed: Vec<SuspensionId>,
    /// The decisions that people gave, and whether the store remembers each.
    pub remembered: BTreeMap<DecisionId, bool>,
    pub threads: BTreeMap<ThreadId, ThreadState>,
    pub revisions: BTreeMap<Digest, Arc<Revision>>,
    /// What the processes logged for their operator.
    pub complaints: Vec<Complaint>,
    /// The additional evidence of nodes that share a store.
    pub shared_store: Option<SharedStoreEvidence>,
}

/// A log line of a process, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub process: u32,
    pub words: String,
}

/// What is known about nodes that share a store.
#[derive(Clone, Debug, Default)]
pub struct SharedStoreEvidence {
    /// Whether their server, or the connection to it, failed.
    pub was_cut_off: bool,
    /// Whether nothing happened to them, so that their leases are long.
    pub is_undisturbed: bool,
    /// When the first of them was killed or paused, if one was.
    pub first_loss: Option<Timestamp>,
    pub pauses: Vec<Pause>,
    /// What was stored, as far as the storing node lived to report it.
    pub stored: Vec<Stored>,
}

/// An append that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub process: u32,
    pub holding: Holding,
    /// The sequence number of its last event.
    pub seq: u64,
    /// The later epoch under which others had claimed the run before this append was requested.
    pub overtaken_by: Option<u64>,
}

/// One claim of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    pub run: RunId,
    pub epoch: u64,
}

/// A process that was paused for longer than its lease, and resumed.
#[derive(Clone, Debug)]
pub struct Pause {
    pub process: u32,
    /// It had stored its intent to send, and had not sent.
    pub before_sending: bool,
    /// The number of acts written before it resumed.
    pub acts_before: usize,
    /// The attempts that others had found lost by then.
    pub lost: BTreeSet<Attempt>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    pub run: RunId,
    pub call: CallId,
    pub number: u32,
}

#[derive(Clone, Debug)]
pub struct RunEvidence {
    pub view: RunView,
    pub control: Control,
    pub log: Vec<Arc<Event>>,
}

/// The files that a world leaves next to its store.
#[derive(Clone, Debug)]
pub struct Traces {
    folder: PathBuf,
}

/// The prefix of the file name, followed by the number of the process.
const COMPLAINTS: &str = "complaints-";

impl Traces {
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn acts(&self) -> PathBuf {
        ledger::in_folder(&self.folder)
    }

    #[must_use]
    pub fn complaints(&self, process: u32) -> PathBuf {
        self.folder.join(format!("{COMPLAINTS}{process}"))
    }

    fn read_complaints(&self) -> io::Result<Vec<Complaint>> {
        let mut complaints = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(COMPLAINTS)?.parse().ok());
            let Some(process) = process else { continue };
            let text = std::fs::read_to_string(entry.path())?;
            let lines = text.lines().filter(|line| !line.is_empty());
            complaints.extend(lines.map(|line| Complaint { process, words: line.to_owned() }));
        }
        complaints.sort_by_key(|complaint| complaint.process);
        Ok(complaints)
    }
}

pub fn read_file(file: &Path, traces: &Traces, people: &People, now: Timestamp) -> Result<Evidence, Failure> {
    let settings =
        SqliteSettings { clock: Some(Arc::new(move || now)), inline: true, ..SqliteSettings::default() };
    let store = SqliteStore::open_with(file, settings)?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(read(&store, traces, people))
}

/// The stored data, as the store shows it to any reader.
pub async fn read(store: &impl Store, traces: &Traces, people: &People) -> Result<Evidence, Failure> {
    let tenant = Tenant::default();
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut evidence = Evidence {
        runs: Vec::new(),
        acts: ledger::read(&traces.acts())?,
        questions: hook_server::read(&hook_server::in_folder(traces.folder()))?,
        audit: audit_evidence::read(store).await?,
        suspensions: BTreeMap::new(),
        listed: Vec::new(),
        remembered: BTreeMap::new(),
        threads: BTreeMap::new(),
        revisions: BTreeMap::new(),
        complaints: traces.read_complaints()?,
        shared_store: None,
    };
    for view in all_runs(store).await? {
        let thread = store.thread(&tenant, &view.thread).await?;
        evidence.threads.insert(view.thread.clone(), thread.state);
        let control = view.decoded()?.clone();
        let digest = control.revision;
        if let Some(text) = store.revision(&tenant, &view.thread, &digest).await? {
            evidence.revisions.insert(digest, Arc::new(revision(&text)?));
        }
        let log = whole_log(store, &view.id).await?;
        for id in log.iter().filter_map(|event| opened(event)).chain(people.seen.keys()) {
            let shown = store.suspension(&tenant, id).await?;
            evidence.suspensions.insert(id.clone(), shown);
        }
        evidence.runs.push(RunEvidence { view, control, log });
    }
    let listed = store.approvals(&tenant, &ApprovalFilter::default(), &page).await?;
    evidence.listed = listed.items.into_iter().map(|shown| shown.id).collect();
    for decided in people.decisions.values() {
        let stored = store.decision(&tenant, &decided.given.run, &decided.given.id).await?;
        evidence.remembered.insert(decided.given.id.clone(), stored.is_some());
    }
    Ok(evidence)
}

/// Oldest first.
async fn all_runs(store: &impl Store) -> Result<Vec<RunView>, Failure> {
    let mut page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut views = Vec::new();
    loop {
        let listed = store.runs(&Tenant::default(), &RunFilter::default(), &page).await?;
        views.extend(listed.items);
        page.cursor = listed.next;
        if page.cursor.is_none() {
            views.reverse();
            return Ok(views);
        }
    }
}

/// The attempts that have been recorded as lost so far.
pub async fn lost_attempts(store: &impl Store) -> Result<BTreeSet<Attempt>, Failure> {
    let mut lost_attempts = BTreeSet::new();
    for view in all_runs(store).await? {
        for event in whole_log(store, &view.id).await? {
            if let Fact::RunRecovered { lost, .. } = &event.fact {
                let attempts = lost.iter().map(|lost| Attempt {
                    run: view.id.clone(),
                    call: lost.call_id.clone(),
                    number: lost.attempt,
                });
                lost_attempts.extend(attempts);
            }
        }
    }
    Ok(lost_attempts)
}

async fn whole_log(store: &impl Store, run: &RunId) -> Result<Vec<Arc<Event>>, Failure> {
    let mut log: Vec<Arc<Event>> = Vec::new();
    loop {
        let after = log.last().map_or(0, |event| event.seq);
        let page = store.events(&Tenant::default(), run, after, 1_024).await?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(decoded(page)?.into_iter().map(|committed| committed.event));
    }
}

fn opened(event: &Event) -> Option<&SuspensionId> {
    if let Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) = &event.fact {
        Some(&opened.suspension_id)
    } else {
        None
    }
}

fn revision(text: &str) -> Result<Revision, Failure> {
    let frozen: Value = serde_json::from_str(text)?;
    let revision = frozen.get("revision").ok_or("a frozen agent has no revision")?;
    Ok(serde_json::from_value(revision.clone())?)
}
