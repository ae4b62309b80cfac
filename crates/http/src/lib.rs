//! The HTTP API: how domain types look in JSON, how a request is parsed, and how it is refused.
//!
//! [`wire`] is the output, one type for each shape of the contract; [`body`] is the input, parsed strictly;
//! [`error`] is every refusal, with a code that has a page in `docs/errors/`. None of these three waits for
//! anything, looks anything up, or reads a clock.
//!
//! [`Server`] answers requests. A request passes the `middleware` around every response, then a guard that identifies
//! the caller and checks its permissions (`access`; for tools that report, `callback_auth`), and reaches one of the
//! `routes`. A route parses strictly, asks the engine or its store, and returns the result. Nothing is unbounded: see
//! [`Limits`].
//!
//! Wire types are not domain types: a wire type is built from a domain type with `new` or `from_…`, and a request
//! becomes a domain type with `into_…`. This crate decides nothing; it reports what was decided, or asks the engine.

mod access;
mod acting;
mod approval_stream;
mod approval_view;
pub mod body;
mod browser_token;
mod callback_auth;
mod caller;
mod capacity;
mod connection;
mod cors;
pub mod error;
mod extract;
mod front_end;
mod guard;
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
mod recorded_configuration;
mod refused_requests;
mod response_budget;
mod router;
mod routes;
mod run_wait;
mod server;
mod setup;
mod streaming;
mod submit_decision;
pub mod wire;

pub use callback_auth::callback_base_url;
pub use limits::Limits;
pub use open_token::open_token_file;
pub use origin::WebOrigin;
pub use router::openapi;
pub use server::Server;
pub use setup::{
    AgentScope, AgentShown, AgentTenants, Approvers, Auth, Key, Origins, Reload, Reloaded, Role, Roles,
    Setup, SinkFault, ToolShown,
};
