//! A plugin looks at every call before it runs: it supplies the result of one, blocks another, and holds a third for a
//! person. No tool of the three would be held by itself. It prints:
//!
//! ```text
//! rate: the result is {"cached":true,"dollars":1.08}
//! wipe: blocked by caution: wiping is not allowed
//! transfer: held, because 900 euros is a lot
//! transfer: approved by ann
//! transfer: the result is "done"
//! tools that really ran: transfer
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};

use holdpoint::agent::Execution;
use holdpoint::prelude::*;

/// Transfers up to this amount need no approval.
const UNASKED_EUROS_MAX: i64 = 100;

/// The actions for a call. With no action, the call is handled as if there were no plugin.
fn judge(context: &HookContext) -> Vec<Action> {
    let Subject::BeforeToolExecute { tool, arguments, .. } = &context.subject else { return Vec::new() };
    match tool.as_str() {
        "rate" => {
            let value = Arc::new(json!({"dollars": 1.08, "cached": true}));
            vec![Action::SetResult(SuppliedResult::Success { value, warning: None })]
        }
        "wipe" => vec![Action::Block { reason: "wiping is not allowed".into() }],
        "transfer" => match arguments["euros"].as_i64() {
            Some(euros) if euros <= UNASKED_EUROS_MAX => Vec::new(),
            // The hook runs again for the approved call. The engine ignores a second `Suspend` from the same plugin.
            Some(euros) => {
                vec![Action::Suspend(SuspendRequest::approval(&format!("{euros} euros is a lot")))]
            }
            None => vec![Action::Block { reason: "how much?".into() }],
        },
        _ => Vec::new(),
    }
}

/// A tool that records that its body ran.
fn tool(name: &str, ran: &Arc<Mutex<Vec<String>>>) -> impl Tool + use<> {
    let ran = ran.clone();
    let definition = ToolDefinition::new(name, "Does what its name says").approval(Approval::Never);
    FunctionTool::new(definition, move |request: ToolRequest| {
        let written = ran.lock().map(|mut ran| ran.push(request.tool.to_string()));
        let answer = written.map(|()| json!("done")).map_err(|error| error.to_string());
        std::future::ready(answer)
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let model =
        ScriptedModel::replying([
            Reply::call("rate", "rate", json!({"currency": "USD"}))
                .and_call("wipe", "wipe", json!({}))
                .and_call("transfer", "transfer", json!({"to": "bob", "euros": 900})),
            Reply::text("Bob has his money; nothing was wiped."),
        ]);
    let caution =
        FunctionPlugin::new("caution", [Phase::BeforeToolExecute], |context: HookContext| async move {
            Ok(judge(&context))
        });
    let agent = Agent::new("clerk", model)
        .tool(tool("rate", &ran))
        .tool(tool("wipe", &ran))
        .tool(tool("transfer", &ran))
        .plugin(caution)
        // One call after the other, so that the output is always the same.
        .policy(Policy { execution: Execution::Sequential, ..Policy::default() });
    let engine = Engine::on(MemoryStore::new()).agent(agent).start().await?;

    let (posted, mut events) =
        engine.stream(Message::to("clerk", "Pay Bob 900 euros, then wipe it all.")).await?;
    while let Some(item) = events.next().await {
        let FeedItem::Event(committed) = item? else { continue };
        print_fact(&committed.event.fact);
        if let Fact::ApprovalRequested(opened) = &committed.event.fact {
            let verdict = engine.decide(Decide::approve(&posted.run, &opened.call_id, "ann")).await?;
            assert_eq!(verdict, Verdict::Accepted);
        }
    }
    let ran = ran.lock().map_err(|error| error.to_string())?;
    println!("tools that really ran: {}", ran.join(", "));
    Ok(())
}

#[allow(clippy::wildcard_enum_match_arm, reason = "only the facts to print are matched")]
fn print_fact(fact: &Fact) {
    match fact {
        Fact::ApprovalRequested(opened) => {
            println!(
                "{}: held, because {}",
                opened.tool,
                opened.question.as_deref().unwrap_or("policy says so")
            );
        }
        Fact::ToolApproved { call_id, by, .. } => println!("{call_id}: approved by {by}"),
        Fact::ExecutionSucceeded { call_id, result, .. } => println!("{call_id}: the result is {result}"),
        Fact::ExecutionFailed { call_id, error, .. } => println!("{call_id}: {}", error.message),
        _ => {}
    }
}
