//! A tool in another process, reached over pipes: the time from a decision on a parked run to the tool's first byte.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use crate::approval::{Entries, approvals_by, one};
use crate::command::TOOL;
use crate::disk::BareDisk;
use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::report::{Sheet, Target, Unit};
use crate::statistics::percentile;

/// Warm-up runs; they do not count.
const WARM_UP_COUNT: usize = 10;
/// In addition to the one commit.
const REACH_MS_MAX: f64 = 2.0;

/// The other process: answers each line with the time at which its first byte arrived. Both processes share the wall
/// clock.
pub(crate) fn serve() -> Result<(), Failure> {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut bytes = [0; 4_096];
    loop {
        let mut count = stdin.read(&mut bytes)?;
        let arrived_at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        if count == 0 {
            return Ok(());
        }
        while bytes[..count].last() != Some(&b'\n') {
            count = stdin.read(&mut bytes)?;
        }
        writeln!(stdout, "{}", arrived_at.as_nanos())?;
        stdout.flush()?;
    }
}

/// The parent's handle. Handles one call at a time.
#[derive(Clone)]
struct ToolProcess {
    requests: Arc<StdMutex<ChildStdin>>,
    answers: Arc<Mutex<mpsc::Receiver<String>>>,
}

impl ToolProcess {
    fn start() -> Result<(Self, Child), Failure> {
        let mut process = Command::new(env::current_exe()?)
            .arg(TOOL)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || Failure::new("a process without pipes");
        let requests = process.stdin.take().ok_or_else(missing)?;
        let lines = BufReader::new(process.stdout.take().ok_or_else(missing)?).lines();
        let (sender, answers) = mpsc::channel(1);
        // This thread ends with the process.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let (requests, answers) = (Arc::new(StdMutex::new(requests)), Arc::new(Mutex::new(answers)));
        Ok((Self { requests, answers }, process))
    }

    /// When the first byte of the request arrived.
    async fn call(&self, request: &ToolRequest) -> Result<Instant, Failure> {
        let mut answers = self.answers.lock().await;
        {
            let line = json!({ "run": request.run, "call": request.call, "arguments": request.arguments });
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.write_all(format!("{line}\n").as_bytes())?;
            requests.flush()?;
        }
        let answer = answers.recv().await.ok_or_else(|| Failure::new("the tool's process is gone"))?;
        let arrived_at = UNIX_EPOCH + Duration::from_nanos(answer.parse()?);
        let ago = SystemTime::now().duration_since(arrived_at)?;
        Instant::now().checked_sub(ago).ok_or_else(|| Failure::new("the clock was set"))
    }

    fn tool(&self, entries: &Entries) -> impl Tool + use<> {
        let (process, entries) = (self.clone(), entries.clone());
        let definition = ToolDefinition::new("transfer", "Moves money");
        FunctionTool::new(definition, move |request: ToolRequest| {
            let (process, entries) = (process.clone(), entries.clone());
            async move {
                // A run without an entry counts as a failure.
                match process.call(&request).await {
                    Ok(at) => {
                        entries.enter(&request.run, Some(&request.call), at);
                        json!("sent")
                    }
                    Err(_) => Value::Null,
                }
            }
        })
    }
}

/// In milliseconds.
pub(crate) struct Reached {
    /// From a decision on a parked run until the first byte of the request reaches the tool's process.
    decisions: Vec<f64>,
    /// The same number of bare commits of the same size, alternating with the decisions.
    bare_commits: Vec<f64>,
    commit_counts: Vec<u64>,
}

pub(crate) fn measure(setting: &Setting, effort: Effort) -> Result<Reached, Failure> {
    let setting = setting.clone();
    on(&many_threads()?, async move {
        let mut opened = setting.open().await?;
        let entries = Entries::of(&opened.store);
        let notes = opened.recording();
        let (tools, mut process) = ToolProcess::start()?;
        let engine = opened.start(approvals_by(&entries, tools.tool(&entries))).await?;
        for _ in 0..WARM_UP_COUNT {
            one(engine.clone(), entries.clone(), Some(notes.clone())).await?;
        }
        let counts = opened.store.metrics();
        let bare = BareDisk::within(&setting.folder, (counts.bytes / counts.commits.max(1)) as usize)?;
        let mut reached =
            Reached { decisions: Vec::new(), bare_commits: Vec::new(), commit_counts: Vec::new() };
        for _ in 0..effort.remote_run_count {
            let run = one(engine.clone(), entries.clone(), Some(notes.clone())).await?;
            for decided in run.decisions {
                reached.decisions.push(decided.to_tool_start);
                reached.commit_counts.push(decided.commit_count);
                reached.bare_commits.push(bare.commit(1)?);
            }
        }
        drop((bare, entries, tools));
        opened.close(engine).await?;
        process.wait()?;
        Ok(reached)
    })
}

pub(crate) fn figures(sheet: &mut Sheet, reached: &Reached) {
    let bare = percentile(&reached.bare_commits, 99).unwrap_or(f64::NAN);
    let title = "p99 of a bare commit, measured between the decisions";
    sheet.add("bare_commit_p99_ms", title, Unit::Milliseconds, &[bare]);
    let commits: Vec<f64> = reached.commit_counts.iter().map(|count| *count as f64).collect();
    let title = "parked, commits from decision to the tool's process";
    sheet.add_aimed("commits_to_tool_process", title, Unit::Count, &commits, Some(Target::Exactly(1.0)));
    for percent in [50, 99] {
        let samples: Vec<f64> = percentile(&reached.decisions, percent).into_iter().collect();
        let target = (percent == 99).then_some(Target::AtMost(bare + REACH_MS_MAX));
        let title = format!("parked, decision → first byte at the tool's process, p{percent}");
        let metric = format!("decision_to_tool_process_p{percent}_ms");
        sheet.add_aimed(metric, &title, Unit::Milliseconds, &samples, target);
    }
}
