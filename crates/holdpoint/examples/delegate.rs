//! An agent that delegates to another one. The other's call is held, and the approval shows which agents led to it. It
//! prints:
//!
//! ```text
//! Held: transfer {"euros":40,"to":"bob"}
//! The way to it: desk, call d → clerk, call t
//! Approved.
//! The clerk's answer is the result of call d: "Bob is paid."
//! The desk said: The clerk says that Bob is paid.
//! ```

use std::error::Error;

use holdpoint::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::on(MemoryStore::new()).agent(desk()).agent(clerk()).start().await?;
    let tenant = Tenant::default();

    let (posted, mut events) = engine.stream(Message::to("desk", "See to it that Bob is paid.")).await?;
    approve_the_first(&engine, &tenant).await?;
    while let Some(item) = events.next().await {
        let FeedItem::Event(committed) = item? else { continue };
        if let Fact::ExecutionSucceeded { call_id, result, .. } = &committed.event.fact {
            println!("The clerk's answer is the result of call {call_id}: {result}");
        }
    }
    println!("The desk said: {}", engine.wait_until_ended(&tenant, &posted.run).await?.text);
    Ok(())
}

/// Works through others: a call of its only tool is a run of the clerk.
fn desk() -> Agent {
    let model = ScriptedModel::replying([
        Reply::call("d", "clerk", json!({"message": "Pay Bob 40 euros."})),
        Reply::text("The clerk says that Bob is paid."),
    ]);
    Agent::new("desk", model).tool(DeclaredTool::agent("clerk", "Has the clerk do something"))
}

fn clerk() -> Agent {
    let model = ScriptedModel::replying([
        Reply::call("t", "transfer", json!({"to": "bob", "euros": 40})),
        Reply::text("Bob is paid."),
    ]);
    let transfer =
        FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), |_: ToolRequest| async {
            json!("sent")
        });
    Agent::new("clerk", model).tool(transfer)
}

/// Held calls of child runs are in the same list as all others. Waits until there is one, and approves it.
async fn approve_the_first(engine: &Engine, tenant: &Tenant) -> Result<(), Box<dyn Error>> {
    let mut changed = engine.approvals_changed();
    let approval = loop {
        if let Some(approval) = engine.pending(tenant).await?.into_iter().next() {
            break approval;
        }
        changed.changed().await?;
    };
    println!("Held: {} {}", approval.decoded()?.tool, approval.arguments().unwrap_or(&Value::Null));
    let way: Vec<String> =
        approval.path.iter().map(|entry| format!("{}, call {}", entry.agent, entry.call)).collect();
    println!("The way to it: {}", way.join(" → "));
    assert_eq!(engine.decide(approval.approve("ann")).await?, Verdict::Accepted);
    println!("Approved.");
    Ok(())
}
