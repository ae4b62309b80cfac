//! An interrupt waits for nothing: not for a tool, not for a model, not for a child; and what comes late changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::agent::Agent;
use engine::clock::Clock;
use engine::feed::FeedItem;
use engine::live::{LiveItem, ToolNote, ToolNoteBody};
use engine::store::{BoxFuture, Claim, Claimed, RunStore, Store, StoreError, Tenant, Wrapper};
use engine::tool::{Approval, FunctionTool, OnExpiry, ToolDefinition, ToolRequest};
use engine::{Engine, Settings};
use machine::event::Fact;
use machine::id::{Principal, RunId};
use machine::inbox::{Refusal, Verdict};
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use stores::memory::MemoryStore;
use tokio::sync::{Notify, oneshot};

use crate::harness::{
    FunctionModel, Harness, Scripted, Sent, asking, call, gated, held, next_item, remaining_events,
    to_assistant, transfer_definition, until_named, wait_until_released,
};

/// A test that waits longer than this has found a fault: the engine waits for a tool that does not come back.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longer than any test: a run that waits for the end of this grace does not end.
fn patient() -> Settings {
    Settings { cancel_grace: Duration::from_secs(24 * 3_600), ..Settings::default() }
}

async fn interrupt(engine: &Engine, run: &RunId) -> Verdict {
    engine.interrupt(&Tenant::default(), run, &Principal::from("ann")).await.unwrap()
}

fn one(tool: &str) -> Scripted {
    asking(&[("a", tool, json!({}))])
}

fn interrupted() -> Option<Termination> {
    Some(Termination::Cancelled(Cancelled::Interrupted))
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_notified_of_its_cancellation_and_may_clean_up() {
    let (harness, cleaned_up) = (Harness::new(), Arc::new(Notify::new()));
    let tidied = cleaned_up.clone();
    let definition = ToolDefinition::new("slow", "Waits").read();
    let tool = FunctionTool::new(definition, move |request: ToolRequest| {
        let tidied = tidied.clone();
        async move {
            request.cancelled.cancelled().await;
            tidied.notify_one();
            json!("too late")
        }
    });
    let engine = harness.start(Agent::new("assistant", one("slow")).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
    remaining_events(&mut watched).await;
    cleaned_up.notified().await;
    assert_eq!(harness.ended(&posted.run).await, interrupted());
    // What it came back with is not in the log.
    assert_eq!(harness.count(&posted.run, "tool.execution_succeeded").await, 0);
}

/// Says when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

/// On a paused clock an interrupt takes no time at all.
#[tokio::test(start_paused = true)]
async fn a107_an_interrupt_takes_no_time_and_a_tool_that_ignores_its_token_is_taken_away_after_its_grace() {
    let (harness, (sender, gone)) = (Harness::new(), oneshot::channel());
    let guard = std::sync::Mutex::new(Some(Dropped(Some(sender))));
    let tool = FunctionTool::new(ToolDefinition::new("slow", "Waits").read(), move |_: ToolRequest| {
        let guard = guard.lock().unwrap().take();
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            json!("never")
        }
    });
    let settings = Settings { cancel_grace: Duration::from_secs(5), ..Settings::default() };
    let agent = Agent::new("assistant", one("slow")).tool(tool);
    let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let began = tokio::time::Instant::now();
    assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
    remaining_events(&mut watched).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    gone.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a107_a_tool_that_keeps_its_thread_busy_does_not_hold_an_interrupt_up() {
    let (harness, release, spinning) =
        (Harness::new(), Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (came_back, (stop, begun)) = (Arc::new(AtomicBool::new(false)), (release.clone(), spinning.clone()));
    let comes_back = came_back.clone();
    let tool = FunctionTool::new(ToolDefinition::new("busy", "Spins").read(), move |_: ToolRequest| {
        let (stop, begun, comes_back) = (stop.clone(), begun.clone(), comes_back.clone());
        async move {
            begun.notify_one();
            while !stop.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            comes_back.store(true, Ordering::Release);
            json!("at last")
        }
    });
    let agent = Agent::new("assistant", one("busy")).tool(tool);
    let engine = harness.engine().settings(patient()).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    spinning.notified().await;
    let ending = async {
        assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
        remaining_events(&mut watched).await;
    };
    let ended = tokio::time::timeout(PATIENCE, ending).await;
    let while_it_runs = !came_back.load(Ordering::Acquire);
    release.store(true, Ordering::Release);
    assert!(ended.is_ok(), "the interrupting caller waits for the tool");
    assert!(while_it_runs, "the run ended before its tool came back");
    assert_eq!(harness.ended(&posted.run).await, interrupted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a107_a_tool_that_waits_for_another_thread_does_not_hold_an_interrupt_up() {
    let (harness, release, spinning) =
        (Harness::new(), Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (came_back, (stop, begun)) = (Arc::new(AtomicBool::new(false)), (release.clone(), spinning.clone()));
    let comes_back = came_back.clone();
    let tool = FunctionTool::new(ToolDefinition::new("busy", "Spins").read(), move |_: ToolRequest| {
        let (stop, begun, comes_back) = (stop.clone(), begun.clone(), comes_back.clone());
        async move {
            let thread = tokio::task::spawn_blocking(move || {
                begun.notify_one();
                while !stop.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            thread.await.unwrap();
            comes_back.store(true, Ordering::Release);
            json!("at last")
        }
    });
    let agent = Agent::new("assistant", one("busy")).tool(tool);
    let engine = harness.engine().settings(patient()).agent(agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    spinning.notified().await;
    let ending = async {
        assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
        remaining_events(&mut watched).await;
    };
    let ended = tokio::time::timeout(PATIENCE, ending).await;
    let while_it_runs = !came_back.load(Ordering::Acquire);
    release.store(true, Ordering::Release);
    assert!(ended.is_ok(), "the interrupting caller waits for the tool");
    assert!(while_it_runs, "the run ended before its tool came back");
    assert_eq!(harness.ended(&posted.run).await, interrupted());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_running_is_cancelled_and_says_that_it_may_have_taken_effect() {
    let (harness, begun) = (Harness::new(), Arc::new(Notify::new()));
    let started = begun.clone();
    let definition = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let tool = FunctionTool::new(definition, move |_: ToolRequest| {
        let started = started.clone();
        async move {
            started.notify_one();
            std::future::pending::<()>().await;
            json!("never")
        }
    });
    let engine = harness.start(Agent::new("assistant", one("post")).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    begun.notified().await;
    assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
    let cancelled = until_named(&mut watched, "tool.cancelled").await;
    assert!(matches!(cancelled.fact, Fact::ToolCancelled { outcome_unknown: true, .. }), "{cancelled:?}");
    remaining_events(&mut watched).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_drops_the_model_call() {
    let (harness, (sender, gone), begun) = (Harness::new(), oneshot::channel(), Arc::new(Notify::new()));
    let (guard, started) = (std::sync::Mutex::new(Some(Dropped(Some(sender)))), begun.clone());
    let model = FunctionModel(move |_, _| {
        let (guard, started) = (guard.lock().unwrap().take(), started.clone());
        async move {
            let _guard = guard;
            started.notify_one();
            std::future::pending().await
        }
    });
    let engine = harness.start(Agent::new("assistant", model)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    begun.notified().await;
    assert_eq!(interrupt(&engine, &posted.run).await, Verdict::Accepted);
    gone.await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, interrupted());
    // The user's message, and the note that it has no answer.
    assert_eq!(harness.count(&posted.run, "message.added").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_interrupt_and_one_after_the_end_change_nothing() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new("assistant", one("transfer")).tool(sent.transfer());
    let engine = harness.start(agent).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    assert_eq!(interrupt(&engine, &run).await, Verdict::Accepted);
    remaining_events(&mut watched).await;
    let before = harness.names(&run).await;
    assert_eq!(interrupt(&engine, &run).await, Verdict::Refused(Refusal::RunOver));
    assert_eq!((harness.names(&run).await, harness.pending().await, sent.count()), (before, vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn progress_and_logs_of_a_tool_reach_a_watcher_and_change_nothing() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let opened = gate.clone();
    let tool = FunctionTool::new(ToolDefinition::new("slow", "Talks").read(), move |request: ToolRequest| {
        let opened = opened.clone();
        async move {
            request.notes.log("half way");
            request.notes.progress(json!({"percent": 50}));
            opened.notified().await;
            json!("done")
        }
    });
    let quiet = Arc::new(Notify::new());
    let engine = harness.start(Agent::new("assistant", one("slow")).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let mut notes = Vec::new();
    while let Some(item) = next_item(&mut watched).await {
        if let FeedItem::Live(LiveItem::Note(note)) = item {
            notes.push(note);
            gate.notify_one();
        }
    }
    let at = harness.clock.now();
    let note = |body| {
        let (call_id, tool, step) = (call("a"), Some("slow".into()), Some(1));
        ToolNote { call_id, tool, attempt: 1, step, at, body }
    };
    assert_eq!(
        notes,
        [note(ToolNoteBody::Log("half way".into())), note(ToolNoteBody::Progress(json!({"percent": 50})))]
    );
    let other = Harness::new();
    let engine = other.start(Agent::new("assistant", one("slow")).tool(gated("slow", &quiet))).await;
    quiet.notify_one();
    let (silent, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.names(&posted.run).await, other.names(&silent.run).await);
}

/// A store that does not come back from one claim before the test says so.
struct SlowClaim {
    inner: MemoryStore,
    hangs: AtomicBool,
    hung: Notify,
    resume: Notify,
}

impl Wrapper for SlowClaim {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            if matches!(claim, Claim::Run { .. }) && self.hangs.swap(false, Ordering::AcqRel) {
                self.hung.notify_one();
                self.resume.notified().await;
            }
            self.inner.claim(claim).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_falls_due_while_many_callers_wait_for_its_worker_is_not_lost() {
    let (harness, sent, expires) = (Harness::new(), Sent::default(), Duration::from_secs(60));
    let store = Arc::new(SlowClaim {
        inner: harness.store.clone(),
        hangs: AtomicBool::new(false),
        hung: Notify::new(),
        resume: Notify::new(),
    });
    let transfer =
        sent.tool(transfer_definition().expires_in(expires, OnExpiry::Deny), |_| json!("never sent"));
    let agent = Agent::new("assistant", one("transfer")).tool(transfer);
    let engine = harness.engine_on(store.clone()).agent(agent).start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    store.hangs.store(true, Ordering::Release);
    let crowd: Vec<_> = (0..300)
        .map(|_| {
            let (engine, run) = (engine.clone(), run.clone());
            tokio::spawn(async move { interrupt(&engine, &run).await })
        })
        .collect();
    store.hung.notified().await;
    // The scan for due runs has claimed the run by then, for the worker that still waits for its own claim.
    tokio::time::sleep(2 * expires).await;
    store.resume.notify_one();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&run).await, Some(Termination::Cancelled(Cancelled::Interrupted)));
    for one in crowd {
        assert!(one.await.is_ok(), "everybody is answered");
    }
}
