//! Everything a client speaks: how our things look in JSON, how a request is read, and how it is refused.
//!
//! [`wire`] is what goes out, one type for each shape of the contract; [`body`] is what comes in, read strictly;
//! [`error`] is every refusal, with a code that has a page in `docs/errors/`. None of these three waits for
//! anything, looks anything up, or reads a clock.
//!
//! [`Server`] is what answers. A request comes through a `frame` that every answer has, a guard that decides who asks and
//! whether they may (`access`; of a tool that reports, `reporting`), and reaches one of the `routes`, which read strictly,
//! ask the engine or its store, and show what came of it. Nothing is unbounded: see [`Limits`].
//!
//! Types of the wire are not types of the domain: a wire type is made of one with `of`, and a request becomes one
//! with `into_…`. Nothing here decides what happens; it says what was decided, or asks.

mod access;
mod answers;
mod approval_stream;
pub mod body;
mod connection;
pub mod error;
mod frame;
mod json_threads;
mod lapsed_grants;
mod limits;
mod metrics;
mod open_token;
mod origin;
mod paging;
mod places;
mod readiness;
mod received;
mod repeats;
mod reporting;
mod router;
mod routes;
mod server;
mod settling;
mod setup;
mod shown;
mod streaming;
mod telling;
pub mod wire;

pub use limits::Limits;
pub use open_token::open_token_file;
pub use reporting::callbacks_at;
pub use router::openapi;
pub use server::Server;
pub use setup::{
    AgentScope, AgentShown, AgentTenants, Approvers, Auth, Key, Origins, Reload, Reloaded, Role, Roles,
    Setup, ToolShown,
};
