//! W6, shares: one tenant fills all the slots it can get with sleeping runs and queues more; another tenant posts.

use std::sync::Arc;
use std::time::Instant;

use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Tenant};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use engine::{Engine, Settings};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::effort::Effort;
use crate::environment::{AGENT, Setting, agent, asking, last_answer, many_threads, on};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Unit};

const SLEEPING: usize = 256;
/// Number of runs held for approval, and also of runs that have not started.
const WAITING: usize = 500;
/// Runs of the other tenant in each repetition.
const MEASURED: usize = 20;

/// On "sleep" it sleeps forever; on "pay" it asks for a call that is held.
struct Sleeper(Arc<Semaphore>);

impl Model for Sleeper {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            match (request.last_user_text(), request.step) {
                (Some("sleep"), _) => drop(self.0.acquire().await),
                (Some("pay"), 1) => return Ok(asking(&[("a", "pay")])),
                _ => {}
            }
            Ok(last_answer())
        })
    }
}

/// Sends the time at which the tool was entered.
fn pay(entered: UnboundedSender<Instant>) -> impl Tool {
    FunctionTool::new(ToolDefinition::new("pay", "Moves money"), move |_: ToolRequest| {
        // After the last one the receiver is gone.
        let _ = entered.send(Instant::now());
        async { json!("paid") }
    })
}

/// Milliseconds from the other tenant's post to its end, and from its approval to the start of the call.
async fn measured(setting: Setting) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let opened = setting.open().await?;
    let (entered, mut starts) = unbounded_channel();
    let settings = Settings { running_runs_max: SLEEPING, several_tenants: true, ..Settings::default() };
    let sleeper = Sleeper(Arc::new(Semaphore::new(0)));
    let engine = opened.start_with(agent(sleeper).tool(pay(entered)), settings).await?;
    let (greedy, other) = (Tenant::from("greedy"), Tenant::from("other"));
    let says = |tenant: &Tenant, text: &str| Message::to(AGENT, text).for_tenant(tenant.clone());
    for _ in 0..WAITING {
        engine.run(says(&greedy, "pay")).await?;
    }
    for _ in 0..SLEEPING + WAITING {
        engine.post(says(&greedy, "sleep")).await?;
    }
    let (mut answers, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..MEASURED {
        let begin = Instant::now();
        engine.run(says(&other, "hello")).await?;
        answers.push(milliseconds(begin, Instant::now()));
        let run = engine.run(says(&other, "pay")).await?.run;
        let begin = Instant::now();
        approve_one(&engine, &other).await?;
        let start = starts.recv().await.ok_or_else(|| Failure::new("the tool is gone".to_owned()))?;
        calls.push(milliseconds(begin, start));
        engine.wait_until_ended(&other, &run).await?;
    }
    opened.close(engine).await?;
    Ok((answers, calls))
}

async fn approve_one(engine: &Engine, tenant: &Tenant) -> Result<(), Failure> {
    let pending = engine.pending(tenant).await?;
    let approval = pending.first().ok_or_else(|| Failure::new("nothing is held".to_owned()))?;
    let verdict = engine.decide(approval.approve("ann")).await?;
    if verdict.is_taken() { Ok(()) } else { Err(Failure::new(verdict.to_string())) }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

pub(crate) fn run(setting: &Setting, effort: Effort, progress: &Progress) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let (mut answers, mut calls) = (Vec::new(), Vec::new());
    for number in 1..=effort.repetition_count {
        progress.phase(&format!(
            "another tenant beside {SLEEPING} sleeping runs, {number} of {}",
            effort.repetition_count
        ));
        let (answered, started) = on(&runtime, measured(setting.clone()))?;
        answers.extend(answered);
        calls.extend(started);
    }
    let mut sheet = Sheet::of("W6", setting.kind);
    sheet.add(
        "other_tenant_answer_ms",
        "another tenant's post until its answer",
        Unit::Milliseconds,
        &answers,
    );
    sheet.add(
        "other_tenant_start_ms",
        "another tenant's approval until its call",
        Unit::Milliseconds,
        &calls,
    );
    Ok(sheet.into_figures())
}
