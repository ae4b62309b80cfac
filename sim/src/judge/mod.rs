//! The judge builds its own record only from the events, without the machine's decisions and fold, and objects to every
//! breach of an invariant.

pub(crate) mod answers;
pub(crate) mod call_events;
pub mod causes;
pub mod ends;
pub mod events;
pub(crate) mod grants;
pub mod invariant;
pub mod ledger;
pub mod model_input;
pub mod outputs;
pub mod recorded;
pub(crate) mod turns;
