//! The routes, one file for each kind of thing. A route reads what was sent, asks the engine or the store, and says
//! what came of it; whether its caller may ask at all was decided before.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod callbacks;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod runs;
pub(crate) mod threads;
