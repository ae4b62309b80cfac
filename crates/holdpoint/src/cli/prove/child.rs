//! The process that gets killed: an engine on a file and a tool that acts, with no cleanup on exit.
//!
//! It prints lines of words and reads commands in the same form:
//!
//! ```text
//! found RUN · ready · begun RUN · held KIND SUSPENSION RUN CALL · acted RUN CALL · accepted SUSPENSION · ended RUN
//! post · approve SUSPENSION · repeat SUSPENSION · happened SUSPENSION
//! ```

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::Engine;
use engine::agent::Agent;
use engine::posting::Message;
use engine::store::{Page, RunFilter, Tenant};
use engine::tool::{Approval, FunctionTool, ToolDefinition, ToolRequest};
use machine::id::{RunId, SuspensionId};
use machine::inbox::Verdict;
use models::scripted::{Reply, ScriptedModel};
use serde_json::{Value, json};
use stores::sqlite::SqliteStore;
use tokio::sync::mpsc;

use super::proof_failed;
use super::verdict::{LEDGER, STORE};
use crate::cli::problem::Problem;

/// How long the tool takes to answer after it has acted: long enough to be killed in between.
const ANSWERS_AFTER: Duration = Duration::from_millis(20);
const PERSON: &str = "prover";

/// Runs until it is killed, or until its parent has exited.
pub(super) fn run(folder: &Path, lie: bool) -> Result<(), Problem> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let _ = sender.send(line);
        }
        // Standard input is closed: the parent is gone, so no process is left to kill this one.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|why| proof_failed(format!("threads cannot be started: {why}")))?;
    runtime.block_on(work(folder, lie, commands))
}

fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    // Ignore a failure: without a reader there is nowhere to report it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn work(
    folder: &Path,
    lie: bool,
    mut commands: mpsc::UnboundedReceiver<String>,
) -> Result<(), Problem> {
    let store = SqliteStore::open(folder.join(STORE))?;
    let agent = payer(folder.join(LEDGER), lie);
    let started = Engine::on(store).agent(agent).start().await;
    let engine = started.map_err(|why| proof_failed(why.to_string()))?;
    for run in unended(&engine).await? {
        print_line(&format!("found {run}"));
        tokio::spawn(watch(engine.clone(), run));
    }
    print_line("ready");
    tokio::spawn(report_held_calls(engine.clone()));
    while let Some(line) = commands.recv().await {
        tokio::spawn(execute(engine.clone(), line));
    }
    Ok(())
}

/// Its model asks for two payments and finishes after both are made.
fn payer(ledger: PathBuf, lie: bool) -> Agent {
    let definition = ToolDefinition::new("pay", "Writes a line into the ledger");
    let definition = if lie { definition.idempotent().approval(Approval::Ask) } else { definition };
    let pay = FunctionTool::new(definition, move |request: ToolRequest| {
        let ledger = ledger.clone();
        async move {
            act(&ledger, &request).map_err(|why| why.to_string())?;
            tokio::time::sleep(ANSWERS_AFTER).await;
            Ok::<Value, String>(json!("paid"))
        }
    });
    let replies = [
        Reply::call("call_1", "pay", json!({"to": "ann"})).and_call("call_2", "pay", json!({"to": "bob"})),
        Reply::text("Both are paid."),
    ];
    Agent::new("payer", ScriptedModel::replying(replies)).tool(pay)
}

/// A single write, so that a kill leaves the whole line or nothing.
fn act(ledger: &Path, request: &ToolRequest) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(ledger)?;
    file.write_all(format!("{} {}\n", request.run, request.call).as_bytes())?;
    print_line(&format!("acted {} {}", request.run, request.call));
    Ok(())
}

async fn unended(engine: &Engine) -> Result<Vec<RunId>, Problem> {
    let mut page = Page { cursor: None, limit: Page::LIMIT_MAX };
    let mut unended = Vec::new();
    loop {
        let listed = engine.runs(&Tenant::default(), &RunFilter::default(), &page).await;
        let listed = listed.map_err(|why| proof_failed(why.to_string()))?;
        unended.extend(listed.items.into_iter().filter(|run| !run.status.ended()).map(|run| run.id));
        page.cursor = listed.next;
        if page.cursor.is_none() {
            return Ok(unended);
        }
    }
}

async fn watch(engine: Engine, run: RunId) {
    if engine.wait_until_ended(&Tenant::default(), &run).await.is_ok() {
        print_line(&format!("ended {run}"));
    }
}

async fn report_held_calls(engine: Engine) {
    let mut changed = engine.approvals_changed();
    loop {
        changed.mark_unchanged();
        for held in engine.pending(&Tenant::default()).await.unwrap_or_default() {
            print_line(&format!("held {} {} {} {}", held.kind, held.id, held.run, held.call));
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

async fn execute(engine: Engine, line: String) {
    let tenant = Tenant::default();
    let Some((command, suspension)) = line.split_once(' ') else {
        if let Ok(posted) = engine.post(Message::to("payer", "Pay Ann and Bob.")).await {
            print_line(&format!("begun {}", posted.run));
            watch(engine, posted.run).await;
        }
        return;
    };
    let Ok(Some(held)) = engine.approval(&tenant, &SuspensionId::from(suspension)).await else { return };
    let decision = match command {
        "happened" => held.result(PERSON, json!("paid")),
        // Approve whatever is asked: to run the call, or to run it again.
        _ => held.approve(PERSON),
    };
    match engine.decide(decision.with_id(suspension)).await {
        Ok(Verdict::Accepted | Verdict::AlreadyApplied) => print_line(&format!("accepted {suspension}")),
        Ok(Verdict::ToolChanged | Verdict::Refused(_)) | Err(_) => {}
    }
}
