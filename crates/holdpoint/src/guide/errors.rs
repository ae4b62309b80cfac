//! Errors: who says what, and what to do about it.
//!
//! Three things can be wrong, and each has an answer of its own. **You** asked for something that cannot be: a typed
//! refusal, and nothing changed. **The world** is wrong (a disk, a network): an error from whoever met it, retried where
//! that is safe. **We** are wrong, a stored fact that cannot be: the run stops, loudly.
//!
//! | where | type | what to do |
//! |---|---|---|
//! | opening a store | [`SqliteOpenError`](crate::store::SqliteOpenError) | `InUse`: stop the other process. `Unwritable`: let the user write to the file and its folder. `BeingRead`: let the backup end. `Newer`: use the version that wrote it |
//! | starting an engine | [`StartError::Agent`](crate::StartError) | correct the description that it names: a schema, a pattern, a name that is there twice, an agent that is missing |
//! | posting a message | [`PostError::Busy`](crate::PostError::Busy) | wait, or say what should happen: see [`threads`](super::threads) |
//! | | [`PostError::Loosening`](crate::PostError::Loosening) | let somebody ask who may approve ([`Message::may_approve`](crate::Message::may_approve)) |
//! | | [`PostError::KeyUsed`](crate::PostError::KeyUsed) | another message was posted under this key: choose a new one |
//! | | [`PostError::Draining`](crate::PostError::Draining) | post to the engine that takes over |
//! | | the others | correct the message |
//! | deciding | [`Verdict::AlreadyApplied`](crate::decision::Verdict) | nothing: it was accepted before |
//! | | [`Verdict::ToolChanged`](crate::decision::Verdict) | look at the call again: it is held anew |
//! | | [`Verdict::Refused`](crate::decision::Verdict) | show why; its [`Refusal`](crate::decision::Refusal) has the words. Nothing changed |
//! | any read or write | [`StoreError::NotFound`](crate::store::StoreError) | there is no such run for this tenant |
//! | | [`StoreError::Failed`](crate::store::StoreError) | the store is in trouble: `Unavailable` and `Full` may pass, `Corrupt` does not |
//! | | `Fenced`, `Behind`, `Stale` | meant for workers; the engine deals with them |
//! | a finished run | [`Termination::Error`](crate::Termination) | read its code and text: the model failed for good, or a plugin |
//! | a call | `tool.execution_failed` | nothing: the model has read it, and goes on |
//!
//! A verdict is not an error, so `?` alone does not notice a refusal; look at it:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::on(MemoryStore::new())
//! #     .agent(Agent::new("clerk", ScriptedModel::replying([Reply::text("Yes?")])))
//! #     .start()
//! #     .await?;
//! let finished = engine.run(Message::to("clerk", "Hello")).await?;
//! let decision = Decide::approve(&finished.run, &CallId::from("call_1"), "ann");
//! match engine.decide(decision).await? {
//!     Verdict::Accepted | Verdict::AlreadyApplied => println!("It goes on."),
//!     Verdict::ToolChanged => println!("Please look again."),
//!     Verdict::Refused(why) => assert_eq!(why, Refusal::RunOver),
//! }
//!
//! let nobody = engine.run(Message::to("klerk", "Hello")).await;
//! assert_eq!(nobody.map_err(|error| error.to_string()), Err("there is no agent klerk".into()));
//! # Ok(())
//! # }
//! ```
//!
//! What an operator should know is said through `tracing`; install a subscriber to see it.
