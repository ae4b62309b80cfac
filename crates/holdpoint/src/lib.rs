//! Holdpoint runs AI agents durably. Any tool call can wait for a person's approval. The run continues after the
//! decision, even a week later, in another process or after a crash. No decision is lost, and no effect is repeated.
//!
//! In engineering a *hold point* is a stage that work may not pass until a person with authority approves it. An agent
//! is a loop: the model asks for tool calls, the tools answer, the model continues. Holdpoint is that loop with hold
//! points in it, as a library: you supply a model, tools and a store, and write no loop.
//!
//! - **A held call blocks nothing else.** Its siblings run at once. The held call starts when a person approves it,
//!   even if its siblings are still running.
//! - **A held run is a row.** It costs no memory, task or timer. The next process that opens the store continues it.
//! - **Everything is one log.** What happened, who approved it, what to do after a crash and what a client sees are the
//!   same numbered events, and none is published before it is stored.
//!
//! # The smallest agent
//!
//! ```toml
//! [dependencies]
//! holdpoint = { path = "…/crates/holdpoint" } # not published yet
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! ```
//! use holdpoint::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let balance = FunctionTool::new(
//!         ToolDefinition::new("balance", "How much money is in an account").read(),
//!         |_: ToolRequest| async { json!({"euros": 250}) },
//!     );
//!     // A scripted model needs no key. A real one implements `Model`: see `guide::models`.
//!     let model = ScriptedModel::replying([
//!         Reply::call("call_1", "balance", json!({"account": "ann"})),
//!         Reply::text("Ann has 250 euros."),
//!     ]);
//!     let clerk = Agent::new("clerk", model).instructions("You work in a bank.").tool(balance);
//!     let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//!
//!     let finished = engine.run(Message::to("clerk", "How much does Ann have?")).await?;
//!     assert_eq!(finished.text, "Ann has 250 euros.");
//!     assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
//!     Ok(())
//! }
//! ```
//!
//! `.read()` declares that the tool changes nothing. Unless declared otherwise, a tool is assumed to have side effects,
//! so its calls are held.
//!
//! # The first approval
//!
//! [`Engine::run`] returns when the run ends *or* when none of it executes and a call is held. Held calls appear in a
//! list, and a decision can come from anywhere: another task, a web handler, or a process that starts tomorrow.
//!
//! ```
//! use holdpoint::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let transfer = FunctionTool::new(
//!         ToolDefinition::new("transfer", "Moves money"),
//!         |request: ToolRequest| async move { json!({"sent": request.arguments["euros"]}) },
//!     );
//!     let model = ScriptedModel::replying([
//!         Reply::call("call_1", "transfer", json!({"to": "bob", "euros": 40})),
//!         Reply::text("Bob has his money."),
//!     ]);
//!     # let folder = std::env::temp_dir().join(format!("holdpoint-first-approval-{}", std::process::id()));
//!     # std::fs::create_dir_all(&folder)?;
//!     let store = SqliteStore::open(folder.join("runs.db"))?;
//!     let engine = Engine::on(store).agent(Agent::new("clerk", model).tool(transfer)).start().await?;
//!
//!     let held = engine.run(Message::to("clerk", "Pay Bob 40 euros.")).await?;
//!     assert!(matches!(held.outcome, RunOutcome::Suspended(_)));
//!
//!     // The approver sees what will really run, and decides on exactly that.
//!     let tenant = Tenant::default();
//!     for approval in engine.pending(&tenant).await? {
//!         assert_eq!(approval.arguments(), Some(&json!({"to": "bob", "euros": 40})));
//!         let verdict = engine.decide(approval.approve("ann")).await?;
//!         assert_eq!(verdict, Verdict::Accepted);
//!     }
//!
//!     let finished = engine.wait_until_ended(&tenant, &held.run).await?;
//!     assert_eq!(finished.text, "Bob has his money.");
//!     # engine.close(std::time::Duration::from_secs(5)).await;
//!     # std::fs::remove_dir_all(&folder)?;
//!     Ok(())
//! }
//! ```
//!
//! # The guide
//!
//! | page | answers |
//! |---|---|
//! | [`guide::approvals`] | which calls are held, what can be answered, what a verdict means, what expires |
//! | [`guide::events`] | how to watch a run, live and after a reconnect |
//! | [`guide::tools`] | what a tool receives, what it may answer, and what its effect class decides |
//! | [`guide::models`] | how to add your own model |
//! | [`guide::plugins`] | how your own code changes what a run does |
//! | [`guide::threads`] | conversations of more than one message, tenants, and what happens when a thread is busy |
//! | [`guide::crashes`] | what happens when a process dies, and how another one continues |
//! | [`guide::children`] | agents that delegate to agents |
//! | [`guide::stores`] | where runs are kept, and what "stored" means |
//! | [`guide::errors`] | every error, and what to do about it |
//! | [`guide::guarantees`] | what is promised, and what is not |
//!
//! `examples/` has five programs to read and run: `minimal`, `approval`, `plugin`, `continued` (kills itself and
//! continues) and `delegate`. Start one with `cargo run -p holdpoint --example approval`.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `scripted` | yes | [`model::ScriptedModel`], for tests, demos and trying things out without a key |
//! | `sqlite` | yes | [`store::SqliteStore`] |
//! | `providers` | no | `model::RemoteModel`, for OpenAI, Anthropic, Gemini, Ollama and OpenAI-compatible servers |
//! | `postgres` | no | `store::postgres`, for many nodes |
//! | `builtin` | no | `tool::builtin`, a few tools that need no configuration |
//! | `http` | no | `tool::http`, tools that are called over HTTP |
//! | `cli` | no | the program `holdpoint` |

pub mod guide;
pub mod prelude;

/// Compiles the code blocks of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the code blocks of `docs/models.md`.
#[cfg(all(doctest, feature = "providers"))]
#[doc = include_str!("../../../docs/models.md")]
struct Models;

#[doc(inline)]
pub use engine::posting::{Message, PostError, Posted, ThreadTarget};
#[doc(inline)]
pub use engine::{BoxFuture, Engine, EngineBuilder, RunOutcome, RunReport, Settings, StartError};
#[doc(inline)]
pub use machine::policy::LooseningRefused;
#[doc(inline)]
pub use machine::termination::Termination;
#[doc(inline)]
pub use machine::thread::Busy;

/// Agents: a model with its tools, rules, policy and stop conditions.
pub mod agent {
    #[doc(inline)]
    pub use engine::agent::{
        Agent, AgentError, ArgumentTest, Condition, Limits, Policy, ROUNDS_DEFAULT, Rule, RuleAction,
        StopCondition, Trim,
    };
    #[doc(inline)]
    pub use engine::posting::{OnBusy, PolicyRequest};
    #[doc(inline)]
    pub use machine::policy::{
        ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnReject, StepEnd, WhileWaiting,
    };
}

/// Held calls: what holds a call, the list of pending approvals, and the decisions on them.
pub mod decision {
    #[doc(inline)]
    pub use engine::deciding::{Answer, Decide, Resumption};
    #[doc(inline)]
    pub use engine::store::{ApprovalFilter, Listed, Page, PathEntry, SuspensionView};
    #[doc(inline)]
    pub use engine::{ApprovalChange, ApprovalFeed};
    #[doc(inline)]
    pub use machine::decision::Payload;
    #[doc(inline)]
    pub use machine::event::{OpenedSuspension, Pending};
    #[doc(inline)]
    pub use machine::inbox::{Refusal, Verdict};
    #[doc(inline)]
    pub use machine::projection_rows::ApprovalStatus;
    #[doc(inline)]
    pub use machine::rules::Asker;
    #[doc(inline)]
    pub use machine::suspension::{Expiry, Held, SuspensionKind};
}

/// What a run publishes: facts, which are stored, and deltas, which are not.
pub mod event {
    #[doc(inline)]
    pub use engine::feed::{FeedItem, Subscription};
    #[doc(inline)]
    pub use engine::live::{Delta, LiveItem, Part, Reset, ToolNote, ToolNoteBody};
    #[doc(inline)]
    pub use engine::store::CommittedEvent;
    #[doc(inline)]
    pub use machine::checkpoint::Checkpoint;
    #[doc(inline)]
    pub use machine::event::{
        CallError, CallErrorCode, CancelReason, Event, Fact, InterruptCause, LostAttempt, Parent, ResultFrom,
        RunRequest, Usage, UserMessage, VoidReason,
    };
    #[doc(inline)]
    pub use machine::message::{CallInMessage, Message as StoredMessage, NoteBody, ToolBody};
    #[doc(inline)]
    pub use machine::output::OutputFit;
    #[doc(inline)]
    pub use machine::status::WaitingOn;
    #[doc(inline)]
    pub use machine::termination::{Cancelled, RunError, StopCode, Stopped, Termination};
}

/// Identifiers. Create each from a string with `from`.
pub mod id {
    #[doc(inline)]
    pub use engine::store::Tenant;
    #[doc(inline)]
    pub use machine::id::{
        AgentName, CallId, DecisionId, Digest, MessageId, PluginName, Principal, RunId, SuspensionId,
        ThreadId, ToolName,
    };
}

/// Models: the trait, remote models, and a model that follows a script.
pub mod model {
    #[doc(inline)]
    pub use engine::live::Deltas;
    #[doc(inline)]
    pub use engine::model::{
        AssistantCall, Messages, Model, ModelAnswer, ModelCall, ModelFailure, ModelMessage, ModelRequest,
    };
    #[doc(inline)]
    pub use machine::event::Usage;
    #[cfg(feature = "providers")]
    #[doc(inline)]
    pub use models::providers::{
        self, ApiKey, BadSettings, Provider, ProviderSettings, RemoteModel, Timeouts,
    };
    #[cfg(feature = "scripted")]
    #[doc(inline)]
    pub use models::scripted::{self, Reply, Script, ScriptError, ScriptedModel};
}

/// Plugins: the embedder's own code between the phases of a run.
pub mod plugin {
    #[doc(inline)]
    pub use engine::plugin::{
        Action, CallErrorCode, CallResult, CancelReason, FunctionPlugin, GateRevisit, HookContext, Phase,
        PhaseSet, Plugin, Scope, Subject, SuppliedResult,
    };
    #[doc(inline)]
    pub use machine::id::PluginName;
    #[doc(inline)]
    pub use machine::projection_rows::StateRow;
    #[doc(inline)]
    pub use machine::status::CallStatus;
}

/// Tools: the trait, tools made from functions, and tools performed elsewhere.
pub mod tool {
    #[doc(inline)]
    pub use engine::callback::{AttemptState, Callback, CallbackToken, ReportedAttempt};
    #[doc(inline)]
    pub use engine::live::ToolNotes;
    #[doc(inline)]
    pub use engine::tool::{
        Approval, AskKind, CancellationToken, DeclaredTool, EffectClass, FunctionTool, IntoOutcome, OnExpiry,
        Outcome, Performer, ResumeMode, Resumed, SuspendRequest, TOOL_TIMEOUT, Tool, ToolAnswer,
        ToolDefinition, ToolRequest,
    };
    #[doc(inline)]
    pub use machine::tool::Arguments;
    #[cfg(feature = "builtin")]
    #[doc(inline)]
    pub use tools::builtin;
    #[cfg(feature = "http")]
    #[doc(inline)]
    pub use tools::http;
}

/// Stores: the contract, and the stores that implement it.
pub mod store {
    #[doc(inline)]
    pub use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
    /// Everything that the author of a store has to know.
    #[doc(inline)]
    pub use engine::store as contract;
    #[doc(inline)]
    pub use engine::store::{
        ClusterStore, FailureCounts, MessageView, PostKey, ResponseStore, RunCounts, RunFilter, RunStore,
        RunView, Store, StoreError, StoreFailure, StoreMetrics, StoredResponse, ThreadView, ViewStore,
    };
    /// The functions that a store calls inside its transactions.
    #[doc(no_inline)]
    pub use machine;
    #[doc(inline)]
    pub use machine::Control;
    #[doc(inline)]
    pub use machine::projection_rows::PublicRunStatus;
    #[doc(inline)]
    pub use stores::memory::MemoryStore;
    #[cfg(feature = "sqlite")]
    #[doc(inline)]
    pub use stores::sqlite::{SqliteOpenError, SqliteSettings, SqliteStore};
    /// Maintenance of a SQLite file.
    #[cfg(feature = "sqlite")]
    pub mod upkeep {
        #[doc(inline)]
        pub use stores::sqlite::{InspectError, backup, doctor, held_calls, retention, size};
    }
    /// The PostgreSQL store, for many nodes.
    #[cfg(feature = "postgres")]
    #[doc(inline)]
    pub use stores::postgres;
}

/// Metrics of the engine: [`Engine::metrics`](crate::Engine::metrics).
pub mod metrics {
    #[doc(inline)]
    pub use engine::metrics::{EngineMetrics, HISTOGRAM_BUCKETS, Histogram, HistogramSnapshot};
}

/// The source of time. A test can stop the clock and advance it.
pub mod clock {
    #[doc(inline)]
    pub use engine::clock::{Clock, RuntimeClock, SystemClock};
    #[doc(inline)]
    pub use machine::Timestamp;
}
