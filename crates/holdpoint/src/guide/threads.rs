//! Threads: conversations of more than one message, tenants, and what happens when a thread is busy.
//!
//! A message without a thread starts a new one. To continue a thread, name it:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clerk = Agent::new("clerk", ScriptedModel::replying([Reply::text("Yes?")]));
//! # let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//! let first = engine.run(Message::to("clerk", "Hello")).await?;
//! let second = engine.run(Message::to("clerk", "It is me again").on_thread(first.thread.clone())).await?;
//! assert_eq!(first.thread, second.thread);
//! assert_ne!(first.run, second.run);
//! # Ok(())
//! # }
//! ```
//!
//! Each message starts a run, and one run at a time works on a thread. If another run is active, the message is refused
//! with [`PostError::Busy`](crate::PostError::Busy), unless the message itself
//! ([`Message::if_busy`](crate::Message::if_busy)) or the agent's [`Policy`](crate::agent::Policy) says otherwise.
//!
//! | the thread's run | field of the policy | choices |
//! |---|---|---|
//! | executes, or is queued | [`on_busy`](crate::agent::OnBusy) | `Reject`, `Enqueue`, `Interrupt` |
//! | only waits | [`while_waiting`](crate::agent::WhileWaiting) | `Reject`, `Supersede`, `Enqueue` |
//!
//! `Interrupt` and `Supersede` replace every unended run of the thread, including queued ones: of several such messages
//! the last one runs.
//!
//! [`Message::on_thread`](crate::Message::on_thread) creates the thread if it does not exist;
//! [`Message::on_existing_thread`](crate::Message::on_existing_thread) refuses the message instead.
//!
//! [`Engine::interrupt`](crate::Engine::interrupt) ends a run without waiting for anything.
//!
//! # Tenants
//!
//! Everything belongs to a [`Tenant`](crate::id::Tenant), and no tenant ever sees another's data. A program with a
//! single tenant uses `Tenant::default()` throughout, which is also the default of [`Message::to`](crate::Message::to).
//! With several tenants, add `.for_tenant(tenant)` to messages; a decision made from an entry of a list has the tenant
//! of the list.
//!
//! # When a run stops by itself
//!
//! By default an agent stops after 25 rounds. [`Agent::stop_when`](crate::agent::Agent::stop_when) replaces that:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let look = FunctionTool::new(ToolDefinition::new("look", "Looks").read(), |_: ToolRequest| async { json!("dark") });
//! # let model = ScriptedModel::replying([Reply::call("", "look", json!({}))]);
//! let clerk = Agent::new("clerk", model).tool(look).stop_when([
//!     StopCondition::TokenBudget { max_total: 100_000 },
//!     StopCondition::MaxRounds { rounds: 3 },
//! ]);
//! let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//! let finished = engine.run(Message::to("clerk", "Look until you see something.")).await?;
//! assert!(matches!(finished.outcome, RunOutcome::Ended(Termination::Stopped(_))));
//! # Ok(())
//! # }
//! ```
