//! The smallest agent: one model, one tool, one question. It prints:
//!
//! ```text
//! The agent called balance with {"account":"ann"}.
//! The agent said: Ann has 250 euros.
//! ```

use std::error::Error;

use holdpoint::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A tool is a definition, which the model and people see, and a function.
    let balance = FunctionTool::new(
        ToolDefinition::new("balance", "How much money is in an account")
            .parameters(json!({
                "type": "object",
                "required": ["account"],
                "properties": {"account": {"type": "string"}}
            }))
            // It changes nothing, so it is never held.
            .read(),
        |request: ToolRequest| async move {
            println!("The agent called {} with {}.", request.tool, request.arguments);
            json!({"euros": 250})
        },
    );

    // A scripted model gives the answers listed here. A model that calls a provider implements the trait `Model`.
    let model = ScriptedModel::replying([
        Reply::call("call_1", "balance", json!({"account": "ann"})),
        Reply::text("Ann has 250 euros."),
    ]);

    let agent = Agent::new("clerk", model).instructions("You work in a bank.").tool(balance);
    let engine = Engine::on(MemoryStore::new()).agent(agent).start().await?;

    let finished = engine.run(Message::to("clerk", "How much does Ann have?")).await?;
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    println!("The agent said: {}", finished.text);
    Ok(())
}
