//! The judge: keeps its own books from the events alone, without the machine's decisions and fold, and objects to
//! whatever must not be.

pub(crate) mod answers;
pub mod causes;
pub mod ends;
pub(crate) mod grants;
pub mod hearing;
pub(crate) mod hearing_calls;
pub mod invariant;
pub mod ledger;
pub mod model_input;
pub mod outputs;
pub mod recorded;
pub(crate) mod turns;
