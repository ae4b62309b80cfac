//! A run whose process is killed twice with SIGKILL: once while calls are held and once while tools run. Every process
//! uses the same SQLite file. The tools write their effects to a ledger, which is never cleaned up. It prints:
//!
//! ```text
//! -- the first process
//! lookup runs, attempt 1
//! held: letter, transfer
//! killed while two calls are held
//! -- the second process
//! still held: letter, transfer
//! ann approves both
//! letter runs, attempt 1
//! transfer runs, attempt 1
//! killed while two tools run
//! -- the third process
//! letter runs, attempt 2
//! in doubt: transfer
//! ann checks the ledger and reports what she found
//! the run has ended: Bob has his money and his letter.
//! -- the ledger
//! 1 lookup, 1 letter, 1 transfer
//! ```
//!
//! The look-up is not repeated: its result is stored. The engine retries the letter, because its tool is declared
//! idempotent. The letter is written once, because its tool checks the idempotency key. The engine does not retry the
//! transfer: only a person can find out whether it happened.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use holdpoint::prelude::*;
use holdpoint::store::RunFilter;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => supervise(),
        [part, folder] => run_part(part, Path::new(folder)),
        _ => Err("start it without arguments".into()),
    }
}

/// Starts one process after the other, prints their output, and kills the first two at the worst moment.
fn supervise() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("holdpoint-continued-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!("-- the first process");
    run_process("first", &folder, Some(1))?;
    println!("killed while two calls are held");
    println!("-- the second process");
    run_process("second", &folder, Some(2))?;
    println!("killed while two tools run");
    println!("-- the third process");
    run_process("third", &folder, None)?;
    println!("-- the ledger");
    let ledger = Ledger { path: folder.join("ledger.txt") };
    let entries = ["lookup", "letter", "transfer"].map(|tool| (ledger.count(tool), tool));
    println!("{}", entries.map(|(count, tool)| format!("{count} {tool}")).join(", "));
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Runs this program again in a new process. Kills it after `kill_after` lines that begin with `!`.
fn run_process(part: &str, folder: &Path, kill_after: Option<usize>) -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut process = command.arg(part).arg(folder).stdout(Stdio::piped()).spawn()?;
    let output = process.stdout.take().ok_or("a process without output")?;
    let mut marked = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        match line.strip_prefix('!') {
            Some(text) => marked.push(text.to_owned()),
            None => println!("{line}"),
        }
        if kill_after == Some(marked.len()) {
            // SIGKILL: the process cannot clean up.
            process.kill()?;
            break;
        }
    }
    // Tools run in parallel; sort their lines so that the output is always the same.
    marked.sort_unstable();
    marked.iter().for_each(|line| println!("{line}"));
    let status = process.wait()?;
    if status.success() == kill_after.is_none() {
        Ok(())
    } else {
        Err(format!("the {part} process ended with {status}").into())
    }
}

#[tokio::main]
async fn run_part(part: &str, folder: &Path) -> Result<(), Failure> {
    let ledger = Ledger { path: folder.join("ledger.txt") };
    let store = SqliteStore::open(folder.join("runs.db"))?;
    let engine = Engine::on(store).agent(clerk(&ledger, part == "second")).start().await?;
    match part {
        "first" => begin(&engine).await,
        "second" => approve(&engine).await,
        "third" => settle(engine, &ledger).await,
        _ => Err(format!("there is no {part} part").into()),
    }
}

async fn begin(engine: &Engine) -> Result<(), Failure> {
    let finished = engine.run(Message::to("clerk", "Pay Bob, and write to him.")).await?;
    let RunOutcome::Suspended(pending) = finished.outcome else { return Err("nothing is held".into()) };
    println!("!held: {}", in_order(pending.iter().map(|held| held.tool.as_str())));
    std::future::pending().await
}

async fn approve(engine: &Engine) -> Result<(), Failure> {
    let waiting = engine.pending(&Tenant::default()).await?;
    println!(
        "still held: {}",
        in_order(waiting.iter().filter_map(|held| Some(held.opened.as_ref()?.tool.as_str())))
    );
    println!("ann approves both");
    for held in &waiting {
        accepted(engine.decide(held.approve("ann")).await?)?;
    }
    std::future::pending().await
}

/// The engine has continued everything that is safe to continue. For the rest it asks a person.
#[allow(clippy::wildcard_enum_match_arm, reason = "only the facts to react to are matched")]
async fn settle(engine: Engine, ledger: &Ledger) -> Result<(), Failure> {
    let tenant = Tenant::default();
    let runs = engine.runs(&tenant, &RunFilter::default(), &Page::default()).await?;
    let run = runs.items.first().ok_or("no run is stored")?.id.clone();
    let mut events = engine.subscribe(&tenant, &run, 0);
    let mut in_doubt = None;
    while let Some(item) = events.next().await {
        let FeedItem::Event(committed) = item? else { continue };
        match &committed.event.fact {
            Fact::ToolSuspended(opened) if opened.held.kind() == SuspensionKind::InDoubt => {
                in_doubt = Some(opened.clone());
            }
            // Nothing executes any more: the run needs a person to continue.
            Fact::RunWaiting { .. } => {
                let Some(opened) = in_doubt.take() else { continue };
                println!("in doubt: {}", opened.tool);
                println!("ann checks the ledger and reports what she found");
                let found = json!(if ledger.count("transfer") == 1 { "sent" } else { "not sent" });
                let answer =
                    Decide::result(&run, &opened.call_id, "ann", found).for_suspension(&opened.suspension_id);
                accepted(engine.decide(answer).await?)?;
            }
            _ => {}
        }
    }
    println!("the run has ended: {}", engine.wait_until_ended(&tenant, &run).await?.text);
    engine.close(Duration::from_secs(5)).await;
    Ok(())
}

/// Calls that are held in the same millisecond are listed in no particular order.
fn in_order<'a>(tools: impl Iterator<Item = &'a str>) -> String {
    let mut tools: Vec<&str> = tools.collect();
    tools.sort_unstable();
    tools.join(", ")
}

fn accepted(verdict: Verdict) -> Result<(), Failure> {
    if verdict == Verdict::Accepted { Ok(()) } else { Err(verdict.to_string().into()) }
}

/// What really happened: one line for each effect.
#[derive(Clone)]
struct Ledger {
    path: PathBuf,
}

impl Ledger {
    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn count(&self, tool: &str) -> usize {
        self.lines().iter().filter(|line| line.split(' ').next() == Some(tool)).count()
    }

    fn write(&self, request: &ToolRequest) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{} {}", request.tool, request.idempotency_key)
    }

    /// Acts once per idempotency key, however often it is called.
    fn write_once(&self, request: &ToolRequest) -> io::Result<()> {
        let known = self.lines().iter().any(|line| line.ends_with(&request.idempotency_key));
        if known { Ok(()) } else { self.write(request) }
    }
}

/// With `stuck` the tools act and never answer: if the process is killed then, the outcome is unknown.
fn clerk(ledger: &Ledger, stuck: bool) -> Agent {
    let model = ScriptedModel::replying([
        Reply::call("call_1", "lookup", json!({"name": "bob"}))
            .and_call("call_2", "transfer", json!({"to": "bob", "euros": 250}))
            .and_call("call_3", "letter", json!({"to": "bob"})),
        Reply::text("Bob has his money and his letter."),
    ]);
    let lookup = ToolDefinition::new("lookup", "Finds an account").read();
    let transfer = ToolDefinition::new("transfer", "Moves money");
    let letter = ToolDefinition::new("letter", "Sends a letter").idempotent().approval(Approval::Ask);
    Agent::new("clerk", model)
        .tool(tool(lookup, ledger, stuck, Ledger::write))
        .tool(tool(transfer, ledger, stuck, Ledger::write))
        .tool(tool(letter, ledger, stuck, Ledger::write_once))
}

fn tool(
    definition: ToolDefinition,
    ledger: &Ledger,
    stuck: bool,
    act: fn(&Ledger, &ToolRequest) -> io::Result<()>,
) -> impl Tool + use<> {
    let ledger = ledger.clone();
    FunctionTool::new(definition, move |request: ToolRequest| {
        let acted = act(&ledger, &request);
        let mark = if stuck { "!" } else { "" };
        println!("{mark}{} runs, attempt {}", request.tool, request.attempt);
        async move {
            if stuck {
                std::future::pending::<()>().await;
            }
            acted.map(|()| json!("done"))
        }
    })
}
