//! Errors: which type reports what, and what to do about it.
//!
//! There are three kinds of errors. **Your request** is impossible: you get a typed refusal, and nothing has changed.
//! **The environment** fails (a disk, a network): the component that met the failure returns an error, and retries
//! where that is safe. **Holdpoint** has a bug and a stored fact is impossible: the run halts and logs an error.
//!
//! | where | type | what to do |
//! |---|---|---|
//! | opening a store | [`SqliteOpenError`](crate::store::SqliteOpenError) | `InUse`: stop the other process. `Unwritable`: let the user write to the file and its folder. `BeingRead`: let the backup end. `Newer`: use the version that wrote it |
//! | starting an engine | [`StartError::Agent`](crate::StartError) | correct the description that it names: an invalid schema or pattern, a duplicate name, a missing agent |
//! | posting a message | [`PostError::Busy`](crate::PostError::Busy) | wait, or say what should happen: see [`threads`](super::threads) |
//! | | [`PostError::Loosening`](crate::PostError::Loosening) | have the message posted by a caller who may approve ([`Message::may_approve`](crate::Message::may_approve)) |
//! | | [`PostError::KeyUsed`](crate::PostError::KeyUsed) | another message was posted under this key: choose a new one |
//! | | [`PostError::Draining`](crate::PostError::Draining) | post to the engine that takes over |
//! | | the others | correct the message |
//! | deciding | [`Verdict::AlreadyApplied`](crate::decision::Verdict) | nothing: the decision was accepted before |
//! | | [`Verdict::ToolChanged`](crate::decision::Verdict) | look at the call again: it is held again |
//! | | [`Verdict::Refused`](crate::decision::Verdict) | show the reason, which is in its [`Refusal`](crate::decision::Refusal). Nothing changed |
//! | any read or write | [`StoreError::NotFound`](crate::store::StoreError) | this tenant has no such run |
//! | | [`StoreError::Failed`](crate::store::StoreError) | the store has a problem: `Unavailable` and `Full` may pass, `Corrupt` does not |
//! | | `Fenced`, `Behind`, `Stale` | meant for workers; the engine handles them |
//! | a finished run | [`Termination::Error`](crate::Termination) | read its code and text: the model failed permanently, or a plugin failed |
//! | a call | `tool.execution_failed` | nothing: the model reads the error and continues |
//!
//! A verdict is not an error, so `?` by itself does not catch a refusal. Check the verdict:
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
//!     Verdict::Accepted | Verdict::AlreadyApplied => println!("It continues."),
//!     Verdict::ToolChanged => println!("Please look again."),
//!     Verdict::Refused(why) => assert_eq!(why, Refusal::UnknownCall),
//! }
//!
//! let unknown = engine.run(Message::to("klerk", "Hello")).await;
//! assert_eq!(unknown.map_err(|error| error.to_string()), Err("there is no agent klerk".into()));
//! # Ok(())
//! # }
//! ```
//!
//! The engine reports everything an operator should know through `tracing`. Install a subscriber to see it.
