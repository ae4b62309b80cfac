//! The routes, one file per resource. A route parses the request, asks the engine or the store, and returns the
//! result. A guard has already checked that the caller may use the route.

pub(crate) mod ag_ui;
pub(crate) mod agents;
pub(crate) mod ai_sdk;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod callbacks;
pub(crate) mod copilot_kit;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod runs;
pub(crate) mod threads;
pub(crate) mod tokens;
