//! What is left when no process lives: read from the file and from the ledger, by nobody who took part.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::store::{ApprovalFilter, Page, RunFilter, RunView, Store, SuspensionView, Tenant};
use machine::event::Event;
use machine::id::{DecisionId, Digest, RunId, SuspensionId, ThreadId};
use machine::revision::Revision;
use machine::thread::Thread;
use machine::{Fact, Timestamp};
use serde_json::Value;
use stores::sqlite::{Settings, SqliteStore};

use crate::ledger::{self, Act};
use crate::node::Failure;
use crate::people::People;

#[derive(Clone, Debug)]
pub struct Evidence {
    /// Oldest first.
    pub runs: Vec<RunEvidence>,
    pub acts: Vec<Act>,
    /// Every suspension that people saw or may see, as the store shows it.
    pub suspensions: BTreeMap<SuspensionId, Option<SuspensionView>>,
    /// What the list of approvals has.
    pub listed: Vec<SuspensionId>,
    /// Decisions that people gave, and whether the store remembers each.
    pub remembered: BTreeMap<DecisionId, bool>,
    pub threads: BTreeMap<ThreadId, Thread>,
    pub revisions: BTreeMap<Digest, Arc<Revision>>,
    /// What the processes told their operator.
    pub complaints: String,
}

#[derive(Clone, Debug)]
pub struct RunEvidence {
    pub view: RunView,
    pub log: Vec<Arc<Event>>,
}

/// Where a world keeps what it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Traces<'a> {
    pub store: &'a Path,
    pub acts: &'a Path,
    pub complaints: &'a Path,
}

pub fn read(traces: Traces<'_>, people: &People, now: Timestamp) -> Result<Evidence, Failure> {
    let settings = Settings { clock: Some(Arc::new(move || now)), inline: true, ..Settings::default() };
    let store = SqliteStore::open_with(traces.store, settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let complaints = std::fs::read_to_string(traces.complaints).unwrap_or_default();
    let acts = ledger::read(traces.acts)?;
    runtime.block_on(async {
        let tenant = Tenant::default();
        let page = Page { cursor: None, limit: Page::LIMIT_MAX };
        let mut views = store.runs(&tenant, &RunFilter::default(), &page).await?.items;
        views.reverse();
        let mut evidence = Evidence {
            runs: Vec::new(),
            acts,
            suspensions: BTreeMap::new(),
            listed: Vec::new(),
            remembered: BTreeMap::new(),
            threads: BTreeMap::new(),
            revisions: BTreeMap::new(),
            complaints,
        };
        for view in views {
            let thread = store.thread(&tenant, &view.thread).await?;
            evidence.threads.insert(view.thread.clone(), thread.state);
            let digest = view.control.revision;
            if let Some(text) = store.revision(&digest).await? {
                evidence.revisions.insert(digest, Arc::new(revision(&text)?));
            }
            let log = whole_log(&store, &view.id).await?;
            for id in log.iter().filter_map(|event| opened(event)).chain(people.seen.keys()) {
                let shown = store.suspension(&tenant, id).await?;
                evidence.suspensions.insert(id.clone(), shown);
            }
            evidence.runs.push(RunEvidence { view, log });
        }
        let listed = store.approvals(&tenant, &ApprovalFilter::default(), &page).await?;
        evidence.listed = listed.items.into_iter().map(|shown| shown.id).collect();
        for decided in people.decisions.values() {
            let stored = store.decision(&tenant, &decided.given.run, &decided.given.id).await?;
            evidence.remembered.insert(decided.given.id.clone(), stored.is_some());
        }
        Ok(evidence)
    })
}

async fn whole_log(store: &SqliteStore, run: &RunId) -> Result<Vec<Arc<Event>>, Failure> {
    let mut log: Vec<Arc<Event>> = Vec::new();
    loop {
        let after = log.last().map_or(0, |event| event.seq);
        let page = store.events(&Tenant::default(), run, after, 1_024).await?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page.into_iter().map(|committed| committed.event));
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
