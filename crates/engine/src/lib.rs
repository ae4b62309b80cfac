//! The driver around the machine: it does the waiting, so that the machine need not.
//!
//! The machine decides and is pure; everything that takes time is here. An [`Engine`] holds runs on a
//! [`Store`](store::Store). Each run that has something to do has one worker, which repeats one pass:
//!
//! ```text
//! claim → load → LeaseAcquired → drain the inbox ┐
//!        ┌──────────────────────────────────────┘
//!        └→ say what is ready → one append → publish → start and stop what is wanted → wait ─┐
//!           └────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - Nothing is published and nothing is started before the append has returned. If the store refuses, the worker
//!   discards its copy, loads it again, and applies the task results once more.
//! - Model calls, tools and hooks are separate tasks. If one blocks its thread or panics, nothing else is affected.
//!   Only a model that declares that it answers at once is first polled by the worker itself.
//! - A run that only waits is released: it is a row, and costs no memory, task or timer.
//! - The watchers of a run read for themselves ([`feed`]); the run waits for none of them. Many watchers of one run
//!   take turns (`watchers`), so that the run keeps going.
//!
//! Where to find things: [`posting`] accepts messages, [`deciding`] accepts decisions, `node` knows which runs this
//! process holds and wakes them, `worker` is the pass and its tasks, [`feed`] and [`live`] are what watchers see,
//! `relay` sends live updates to watchers in other processes, [`callback`] is how a tool reports later, and [`metrics`]
//! is for monitoring the engine itself.

pub mod agent;
mod approval_feed;
pub mod arguments;
pub mod callback;
pub mod clock;
pub mod deciding;
mod engine;
pub mod feed;
mod grants;
mod held_feed;
mod history;
mod inline_tools;
pub mod live;
pub mod masking;
pub mod media;
mod message;
pub mod metrics;
pub mod model;
mod node;
mod output;
mod page_cache;
pub mod plugin;
pub mod posting;
mod prepared_agents;
pub mod quota;
mod recent_events;
mod relay;
mod replaced_approval;
mod schema;
mod signature;
pub mod store;
mod thread_feed;
pub mod tool;
mod tool_notes;
mod transcript_cache;
mod watchers;
mod weight;
mod worker;

pub use approval_feed::{ApprovalChange, ApprovalFeed};
pub use engine::{Engine, EngineBuilder, RunOutcome, RunReport, StartError};
pub use grants::Approvers;
pub use node::Settings;
pub use prepared_agents::PreparedAgents;
pub use store::BoxFuture;
pub use thread_feed::ThreadFeed;
