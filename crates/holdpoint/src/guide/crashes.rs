//! Crashes: what happens when a process dies, and how another one goes on.
//!
//! There is nothing to do. Open the same store with the same agents and start an engine: it finds what was left behind
//! and goes on with it. Runs that only wait are not even loaded; they go on when somebody decides.
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
//! The example `continued` does the same without the courtesy of closing: its processes are killed with SIGKILL, while
//! calls are held and while tools run.
//!
//! # What is repeated, and what is not
//!
//! | when the process died | afterwards |
//! |---|---|
//! | while a call was held | it is held, with the same question |
//! | after an accepted decision | the decision is carried out |
//! | before the start of a call was stored | the call is carried out, once |
//! | after that, a `read` or `idempotent` tool | another attempt, with the same key |
//! | after that, a tool with an effect | the call is *in doubt*: a person is asked, nothing is repeated |
//! | after the result was stored | nothing: the result is there |
//! | while the model answered | the model is called again |
//! | while a plugin was asked | it is asked again, unless its answer was stored |
//!
//! # A call in doubt
//!
//! It stands in the list of approvals with the kind [`InDoubt`](crate::decision::SuspensionKind::InDoubt). Somebody looks
//! at the world and answers: `result(by, value)`, it happened and this is its result; `approve(by)`, it did not happen, try
//! again; `reject(by, reason)`, nobody knows, and nobody tries again. If the lost attempt answers after all, that settles
//! it too.
//!
//! # Agents that changed meanwhile
//!
//! A run is pinned to its agent as it was: instructions, policy, rules and what the model is shown of the tools. Bodies of
//! tools, models and plugins are looked up by name when they are needed. If a tool is gone, its calls fail; if its
//! description, schema or effect changed, approvals of it are void and the call is held again. A plugin that is gone counts
//! as one that failed, and without its model a run ends with an error: keep an agent as long as runs of it are open.
//!
//! # Several processes
//!
//! A SQLite file belongs to one process at a time; a second one is told that it is in use. Processes that work on the same
//! runs at the same time need a store made for that, which does not exist yet.
