//! Everything a client speaks: how our things look in JSON, how a request is read, and how it is refused.
//!
//! [`wire`] is what goes out, one type for each shape of the contract; [`body`] is what comes in, read strictly;
//! [`error`] is every refusal, with a code that has a page in `docs/errors/`. None of these three waits for
//! anything, looks anything up, or reads a clock.
//!
//! [`Server`] is what answers. A request comes through a `middleware` that every answer has, a guard that decides who asks and
//! whether they may (`access`; of a tool that reports, `callback_auth`), and reaches one of the `routes`, which read strictly,
//! ask the engine or its store, and show what came of it. Nothing is unbounded: see [`Limits`].
//!
//! Types of the wire are not types of the domain: a wire type is built from one with `new` or `from_…`, and a request becomes one
//! with `into_…`. Nothing here decides what happens; it says what was decided, or asks.

mod access;
mod approval_stream;
mod approval_view;
pub mod body;
mod callback_auth;
mod capacity;
mod connection;
pub mod error;
mod extract;
mod idempotency;
mod json_threads;
mod lapsed_grants;
mod limits;
mod log_reader;
mod metrics;
mod middleware;
mod open_token;
mod origin;
mod paging;
mod readiness;
mod response_budget;
mod router;
mod routes;
mod server;
mod setup;
mod streaming;
mod submit_decision;
pub mod wire;

pub use callback_auth::callback_base_url;
pub use limits::Limits;
pub use open_token::open_token_file;
pub use router::openapi;
pub use server::Server;
pub use setup::{
    AgentScope, AgentShown, AgentTenants, Approvers, Auth, Key, Origins, Reload, Reloaded, Role, Roles,
    Setup, ToolShown,
};
