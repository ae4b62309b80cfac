//! Approvals: which calls are held, how to answer them, and what each answer means.
//!
//! # Which calls are held
//!
//! Four things can hold a call. The model cannot talk its way past any of them:
//!
//! 1. **The tool.** [`ToolDefinition::new`](crate::tool::ToolDefinition::new) describes a tool with side effects, so
//!    its calls are held. `.read()` and `.idempotent()` lift that. `.approval(Approval::Ask)` restores it, and
//!    `.approval(Approval::Block)` fails every call.
//! 2. **A rule of the agent** that tests the arguments. It overrides the tool's own setting. If several rules match,
//!    the strictest wins.
//! 3. **The policy**: [`ApprovalScope`](crate::agent::ApprovalScope) can hold every call of tools with side effects, or
//!    every call of all tools.
//! 4. **A plugin**: see [`plugins`](super::plugins).
//!
//! Calls with invalid arguments and calls of unknown or blocked tools fail before an approver is asked.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transfer = FunctionTool::new(
//!     ToolDefinition::new("transfer", "Moves money"),
//!     |_: ToolRequest| async { json!("sent") },
//! );
//! let model = ScriptedModel::replying([
//!     Reply::call("small", "transfer", json!({"to": {"name": "bob"}, "euros": 40}))
//!         .and_call("large", "transfer", json!({"to": {"name": "bob"}, "euros": 4000}))
//!         .and_call("wrong", "transfer", json!({"to": {"name": "eve"}, "euros": 1})),
//!     Reply::text("Done."),
//! ]);
//! let clerk = Agent::new("clerk", model)
//!     .tool(transfer)
//!     .rule(Rule::allow("transfer").when("euros", ArgumentTest::Gte(0.0)).when("euros", ArgumentTest::Lte(100.0)))
//!     .rule(Rule::deny("transfer").when("to.name", ArgumentTest::Eq(json!("eve"))));
//! let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//!
//! let finished = engine.run(Message::to("clerk", "Pay them all.")).await?;
//! let RunOutcome::Suspended(pending) = &finished.outcome else { panic!("{finished:?}") };
//! let held: Vec<&str> = pending.iter().map(|held| held.call_id.as_str()).collect();
//! assert_eq!(held, ["large"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Listing and answering held calls
//!
//! [`Engine::pending`](crate::Engine::pending) lists the calls that wait for a person, oldest first, including those of
//! child runs. [`Engine::approvals`](crate::Engine::approvals) does the same with pages and a filter. Each entry is a
//! [`SuspensionView`](crate::decision::SuspensionView) with the final arguments, the question, and who asks.
//!
//! A decision made from an entry answers exactly that question. It never answers a later question about the same call.
//! [`Decide::approve`](crate::decision::Decide::approve) and its siblings, made from a run and a call, answer whatever
//! is open when they arrive, except a call in doubt. A call in doubt is answered only from its entry or with
//! `.on(suspension)`, so that a decision that is resent after a crash never repeats a write. These decisions apply to
//! the default tenant unless you add `.for_tenant(tenant)`.
//!
//! | answer | an approval | a question, or a tool performed elsewhere | a call in doubt |
//! |---|---|---|---|
//! | `approve(by)` | the call runs as shown | invalid, unless answering runs the tool again | the call is retried with the same key |
//! | `approve(by).with_arguments(value)` | the call runs with these arguments, after rules and plugins have checked them again | invalid | invalid |
//! | `result(by, value)` | invalid; only `true` means yes | the value is the result | the value is the result; nothing runs |
//! | `reject(by, reason)` | the call is cancelled and the model is informed | the call is cancelled | the call is not retried; the model reads that it may have happened |
//!
//! An invalid answer is refused as [`Refusal::Invalid`](crate::decision::Refusal::Invalid), and the call stays held: a
//! malformed yes is not a yes.
//!
//! # What a verdict means
//!
//! [`Engine::decide`](crate::Engine::decide) returns after the decision is stored. `Accepted` is final: the run will
//! process the decision, whatever happens to this process. Each question takes one answer, so if two people decide at
//! once, one of them gets `Refused(Answered)`. Give a decision an id and you can resend it as often as you like:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let definition = ToolDefinition::new("transfer", "Moves money");
//! # let transfer = FunctionTool::new(definition, |request: ToolRequest| async move { (*request.arguments).clone() });
//! # let model = ScriptedModel::replying([
//! #     Reply::call("call_1", "transfer", json!({"to": "bob", "euros": 4000})),
//! #     Reply::text("Done."),
//! # ]);
//! # let engine = Engine::on(MemoryStore::new()).agent(Agent::new("clerk", model).tool(transfer)).start().await?;
//! # let held = engine.run(Message::to("clerk", "Pay Bob.")).await?;
//! let tenant = Tenant::default();
//! let [approval] = &engine.pending(&tenant).await?[..] else { panic!("one call is held") };
//!
//! let less = approval.approve("ann").with_arguments(json!({"to": "bob", "euros": 400})).with_id("form-17");
//! assert_eq!(engine.decide(less.clone()).await?, Verdict::Accepted);
//! // The browser sent it twice.
//! assert_eq!(engine.decide(less).await?, Verdict::AlreadyApplied);
//! // Joe was looking at the same list.
//! let late = engine.decide(approval.reject("joe", "too much")).await?;
//! assert!(matches!(late, Verdict::Refused(_)), "{late}");
//! # assert_eq!(engine.wait_until_ended(&tenant, &held.run).await?.text, "Done.");
//! # Ok(())
//! # }
//! ```
//!
//! An approval is bound to the arguments and the tool definition that were shown. If the tool's description, schema or
//! effect class has changed since, the verdict is [`ToolChanged`](crate::decision::Verdict::ToolChanged): the approval
//! has no effect, and the call is held again.
//!
//! # From another task
//!
//! An [`Engine`](crate::Engine) is a handle: clone it into every task that decides. Decisions do not wait for each
//! other; the example `approval` shows a call that is approved and executed while its sibling is still running. An
//! inbox for all runs reads the list again whenever [`Engine::approvals_changed`](crate::Engine::approvals_changed)
//! signals a change:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let transfer =
//! #     FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), |_: ToolRequest| async { json!("sent") });
//! # let model = ScriptedModel::replying([
//! #     Reply::call("call_1", "transfer", json!({"to": "bob", "euros": 40})),
//! #     Reply::text("I have not paid anyone."),
//! # ]);
//! # let engine = Engine::on(MemoryStore::new()).agent(Agent::new("clerk", model).tool(transfer)).start().await?;
//! let inbox = engine.clone();
//! let ann = tokio::spawn(async move {
//!     let mut changed = inbox.approvals_changed();
//!     loop {
//!         // List first, then wait: an approval that was already pending is not missed.
//!         if let Some(approval) = inbox.pending(&Tenant::default()).await?.first() {
//!             return inbox.decide(approval.reject("ann", "not before Monday")).await;
//!         }
//!         if changed.changed().await.is_err() {
//!             return Err(StoreError::NotFound);
//!         }
//!     }
//! });
//!
//! let posted = engine.post(Message::to("clerk", "Pay Bob.")).await?;
//! assert_eq!(ann.await??, Verdict::Accepted);
//! let finished = engine.wait_until_ended(&Tenant::default(), &posted.run).await?;
//! assert_eq!(finished.text, "I have not paid anyone.");
//! # Ok(())
//! # }
//! ```
//!
//! If many runs wait, [`Engine::approval_feed`](crate::Engine::approval_feed) names the runs of one tenant to look at.
//!
//! A subscriber to one run finds the same information in its events: `tool.approval_requested` carries the call, the
//! arguments and the suspension id, which is all that a [`Decide`](crate::decision::Decide) needs.
//!
//! # If no answer comes
//!
//! A missing answer never causes anything to run. Without an expiry a call is held forever, at no cost. With
//! [`ToolDefinition::expires_in`](crate::tool::ToolDefinition::expires_in) the call is denied, or the run ends, when
//! the time is up. What counts is when the decision was accepted, not when the run processed it. A test does not have
//! to wait for the expiry:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # use std::{sync::Arc, time::Duration};
//! use holdpoint::clock::{Clock, RuntimeClock, Timestamp};
//!
//! // With tokio's feature `test-util`: its clock is paused, and jumps when nothing is left to do but wait.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let definition =
//!         ToolDefinition::new("transfer", "Moves money").expires_in(Duration::from_secs(3_600), OnExpiry::Deny);
//!     # let transfer = FunctionTool::new(definition, |_: ToolRequest| async { json!("sent") });
//!     # let model = ScriptedModel::replying([
//!     #     Reply::call("call_1", "transfer", json!({"to": "bob"})),
//!     #     Reply::text("No approver answered."),
//!     # ]);
//!     # let clerk = Agent::new("clerk", model).tool(transfer);
//!     let clock = RuntimeClock::starting_at(Timestamp(1_000));
//!     let store = MemoryStore::with_clock(Arc::new(move || clock.now()));
//!     let engine = Engine::on(store).clock(clock).agent(clerk).start().await?;
//!
//!     let held = engine.run(Message::to("clerk", "Pay Bob.")).await?;
//!     let finished = engine.wait_until_ended(&Tenant::default(), &held.run).await?;
//!     assert_eq!(finished.text, "No approver answered.");
//!     assert!(clock.now() >= Timestamp(3_601_000));
//!     Ok(())
//! }
//! ```
