//! The process that is killed: the engine on a file, and nothing that it could tidy up before it dies.

mod clerk;
mod complaints;
mod stopping_store;
mod stops;

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use engine::Engine;
use engine::clock::{Clock, SystemClock};
use engine::deciding::{Answer, Decide, OnReject, Resumption};
use engine::posting::Message;
use engine::store::{Page, RunFilter, RunView, Task, Tenant};
use machine::Timestamp;
use machine::decision::Payload;
use machine::id::{AgentName, Principal};
use machine::inbox::{Item, Verdict};
use machine::input::{Outcome, ToolAnswer};
use machine::status::RunStatus;
use serde_json::json;
use stores::sqlite::{Settings, SqliteStore};
use tokio::sync::{Notify, mpsc, watch};

use clerk::{Desk, clerk};
use complaints::Complaints;
use stopping_store::StoppingStore;
use stops::Stops;

use crate::stories::{AGENT, PERSON};
use crate::wire::{Command, Given, Line, Post, Reply, Shown, ShownCall, ShownRun, Wish, Word};

/// What one process is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub store: PathBuf,
    pub socket: PathBuf,
    pub acts: PathBuf,
    /// How far its clock is ahead: time that passed while no process was there.
    pub ahead_ms: u64,
    /// The boundary at which it stands still; with one, everything happens on one thread.
    pub stop_at: Option<u64>,
}

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Lives until it is killed, or until whoever started it is gone.
pub fn live(node: Node) -> Result<(), Failure> {
    tracing::subscriber::set_global_default(Complaints)?;
    let runtime = match node.stop_at {
        Some(_) => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        None => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
    };
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str::<Command>(&line) {
                Ok(command) => drop(sender.send(command)),
                Err(error) => eprintln!("ERROR: {error}: {line}"),
            }
        }
        // Nobody is there any more who could kill it.
        std::process::exit(0);
    });
    runtime.block_on(drive(node, commands))
}

fn say(line: &Line) {
    let mut out = std::io::stdout().lock();
    let said = serde_json::to_string(line).map(|text| writeln!(out, "{text}").and_then(|()| out.flush()));
    if !matches!(said, Ok(Ok(()))) {
        eprintln!("ERROR: {line:?} cannot be said");
    }
}

#[derive(Clone, Copy)]
struct AheadClock {
    ahead_ms: u64,
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_ms(self.ahead_ms)
    }

    fn sleep_until(&self, at: Timestamp) -> Task<'static, ()> {
        SystemClock.sleep_until(Timestamp(at.0.saturating_sub(self.ahead_ms)))
    }
}

async fn drive(node: Node, mut commands: mpsc::UnboundedReceiver<Command>) -> Result<(), Failure> {
    let clock = AheadClock { ahead_ms: node.ahead_ms };
    let settings = Settings { clock: Some(Arc::new(move || clock.now())), ..Settings::default() };
    let stops = Stops::new(node.stop_at);
    let changed = Arc::new(Notify::new());
    let store = SqliteStore::open_with(&node.store, settings)?;
    let store = StoppingStore { store, stops: stops.clone(), changed: changed.clone() };
    let told = watch::Sender::new(BTreeSet::new());
    let desk = Desk { socket: node.socket, acts: node.acts, stops, told };
    let engine = Engine::on(store).clock(clock).agent(clerk(&desk)).start().await?;
    let show = engine.clone();
    tokio::spawn(async move {
        loop {
            match shown(&show).await {
                Ok(shown) => say(&Line::Shown(shown)),
                Err(refused) => eprintln!("ERROR: the runs cannot be shown: {refused}"),
            }
            changed.notified().await;
        }
    });
    while let Some(Command { number, wish }) = commands.recv().await {
        let (engine, desk) = (engine.clone(), desk.clone());
        tokio::spawn(async move {
            let word = grant(&engine, &desk, wish).await.unwrap_or_else(|why| Word::Refused { why });
            say(&Line::Told { number, word });
        });
    }
    Ok(())
}

async fn shown(engine: &Engine) -> Result<Shown, engine::store::Refused> {
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let held_count = engine.held_count();
    let mut runs = engine.runs(&Tenant::default(), &RunFilter::default(), &page).await?.items;
    runs.reverse();
    Ok(Shown { runs: runs.iter().map(shown_run).collect(), held_count })
}

fn shown_run(view: &RunView) -> ShownRun {
    let control = &view.control;
    let calls = control.calls.iter().map(|call| ShownCall {
        call: call.id.clone(),
        tool: call.tool.clone(),
        step: call.step,
        status: call.status(),
        attempts: call.attempts,
    });
    ShownRun {
        run: view.id.clone(),
        message: control.user_message.clone(),
        ended: control.ended().is_some(),
        waiting: matches!(control.status, RunStatus::Waiting(_)),
        calls: calls.collect(),
        pending: control.pending(),
    }
}

async fn grant(engine: &Engine, desk: &Desk, wish: Wish) -> Result<Word, String> {
    let tenant = Tenant::default();
    match wish {
        Wish::Post(post) => {
            let posted = engine.post(message(post)).await.map_err(|refused| refused.to_string())?;
            Ok(Word::Posted { run: posted.run })
        }
        Wish::Decide(given) => verdict(engine.decide(decision(given)).await),
        Wish::Interrupt { run } => verdict(engine.interrupt(&tenant, &run, &Principal::from(PERSON)).await),
        Wish::Tell { call } => {
            desk.told.send_if_modified(|told| told.insert(call));
            Ok(Word::Done)
        }
        // Nothing wakes the run: whoever claims it next finds the answer.
        Wish::LateAnswer { run, step, call, attempt } => {
            let value = Arc::new(json!({"done": call}));
            let outcome = Outcome::Answered(ToolAnswer::Success { value, warning: None });
            let item = Item::LateAnswer { step, call, attempt, outcome };
            verdict(engine.store().submit(&tenant, &run, item).await)
        }
        Wish::CountCrossings => Ok(Word::Crossings { count: desk.stops.count() }),
    }
}

fn verdict(verdict: Result<Verdict, engine::store::Refused>) -> Result<Word, String> {
    match verdict {
        Ok(Verdict::Accepted) => Ok(Word::Accepted),
        Ok(Verdict::AlreadyApplied) => Ok(Word::AlreadyApplied),
        Ok(Verdict::ToolChanged) => Err("no tool has changed".into()),
        Ok(Verdict::Refused(refusal)) => Err(refusal.to_string()),
        Err(refused) => Err(refused.to_string()),
    }
}

fn message(post: Post) -> Message {
    Message {
        tenant: Tenant::default(),
        thread: Some(post.thread),
        agent: AgentName::from(AGENT),
        content: Some(post.content),
        message_id: Some(post.message),
        after: None,
        on_busy: None,
        policy: post.policy,
        by: Principal::from(PERSON),
        may_approve: false,
        key: None,
    }
}

fn decision(given: Given) -> Decide {
    let reason = Some("not now".to_owned());
    let answer = match given.reply {
        Reply::Approve | Reply::Retry => Answer::Resume(Resumption::default()),
        Reply::Edit(arguments) => {
            Answer::Resume(Resumption { arguments: Some(arguments), ..Resumption::default() })
        }
        Reply::Result(value) => {
            Answer::Resume(Resumption { payload: Payload::Result(Arc::new(value)), ..Resumption::default() })
        }
        Reply::Reject | Reply::GiveUp => Answer::Cancel { reason, then: None },
        Reply::RejectAndEnd => Answer::Cancel { reason, then: Some(OnReject::EndRun) },
    };
    Decide {
        tenant: Tenant::default(),
        run: given.run,
        call: given.call,
        suspension: Some(given.suspension),
        id: Some(given.id),
        by: Principal::from(PERSON),
        answer,
    }
}
