//! The process that is killed: the engine on a store, with no cleanup before it dies.

mod hook_plugin;
mod payment_tool;
mod scripted_agent;
mod stopping_store;
mod stops;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use engine::Engine;
use engine::clock::{Clock, SystemClock};
use engine::deciding::{Answer, Cancellation, Decide, OnReject, Resumption};
use engine::posting::{Message, PostError, ThreadTarget};
use engine::store::{BoxFuture, Deletion, Page, RunFilter, RunView, StoreError, Tenant};
use machine::Timestamp;
use machine::audit::Actor;
use machine::decision::Payload;
use machine::id::{AgentName, Principal};
use machine::inbox::{Item, Verdict};
use machine::input::{Outcome, ToolAnswer};
use machine::status::RunStatus;
use serde_json::json;
use sim::driven::listener::{Listener, Told};
use stores::postgres::PostgresStore;
use stores::sqlite::{self, SqliteStore};
use tokio::sync::{Notify, mpsc, watch};

use hook_plugin::HookPlugin;
use payment_tool::PaymentClient;
use scripted_agent::{ToolContext, scripted_agent};
use stopping_store::StoppingStore;
use stops::Stops;

use crate::incoming_post::Caller;
use crate::ledger;
use crate::stop::Stop;
use crate::store_at::{self, StoreAt, Time};
use crate::stories::{AGENT, PERSON};
use crate::wire::{
    CallSnapshot, Command, GivenDecision, Line, Post, Reply, Request, Response, RunSnapshot, RunsSnapshot,
};

/// The arguments of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number in the world, counted from 1.
    pub process: u32,
    pub store: StoreAt,
    pub socket: PathBuf,
    /// The folder of its world.
    pub folder: PathBuf,
    /// The payment service's port.
    pub payment_port: u16,
    /// The hook's port, if its agent has the hook.
    pub hook_port: Option<u16>,
    /// How far its clock is ahead: the time that passed while no process was running. `None` uses the store's own
    /// clock.
    pub ahead_ms: Option<u64>,
    /// The boundary at which it halts. With a stop, everything runs on one thread.
    pub stop: Option<Stop>,
}

impl Node {
    /// The command-line arguments.
    pub fn command_line(&self) -> Vec<OsString> {
        let ahead = self.ahead_ms.map_or_else(|| OWN_CLOCK.to_owned(), |ahead| ahead.to_string());
        let mut command_line = vec!["node".into(), self.process.to_string().into(), self.store.word()];
        command_line.extend([
            self.socket.clone().into_os_string(),
            self.folder.clone().into_os_string(),
            self.payment_port.to_string().into(),
            self.hook_port.map_or_else(|| NO_HOOK.to_owned(), |port| port.to_string()).into(),
            ahead.into(),
        ]);
        command_line.extend(self.stop.map(|stop| stop.to_string().into()));
        command_line
    }
}

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Means `None` in place of the milliseconds.
pub const OWN_CLOCK: &str = "own";
/// Means `None` in place of the hook's port.
pub const NO_HOOK: &str = "none";

/// Runs until it is killed, or until its parent is gone.
pub fn run(node: Node) -> Result<(), Failure> {
    tracing::subscriber::set_global_default(Listener(print_log_line))?;
    let runtime = match node.stop {
        Some(_) => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        None => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
    };
    let (sender, commands) = mpsc::unbounded_channel();
    let stops = Stops::new(node.stop);
    let early_resume = stops.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str::<Command>(&line) {
                // A process halted before the engine has started must still receive this command.
                Ok(Command { request: Request::Resume, .. }) => early_resume.resume(),
                Ok(command) => drop(sender.send(command)),
                Err(error) => eprintln!("ERROR: {error}: {line}"),
            }
        }
        // Its parent is gone, so nothing is left to kill it.
        std::process::exit(0);
    });
    runtime.block_on(drive(node, stops, commands))
}

/// Writes the log entry to stderr, where the parent reads it: one line each, however many the server used.
fn print_log_line(Told { level, message, fields }: Told) {
    eprintln!("{}", format!("{level}: {message}{fields}").replace('\n', " "));
}

fn print_line(line: &Line) {
    let mut out = std::io::stdout().lock();
    let said = serde_json::to_string(line).map(|text| writeln!(out, "{text}").and_then(|()| out.flush()));
    if !matches!(said, Ok(Ok(()))) {
        eprintln!("ERROR: {line:?} cannot be written to standard output");
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

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(Timestamp(at.0.saturating_sub(self.ahead_ms)))
    }
}

async fn drive(
    node: Node,
    stops: Stops,
    mut commands: mpsc::UnboundedReceiver<Command>,
) -> Result<(), Failure> {
    let clock: Option<Time> = node.ahead_ms.map(|ahead_ms| {
        let clock = AheadClock { ahead_ms };
        let time: Time = Arc::new(move || clock.now());
        time
    });
    let shares = node.store.is_shared();
    let changed = Arc::new(Notify::new());
    let released_calls = watch::Sender::new(BTreeSet::new());
    let acts = ledger::in_folder(&node.folder);
    let caller = Caller { process: node.process, folder: node.folder };
    let hook = node.hook_port.map(|port| HookPlugin::new(port, &caller, &stops)).transpose()?;
    let payment_client = PaymentClient::open(node.payment_port, caller, &stops)?;
    let context = ToolContext {
        socket: node.socket,
        acts,
        process: node.process,
        stops: stops.clone(),
        released_calls,
    };
    let builder = match &node.store {
        StoreAt::File(path) => {
            let store = SqliteStore::open_with(
                path,
                sqlite::SqliteSettings { clock: clock.clone(), ..sqlite::SqliteSettings::default() },
            )?;
            Engine::on(StoppingStore { store, stops, changed: changed.clone() })
        }
        StoreAt::Schema(schema) => {
            let settings = store_at::settings(schema, node.process, clock.clone());
            let store = PostgresStore::open_with(&schema.address, settings).await?;
            Engine::on(StoppingStore { store, stops, changed: changed.clone() })
        }
    };
    let builder = match node.ahead_ms {
        Some(ahead_ms) => builder.clock(AheadClock { ahead_ms }),
        None => builder,
    };
    let engine = builder.agent(scripted_agent(&context, &payment_client, hook)?).start().await?;
    seal_audit(&engine, shares).await;
    let (show, rings) = (engine.clone(), changed.clone());
    tokio::spawn(async move {
        loop {
            match snapshot(&show).await {
                Ok(snapshot) => print_line(&Line::RunsSnapshot(snapshot)),
                // A node that shares its store is asked again.
                Err(StoreError::Failed(_)) if shares => {}
                Err(refused) => eprintln!("ERROR: the runs cannot be shown: {refused}"),
            }
            rings.notified().await;
        }
    });
    while let Some(Command { number, request }) = commands.recv().await {
        if request == Request::Show {
            changed.notify_one();
            continue;
        }
        let (engine, context) = (engine.clone(), context.clone());
        tokio::spawn(async move {
            let response = execute(&engine, &context, request).await;
            print_line(&Line::Responded { number, response });
        });
    }
    Ok(())
}

/// Puts what earlier processes recorded into the chain, while other nodes may do the same.
async fn seal_audit(engine: &Engine, shares: bool) {
    match engine.store().seal_audit().await {
        Ok(_) => {}
        // Who shares its store leaves it to the others.
        Err(StoreError::Failed(_)) if shares => {}
        Err(refused) => eprintln!("ERROR: audit records cannot be sealed: {refused}"),
    }
}

async fn snapshot(engine: &Engine) -> Result<RunsSnapshot, StoreError> {
    let mut page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let held_count = engine.runs_in_memory();
    let mut runs = Vec::new();
    loop {
        let listed = engine.runs(&Tenant::default(), &RunFilter::default(), &page).await?;
        runs.extend(listed.items);
        page.cursor = listed.next;
        if page.cursor.is_none() {
            break;
        }
    }
    runs.reverse();
    let runs = runs.iter().map(run_snapshot).collect::<Result<_, _>>()?;
    Ok(RunsSnapshot { runs, held_count })
}

fn run_snapshot(view: &RunView) -> Result<RunSnapshot, StoreError> {
    let control = view.decoded()?;
    let calls = control.calls.iter().map(|call| CallSnapshot {
        call: call.id.clone(),
        tool: call.tool.clone(),
        step: call.step,
        status: call.status(),
        attempts: call.attempts,
    });
    Ok(RunSnapshot {
        run: view.id.clone(),
        message: control.user_message.clone(),
        seq: control.seq,
        ended: control.ended().is_some(),
        waiting: matches!(control.status, RunStatus::Waiting(_)),
        calls: calls.collect(),
        pending: control.pending(),
    })
}

async fn execute(engine: &Engine, context: &ToolContext, request: Request) -> Response {
    let tenant = Tenant::default();
    match request {
        Request::Post(post) => match engine.post(message(post)).await {
            Ok(posted) => Response::Posted { run: posted.run },
            Err(PostError::Store(refused)) => failure_response(refused),
            Err(refused) => Response::Refused { why: refused.to_string() },
        },
        Request::Decide(given) => verdict(engine.decide(decision(given)).await),
        Request::ApproveUnnamed { run, call } => {
            verdict(engine.decide(Decide::approve(&run, &call, PERSON)).await)
        }
        Request::Interrupt { run } => {
            verdict(engine.interrupt(&tenant, &run, &Principal::from(PERSON)).await)
        }
        Request::ReleaseTool { call } => {
            context.released_calls.send_if_modified(|released_calls| released_calls.insert(call));
            Response::Done
        }
        Request::AutoApprove { thread, is_on } => {
            stored(engine.auto_approve(&tenant, &thread, is_on, &Actor::from(PERSON)).await)
        }
        Request::DeleteThread { thread } => {
            stored(engine.delete_thread(&tenant, &thread, &Deletion::from(PERSON)).await)
        }
        // Nothing wakes the run: the next worker to claim it finds the answer.
        Request::LateAnswer { run, step, call, attempt } => {
            let value = Arc::new(json!({"done": call}));
            let outcome = Outcome::Answered(ToolAnswer::Success { value, warning: None });
            let item = Item::LateAnswer { step, call, attempt, outcome };
            verdict(engine.store().submit(&tenant, &run, item).await)
        }
        Request::CountBoundaries => Response::BoundaryCount { count: context.stops.count() },
        Request::HaltBeforeStoring => {
            context.stops.halt_before_storing();
            Response::Done
        }
        Request::Show | Request::Resume => Response::Done,
    }
}

fn verdict(verdict: Result<Verdict, StoreError>) -> Response {
    match verdict {
        Ok(Verdict::Accepted) => Response::Accepted,
        Ok(Verdict::AlreadyApplied) => Response::AlreadyApplied,
        Ok(Verdict::ToolChanged) => Response::Refused { why: "no tool has changed".into() },
        Ok(Verdict::Refused(refusal)) => Response::Refused { why: refusal.to_string() },
        Err(refused) => failure_response(refused),
    }
}

/// What is no longer there was deleted by the same request, sent earlier.
fn stored<T>(changed: Result<T, StoreError>) -> Response {
    match changed {
        Ok(_) => Response::Accepted,
        Err(StoreError::NotFound) => Response::AlreadyApplied,
        Err(refused) => failure_response(refused),
    }
}

fn failure_response(refused: StoreError) -> Response {
    let why = refused.to_string();
    match refused {
        StoreError::Failed(_) => Response::Trouble { why },
        StoreError::Fenced
        | StoreError::Behind
        | StoreError::Stale
        | StoreError::Busy(_)
        | StoreError::Impossible(_)
        | StoreError::NotFound => Response::Refused { why },
    }
}

fn message(post: Post) -> Message {
    Message {
        tenant: Tenant::default(),
        thread: ThreadTarget::Named(post.thread),
        agent: AgentName::from(AGENT),
        content: Some(post.content),
        message_id: Some(post.message),
        after: None,
        on_busy: None,
        policy: post.policy,
        tools: Vec::new(),
        output_schema: None,
        by: Principal::from(PERSON),
        may_approve: false,
        key: None,
    }
}

fn decision(given: GivenDecision) -> Decide {
    let reason = Some("not now".to_owned());
    let answer = match given.reply {
        Reply::Approve | Reply::Retry => Answer::Resume(Resumption::default()),
        Reply::ApproveForLater => {
            Answer::Resume(Resumption { apply_to_future: true, ..Resumption::default() })
        }
        Reply::Edit(arguments) => {
            Answer::Resume(Resumption { arguments: Some(arguments), ..Resumption::default() })
        }
        Reply::Result(value) => {
            Answer::Resume(Resumption { payload: Payload::Result(Arc::new(value)), ..Resumption::default() })
        }
        Reply::Reject | Reply::GiveUp => Answer::Cancel(Cancellation { reason, ..Cancellation::default() }),
        Reply::RejectAndEnd => {
            Answer::Cancel(Cancellation { reason, then: Some(OnReject::EndRun), ..Cancellation::default() })
        }
    };
    Decide {
        tenant: Tenant::default(),
        run: given.run,
        call: given.call,
        suspension: Some(given.suspension),
        id: Some(given.id),
        by: Principal::from(PERSON),
        kinds: None,
        answer,
    }
}
