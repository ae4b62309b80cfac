//! Plugins: your own code between the phases of a run.
//!
//! The engine calls a plugin at the phases it subscribes to, passes it the state of the run
//! ([`HookContext`](crate::plugin::HookContext)), and gets back [`Action`](crate::plugin::Action)s. A plugin changes
//! nothing itself: its answers are data, stored in the log before they take effect. A stored answer is not
//! requested again.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let office_hours = FunctionPlugin::new("office_hours", [Phase::BeforeToolExecute], |context: HookContext| async move {
//!     let Subject::BeforeToolExecute { tool, .. } = &context.subject else { return Ok(vec![]) };
//!     Ok(match tool.as_str() {
//!         "transfer" => vec![Action::Suspend(SuspendRequest::approval("The bank is closed. Pay anyway?"))],
//!         "wipe" => vec![Action::Block { reason: "wiping is not allowed".into() }],
//!         _ => vec![],
//!     })
//! });
//! # let transfer = FunctionTool::new(
//! #     ToolDefinition::new("transfer", "Moves money").approval(Approval::Never),
//! #     |_: ToolRequest| async { json!("sent") },
//! # );
//! # let model = ScriptedModel::replying([Reply::call("t", "transfer", json!({})), Reply::text("Paid.")]);
//! let clerk = Agent::new("clerk", model).tool(transfer).plugin(office_hours);
//! # let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//! # let held = engine.run(Message::to("clerk", "Pay Bob.")).await?;
//! let [approval] = &engine.pending(&Tenant::default()).await?[..] else { panic!("one call is held") };
//! assert_eq!(approval.decoded()?.question.as_deref(), Some("The bank is closed. Pay anyway?"));
//! # assert_eq!(engine.decide(approval.approve("ann")).await?, Verdict::Accepted);
//! # assert_eq!(engine.wait_until_ended(&Tenant::default(), &held.run).await?.text, "Paid.");
//! # Ok(())
//! # }
//! ```
//!
//! A plugin that has state in memory or configuration implements [`Plugin`](crate::plugin::Plugin) itself. State that
//! must survive a crash is saved with `SetState`, for the run or for the thread, and read with
//! [`HookContext::state_of`](crate::plugin::HookContext::state_of). The plugins of a run are called one at a time, in
//! the model's order of calls, and each call sees the state that earlier ones saved. So a plugin that counts outgoing
//! calls counts correctly, even if one answer asks for many calls that then run in parallel.
//!
//! | phase | may answer | if the hook fails, panics or times out |
//! |---|---|---|
//! | `RunStart` | `End` | the run ends with an error |
//! | `StepStart`, `BeforeInference` | `AddInstruction`, `HideTool`, `SetParam`, `ReplaceMessage`, `SkipInference` | the run ends with an error |
//! | `AfterInference` | `DropCall`, `SetArguments`, `End` | the run ends with an error |
//! | `BeforeToolExecute` | `Block`, `Suspend`, `SetResult` | the call fails and never runs |
//! | `AfterToolExecute` | `AddNote` | the failure is recorded, the run continues |
//! | `StepEnd` | `End` | the failure is recorded, the run continues |
//! | `RunEnd` | | the failure is recorded, the run ends |
//!
//! `AfterToolExecute` receives the call's arguments and its outcome ([`CallResult`](crate::plugin::CallResult)): the
//! result, the error, or who denied it. `ReplaceMessage` takes the id of any message of the thread, including results
//! and notes; the hook fails if the thread has no message with that id. A run that is interrupted, superseded or ended
//! by its parent waits for no plugin: `RunEnd` is called once after the run has ended, and its answer is not stored.
//!
//! `SetState` is allowed in every phase; any other action outside of its phases is a failure of the hook. Plugins
//! answer in the order of registration. If several answer about one call, `Block` beats `Suspend`, which beats
//! `SetResult`; among equals the first counts.
//!
//! An approved call passes `BeforeToolExecute` again, so that edited arguments are checked as well. A `Suspend` from
//! the plugin that held the call before is ignored this time. Every plugin sees that this is a revisit, and with which
//! approval ([`GateRevisit`](crate::plugin::GateRevisit)). After `AfterInference` no plugin can change arguments: what
//! was checked is what runs.
