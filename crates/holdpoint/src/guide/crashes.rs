//! Crashes: what happens when a process dies, and how another one continues.
//!
//! You do not have to do anything. Open the same store with the same agents and start an engine: it finds the
//! unfinished runs and continues them. Runs that only wait are not even loaded; they resume when a decision arrives.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # use std::time::Duration;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("holdpoint-crashes-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("runs.db");
//! fn clerk() -> Agent {
//!     let transfer = FunctionTool::new(
//!         ToolDefinition::new("transfer", "Moves money"),
//!         |_: ToolRequest| async { json!("sent") },
//!     );
//!     let model = ScriptedModel::replying([
//!         Reply::call("call_1", "transfer", json!({"to": "bob", "euros": 40})),
//!         Reply::text("Bob has his money."),
//!     ]);
//!     Agent::new("clerk", model).tool(transfer)
//! }
//!
//! // Monday.
//! let store = SqliteStore::open(&path)?;
//! let engine = Engine::on(store).agent(clerk()).start().await?;
//! let held = engine.run(Message::to("clerk", "Pay Bob 40 euros.")).await?;
//! engine.close(Duration::from_secs(5)).await;
//!
//! // Friday, in a process that knows nothing but the file.
//! let store = SqliteStore::open(&path)?;
//! let engine = Engine::on(store).agent(clerk()).start().await?;
//! let [approval] = &engine.pending(&Tenant::default()).await?[..] else { panic!("one call is held") };
//! assert_eq!(engine.decide(approval.approve("ann")).await?, Verdict::Accepted);
//! let finished = engine.wait_until_ended(&Tenant::default(), &held.run).await?;
//! assert_eq!(finished.text, "Bob has his money.");
//! # engine.close(Duration::from_secs(5)).await;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! The example `continued` does the same without closing the engine: it kills its processes with SIGKILL, while calls
//! are held and while tools run.
//!
//! # What is repeated, and what is not
//!
//! | when the process died | afterwards |
//! |---|---|
//! | while a call was held | it is still held, with the same question |
//! | after a decision was accepted | the decision is carried out |
//! | before the start of a call was stored | the call is executed, once |
//! | after that, for a `read` or `idempotent` tool | another attempt, with the same key |
//! | after that, for a tool with side effects | the call is *in doubt*: a person is asked, nothing is repeated |
//! | after the result was stored | nothing to do: the result is stored |
//! | while the model was answering | the model is called again |
//! | while a plugin hook was running | the hook is called again, unless its answer was stored |
//!
//! # A call in doubt
//!
//! It appears in the list of approvals with the kind [`InDoubt`](crate::decision::SuspensionKind::InDoubt). A person
//! checks whether the call took effect and answers: `result(by, value)` if it happened and this is its result;
//! `approve(by)` if it did not happen and should be retried; `reject(by, reason)` if it cannot be determined and must
//! not be retried. If the lost attempt reports its outcome after all, that settles the call too.
//!
//! # Agents that changed meanwhile
//!
//! A run is pinned to one revision of its agent: instructions, policy, rules, and what the model is shown of the
//! tools. Tool bodies, models and plugins are looked up by name when they are needed. If a tool is missing, its calls
//! fail. If its description, schema or effect class has changed, its approvals are void and the call
//! is held again. A missing plugin counts as one that failed. A run whose model is missing ends with an error, so keep
//! an agent for as long as it has open runs.
//!
//! # Several processes
//!
//! A SQLite file belongs to one process at a time; a second process gets an error that the file is in use. Processes
//! that work on the same runs at the same time need the PostgreSQL store (feature `postgres`).
