//! Children: agents that delegate to agents.
//!
//! An agent can call another agent as a tool. Each such call is a run with its own thread, created in the same commit
//! as the call. The child's answer is the call's result.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let transfer =
//! #     FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), |_: ToolRequest| async { json!("sent") });
//! # let clerks = ScriptedModel::replying([Reply::call("t", "transfer", json!({"to": "bob"})), Reply::text("Bob is paid.")]);
//! # let desks = ScriptedModel::replying([
//! #     Reply::call("d", "clerk", json!({"message": "Pay Bob."})),
//! #     Reply::text("The clerk has paid Bob."),
//! # ]);
//! let desk = Agent::new("desk", desks).tool(DeclaredTool::agent("clerk", "Has the clerk do something"));
//! let clerk = Agent::new("clerk", clerks).tool(transfer);
//! let engine = Engine::on(MemoryStore::new()).agent(desk).agent(clerk).start().await?;
//! let tenant = Tenant::default();
//!
//! let mut changed = engine.approvals_changed();
//! let posted = engine.post(Message::to("desk", "See to it that Bob is paid.")).await?;
//! while engine.pending(&tenant).await?.is_empty() {
//!     changed.changed().await?;
//! }
//! let [approval] = &engine.pending(&tenant).await?[..] else { panic!("the clerk's call is held") };
//! let way: Vec<String> = approval.path.iter().map(|entry| format!("{}/{}", entry.agent, entry.call)).collect();
//! assert_eq!(way, ["desk/d", "clerk/t"]);
//! assert_eq!(engine.decide(approval.approve("ann")).await?, Verdict::Accepted);
//!
//! assert_eq!(engine.wait_until_ended(&tenant, &posted.run).await?.text, "The clerk has paid Bob.");
//! # Ok(())
//! # }
//! ```
//!
//! - The child reads the call's argument `message`. If there is none, it reads all arguments.
//! - A child is a run like any other. The event `child.started` in its parent's log names it.
//! - Held calls of children appear in the same list as all others, with the path to them
//!   ([`SuspensionView::path`](crate::decision::SuspensionView::path)).
//! - A child asks about at least as many calls as its parent, so a run with a tightened policy cannot get around it by
//!   delegating.
//! - Interrupting a run interrupts its children.
//! - Depth and number are bounded by [`Limits`](crate::agent::Limits): by default four levels and sixteen open
//!   children. [`Performer::Agent`](crate::tool::Performer) grants the child a token budget, and unused tokens return
//!   to the parent.
