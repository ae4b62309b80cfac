//! Tools: what a tool receives, what it may answer, and what its effect class decides.
//!
//! A tool is a [`ToolDefinition`](crate::tool::ToolDefinition), which the model and the approver see, and a body.
//! [`FunctionTool`](crate::tool::FunctionTool) makes one from a function; anything else implements
//! [`Tool`](crate::tool::Tool). The arguments are checked against the schema before the body is called.
//!
//! ```
//! # use holdpoint::prelude::*;
//! let divide = FunctionTool::new(
//!     ToolDefinition::new("divide", "Divides one number by another")
//!         .parameters(json!({
//!             "type": "object",
//!             "required": ["a", "b"],
//!             "properties": {"a": {"type": "number"}, "b": {"type": "number"}}
//!         }))
//!         .read(),
//!     |request: ToolRequest| async move {
//!         let a = request.arguments["a"].as_f64().ok_or("a is no number")?;
//!         match request.arguments["b"].as_f64() {
//!             // An error is an answer: the model reads it, and the call has failed.
//!             Some(0.0) | None => Err("cannot divide by that"),
//!             Some(b) => Ok(json!(a / b)),
//!         }
//!     },
//! );
//! assert_eq!(divide.definition().effect, EffectClass::Read);
//! ```
//!
//! With `serde`, [`ToolRequest::parse`](crate::tool::ToolRequest::parse) converts the arguments into your own type.
//!
//! # The effect class decides what a crash means
//!
//! Before a body is called, the intent to call it is stored. If the process dies before the answer is stored, it is
//! unknown whether the call took effect. The tool's effect class decides what happens then:
//!
//! | class | made with | held by default | if the outcome is unknown |
//! |---|---|---|---|
//! | [`Read`](crate::tool::EffectClass::Read) | `.read()` | no | retried |
//! | [`Idempotent`](crate::tool::EffectClass::Idempotent) | `.idempotent()` | no | retried with the same key |
//! | [`Write`](crate::tool::EffectClass::Write) | the default | yes | *in doubt*: a person says what happened |
//!
//! **Pass the key on.** [`ToolRequest::idempotency_key`](crate::tool::ToolRequest::idempotency_key) is the same across
//! retries, take-overs and repeats after doubt. Declare a tool idempotent only if the service it calls acts once per
//! key.
//!
//! # Three outcomes
//!
//! A function that returns a [`Value`](serde_json::Value), or a `Result` of one, has *answered*. A tool that uses a
//! network has two more outcomes: [`Outcome::NotSent`](crate::tool::Outcome::NotSent) means that nothing left this
//! machine, and [`Outcome::Unknown`](crate::tool::Outcome::Unknown) means that the call may or may not have happened.
//! An attempt that exceeds [`ToolDefinition::timeout`](crate::tool::ToolDefinition::timeout), 30 seconds by default,
//! has an unknown outcome, and so has a panic in a tool with side effects.
//!
//! ```
//! # use holdpoint::prelude::*;
//! use holdpoint::tool::IntoOutcome;
//!
//! # async fn send(_: &str) -> Result<Value, std::io::Error> { Ok(json!("sent")) }
//! let pay = FunctionTool::new(
//!     ToolDefinition::new("pay", "Pays a bill").timeout(std::time::Duration::from_secs(90)),
//!     |request: ToolRequest| async move {
//!         // `send` is your client: the key goes out with the request.
//!         match send(&request.idempotency_key).await {
//!             Ok(receipt) => receipt.into_outcome(),
//!             Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
//!                 Outcome::NotSent { why: error.to_string(), retry_after_ms: None }
//!             }
//!             Err(error) => Outcome::Unknown { why: error.to_string(), retry_after_ms: None },
//!         }
//!     },
//! );
//! # let _ = pay.definition();
//! ```
//!
//! # Tools that ask, and tools performed elsewhere
//!
//! A body may answer [`ToolAnswer::Pending`](crate::tool::ToolAnswer::Pending) with a
//! [`SuspendRequest`](crate::tool::SuspendRequest): the call is held with that question, and the person's answer is its
//! result.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ask = FunctionTool::new(
//!     ToolDefinition::new("ask_user", "Asks the user something").read(),
//!     |request: ToolRequest| async move {
//!         let question = request.arguments["question"].as_str().unwrap_or("Yes?");
//!         ToolAnswer::Pending(SuspendRequest::question(question).schema(json!({"type": "string"})))
//!     },
//! );
//! # let model = ScriptedModel::replying([
//! #     Reply::call("q", "ask_user", json!({"question": "Which colour?"})),
//! #     Reply::text("Blue it is."),
//! # ]);
//! # let engine = Engine::on(MemoryStore::new()).agent(Agent::new("clerk", model).tool(ask)).start().await?;
//! # let held = engine.run(Message::to("clerk", "Paint it.")).await?;
//! let [asked] = &engine.pending(&Tenant::default()).await?[..] else { panic!("the user is asked") };
//! assert_eq!(asked.decoded()?.question.as_deref(), Some("Which colour?"));
//! // What does not fit the schema is no answer, and the call stays held.
//! assert!(matches!(engine.decide(asked.result("ann", json!(7))).await?, Verdict::Refused(Refusal::Invalid(_))));
//! assert_eq!(engine.decide(asked.result("ann", json!("blue"))).await?, Verdict::Accepted);
//! # assert_eq!(engine.wait_until_ended(&Tenant::default(), &held.run).await?.text, "Blue it is.");
//! # Ok(())
//! # }
//! ```
//!
//! With [`ResumeMode::ReplayToolCall`](crate::tool::ResumeMode::ReplayToolCall) the body is called again instead. It
//! finds the answer, and the state it saved for itself, in [`ToolRequest::resume`](crate::tool::ToolRequest::resume).
//!
//! A [`DeclaredTool`](crate::tool::DeclaredTool) has no body: the front end
//! ([`Performer::Client`](crate::tool::Performer)) or another system (`Performer::External`) performs the call and
//! reports its result with [`Decide::result`](crate::decision::Decide::result). A front end may also send such tools
//! with a message, in `Message::tools`: they are available only to the run that the message starts.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let measure = ToolDefinition::new("measure", "Measures the room").performed_by(Performer::External);
//! # let model = ScriptedModel::replying([Reply::call("m", "measure", json!({})), Reply::text("It is 20 degrees.")]);
//! let clerk = Agent::new("clerk", model).tool(DeclaredTool::new(measure));
//! let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//!
//! let held = engine.run(Message::to("clerk", "How warm is it?")).await?;
//! let RunOutcome::Suspended(pending) = &held.outcome else { panic!("{held:?}") };
//! assert_eq!(pending[0].kind, SuspensionKind::External);
//! // No person has to answer it, so it is not in the list; the service that measures knows the run and the call.
//! assert_eq!(engine.pending(&Tenant::default()).await?, []);
//! let measured = Decide::result(&held.run, &pending[0].call_id, "sensor", json!({"degrees": 20}));
//! assert_eq!(engine.decide(measured).await?, Verdict::Accepted);
//! # assert_eq!(engine.wait_until_ended(&Tenant::default(), &held.run).await?.text, "It is 20 degrees.");
//! # Ok(())
//! # }
//! ```
//!
//! # Stopping
//!
//! [`ToolRequest::cancelled`](crate::tool::ToolRequest::cancelled) fires when the answer is no longer needed: the run
//! was interrupted or has ended. The run does not wait for a tool that ignores it.
