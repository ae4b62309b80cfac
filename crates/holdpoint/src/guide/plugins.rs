//! Plugins: code of your own between the phases of a run.
//!
//! A plugin is asked at the phases it subscribes to, is told where the run stands ([`HookContext`](crate::plugin::HookContext)),
//! and answers with [`Action`](crate::plugin::Action)s. It changes nothing itself: its answers are data, stored in the log
//! before they count, and asked for once.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let office_hours = FunctionPlugin::new("office_hours", [Phase::BeforeToolExecute], |context: HookContext| async move {
//!     let Subject::BeforeToolExecute { tool, .. } = &context.subject else { return Ok(vec![]) };
//!     Ok(match tool.as_str() {
//!         "transfer" => vec![Action::Suspend(SuspendRequest::approval("The bank is closed. Pay anyway?"))],
//!         "wipe" => vec![Action::Block { reason: "nobody wipes anything here".into() }],
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
//! A plugin with state in memory, or one that is configured, implements [`Plugin`](crate::plugin::Plugin) itself. What has
//! to survive a crash it keeps with `SetState`, for the run or for the thread, and reads with
//! [`HookContext::state_of`](crate::plugin::HookContext::state_of). The plugins of a run are asked one at a time, in the model's order of
//! calls, and each is asked with what the ones before have kept: a plugin that counts what goes out counts right, also where
//! one answer asks for many calls that then run beside each other.
//!
//! | phase | may answer | if the hook fails, panics or is late |
//! |---|---|---|
//! | `RunStart` | `End` | the run ends with an error |
//! | `StepStart`, `BeforeInference` | `AddInstruction`, `HideTool`, `SetParam`, `ReplaceMessage`, `SkipInference` | the run ends with an error |
//! | `AfterInference` | `DropCall`, `SetArguments`, `End` | the run ends with an error |
//! | `BeforeToolExecute` | `Block`, `Suspend`, `SetResult` | the call fails and never runs |
//! | `AfterToolExecute` | `AddNote` | it is recorded, the run goes on |
//! | `StepEnd` | `End` | it is recorded, the run goes on |
//! | `RunEnd` | | it is recorded, the run ends |
//!
//! After a call `AfterToolExecute` is told its arguments and what became of it ([`CallResult`](crate::plugin::CallResult)): the
//! result, the error, who said no. `ReplaceMessage` takes the id of any message of the thread, a result or a note as well; for an
//! id that the thread does not have the hook fails. A run that is interrupted, superseded or ended by its parent waits for no
//! plugin: `RunEnd` is asked once behind its end, and what is then answered is not stored.
//!
//! `SetState` is allowed everywhere; an action outside of its phases is a failure of the hook. Plugins answer in the order
//! of registration. Of what they say about one call, `Block` beats `Suspend` beats `SetResult`, and among equals the first
//! counts.
//!
//! An approved call passes `BeforeToolExecute` again, so that edited arguments are judged as well; the plugin that had
//! asked is not heard asking again, and each is told that the call comes again, with the approval that it has
//! ([`GateRevisit`](crate::plugin::GateRevisit)). After `AfterInference` nobody changes arguments: what was judged is what runs.
