//! Stored logs, written out by hand for the machine: every kind of event is in one of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use engine::store::{CommittedEvent, RunView, SuspensionView, Tenant};
use holdpoint_http::wire::event::Envelope;
use holdpoint_http::wire::hydrate::EventHydrator;
use machine::event::{Event, Fact, OpenedSuspension, Usage};
use machine::id::{RunId, ThreadId};
use machine::projection_rows::{ApprovalStatus, PublicRunStatus};
use machine::termination::{ErrorCode, Termination};
use machine::{Control, checkpoint, event_codec, fold};
use serde_json::Value;

pub(crate) struct Story {
    pub(crate) name: String,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn all() -> Vec<Story> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../machine/tests/golden");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the stories of the machine are there")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "golden"))
        .collect();
    paths.sort();
    let mut stories: Vec<Story> = paths.iter().map(read).collect();
    assert!(stories.len() >= 15, "only {} stories", stories.len());
    stories.push(failed(&stories, "model_failed", &Termination::error(ErrorCode::Model, "overloaded")));
    stories.push(failed(&stories, "blocked", &Termination::blocked("no transfers on Sundays")));
    stories
}

/// A run that fails in its first step: no stored log has one.
fn failed(stories: &[Story], name: &str, how: &Termination) -> Story {
    let plain = stories.iter().find(|story| story.name == "plain_answer").expect("a plain story");
    let started = plain.events.iter().position(|event| event.fact.name() == "step.started").expect("a step");
    let mut events = plain.events[..=started].to_vec();
    let last = events.last().expect("a step").clone();
    let usage = Usage::default();
    let fact = Fact::RunEnded { termination: how.clone(), usage, output: None };
    events.push(Event { seq: last.seq + 1, at: last.at.plus_ms(5), step: None, fact });
    Story { name: name.to_owned(), events }
}

pub(crate) fn named(name: &str) -> Story {
    all().into_iter().find(|story| story.name == name).unwrap_or_else(|| panic!("no story {name}"))
}

fn read(path: &PathBuf) -> Story {
    let text = fs::read_to_string(path).unwrap();
    let (log, _) = text.split_once("\n== ").unwrap();
    let lines = log.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Story {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        events: lines.map(|line| event_codec::decode(line).unwrap()).collect(),
    }
}

impl Story {
    pub(crate) fn ids(&self) -> (ThreadId, RunId) {
        match &self.events[0].fact {
            Fact::RunQueued(order) => (order.thread_id.clone(), order.run_id.clone()),
            other => panic!("{} begins with {}", self.name, other.name()),
        }
    }

    /// What happened at the same time was stored together.
    pub(crate) fn committed(&self) -> Vec<CommittedEvent> {
        self.events
            .chunk_by(|one, next| one.at == next.at)
            .flat_map(|commit| {
                commit.iter().enumerate().map(|(index, event)| CommittedEvent {
                    event: Arc::new(event.clone()),
                    checkpoint: (index + 1 == commit.len()).then(|| checkpoint::from_events(commit)),
                })
            })
            .collect()
    }

    pub(crate) fn envelopes(&self) -> Vec<Envelope> {
        let (thread, run) = self.ids();
        let mut hydrator = EventHydrator::new(thread, run);
        self.committed().iter().flat_map(|committed| hydrator.hydrate(committed)).collect()
    }

    pub(crate) fn envelopes_as_json(&self) -> Vec<Value> {
        self.envelopes().iter().map(|envelope| serde_json::to_value(envelope).unwrap()).collect()
    }

    /// The state after the first `count` events.
    pub(crate) fn control(&self, count: usize) -> Control {
        fold(&self.events[..count]).unwrap()
    }

    /// The run as a list shows it after the first `count` events.
    pub(crate) fn view(&self, count: usize) -> RunView {
        let control = self.control(count);
        let at = |wanted: &str| {
            self.events[..count].iter().find(|event| event.fact.name() == wanted).map(|event| event.at)
        };
        RunView {
            id: control.run.clone(),
            thread: control.thread.clone(),
            agent: control.agent.clone(),
            seq: control.seq,
            status: PublicRunStatus::from_status(&control.status),
            interrupt_accepted: false,
            created_at: self.events[0].at,
            started_at: at("run.started"),
            ended_at: at("run.ended"),
            control: Some(control),
        }
    }

    /// The first suspension that an event of this name opens, still open.
    pub(crate) fn held(&self, name: &str) -> SuspensionView {
        let (thread, run) = self.ids();
        let event = self.events.iter().find(|event| event.fact.name() == name).unwrap();
        let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = &event.fact else {
            panic!("{name} opens nothing");
        };
        held(thread, run, event, opened)
    }
}

fn held(thread: ThreadId, run: RunId, event: &Event, opened: &OpenedSuspension) -> SuspensionView {
    SuspensionView {
        tenant: Tenant::default(),
        id: opened.suspension_id.clone(),
        run,
        thread,
        agent: "assistant".into(),
        call: opened.call_id.clone(),
        step: event.step.unwrap(),
        kind: opened.held.kind(),
        status: ApprovalStatus::Pending,
        answered: false,
        edited: None,
        opened: Some(Arc::new(opened.clone())),
        answer_is_unreadable: false,
        opened_seq: event.seq,
        closed_seq: None,
        created_at: event.at,
        decided_at: None,
        decided_by: None,
        reason: None,
        note: None,
        path: Vec::new(),
    }
}
