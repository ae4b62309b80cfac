//! One answer of the model asks for two calls. The transfer is held for a person. The report runs at once and takes
//! a while. The approval comes from another task and is carried out while the report still runs. It prints:
//!
//! ```text
//! tool.execution_started    report
//! tool.approval_requested   transfer {"euros":40,"to":"bob"}
//! tool.approved             transfer, by ann
//! tool.execution_started    transfer
//! tool.execution_succeeded  transfer
//! tool.execution_succeeded  report
//! run.ended                 Bob has his money, and here is the report.
//! ```

use std::error::Error;
use std::sync::Arc;

use holdpoint::prelude::*;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let release = Arc::new(Notify::new());
    let model = ScriptedModel::replying([
        Reply::call("report", "report", json!({})).and_call(
            "transfer",
            "transfer",
            json!({"to": "bob", "euros": 40}),
        ),
        Reply::text("Bob has his money, and here is the report."),
    ]);
    let agent = Agent::new("clerk", model).tool(transfer()).tool(report(&release));
    let engine = Engine::on(MemoryStore::new()).agent(agent).start().await?;

    let (posted, mut events) = engine.stream(Message::to("clerk", "Pay Bob and report.")).await?;
    let ann = tokio::spawn(approve_while_the_report_runs(engine.clone(), posted.run.clone()));

    while let Some(item) = events.next().await {
        let FeedItem::Event(committed) = item? else { continue };
        let fact = &committed.event.fact;
        if let Some(what) = describe(fact) {
            println!("{:<25} {what}", fact.name());
        }
        // The report may end only after the transfer: if the approval waited for the report, the run would hang here.
        if matches!(fact, Fact::ExecutionSucceeded { call_id, .. } if call_id.as_str() == "transfer") {
            release.notify_one();
        }
    }
    assert_eq!(ann.await??, Verdict::Accepted);

    let finished = engine.wait_until_ended(&Tenant::default(), &posted.run).await?;
    println!("{:<25} {}", "run.ended", finished.text);
    Ok(())
}

/// Unless declared otherwise, a tool is assumed to have side effects, so its calls wait for approval.
fn transfer() -> impl Tool {
    FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), |_: ToolRequest| async {
        json!("sent")
    })
}

fn report(release: &Arc<Notify>) -> impl Tool + use<> {
    let release = release.clone();
    FunctionTool::new(ToolDefinition::new("report", "Writes a report").read(), move |_: ToolRequest| {
        let release = release.clone();
        async move {
            release.notified().await;
            json!("all is well")
        }
    })
}

/// An approver with a separate subscription, who approves once the transfer is held and the report runs.
async fn approve_while_the_report_runs(engine: Engine, run: RunId) -> Result<Verdict, StoreError> {
    let tenant = Tenant::default();
    let mut events = engine.subscribe(&tenant, &run, 0);
    let (mut held, mut report_runs) = (false, false);
    while let Some(item) = events.next().await {
        let FeedItem::Event(committed) = item? else { continue };
        held |= matches!(committed.event.fact, Fact::ApprovalRequested(_));
        report_runs |= matches!(committed.event.fact, Fact::ExecutionStarted { .. });
        if held && report_runs {
            break;
        }
    }
    let waiting = engine.pending(&tenant).await?;
    let shown = waiting.first().ok_or(StoreError::NotFound)?;
    engine.decide(shown.approve("ann")).await
}

#[allow(clippy::wildcard_enum_match_arm, reason = "only the facts to print are matched")]
fn describe(fact: &Fact) -> Option<String> {
    match fact {
        Fact::ApprovalRequested(opened) => {
            let arguments = opened.arguments.as_ref()?.value()?;
            Some(format!("{} {arguments}", opened.tool))
        }
        Fact::ToolApproved { call_id, by, .. } => Some(format!("{call_id}, by {by}")),
        Fact::ExecutionStarted { call_id, .. } | Fact::ExecutionSucceeded { call_id, .. } => {
            Some(call_id.to_string())
        }
        _ => None,
    }
}
