//! The driver around the machine: it waits, so that the machine need not.
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
//! - Nothing is published and nothing is started before the append returned. If the store refuses, the worker's copy
//!   is thrown away and loaded again, and what tasks came back with is said once more.
//! - Model calls, tools and hooks are tasks of their own. What they do to their thread, or a panic, harms nobody else.
//!   Only a model that says that its answer is at hand is asked by the worker itself first.
//! - A run that only waits is let go: it is a row, and costs no memory, task or timer.
//! - Whoever watches a run reads for themselves ([`feed`]); nobody is waited for. Where many watch one run they take
//!   turns (`watchers`), so that the run goes on beside them.
//!
//! What is where: [`posting`] takes messages in, [`deciding`] takes decisions, `node` knows which runs this process
//! holds and wakes them, `worker` is the pass and its tasks, [`feed`] and [`live`] are what watchers see, `relay` tells
//! those in other processes, [`callback`] is how a tool reports later, and [`metrics`] is what somebody who watches the
//! engine itself sees.

pub mod agent;
mod approval_feed;
pub mod arguments;
pub mod callback;
pub mod clock;
pub mod deciding;
mod engine;
pub mod feed;
mod grants;
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
pub mod quota;
mod recent_events;
mod relay;
mod schema;
pub mod store;
pub mod tool;
mod transcript_cache;
mod watchers;
mod weight;
mod worker;

pub use approval_feed::{ApprovalChange, ApprovalFeed};
pub use engine::{Engine, EngineBuilder, RunOutcome, RunReport, StartError};
pub use grants::Approvers;
pub use node::Settings;
pub use store::BoxFuture;
