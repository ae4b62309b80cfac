//! A seeded world that tries to break the machine: scripted models, failing tools, lost workers and hasty people.
//!
//! Everything that happens is drawn from a [`play::tape::Tape`], so a failure is a seed that anyone can replay and
//! shrink to a short story. The machine is the real one. The [`world::store`] follows the rules of the design. The
//! [`judge`] keeps its own ledger and objects to every breach of an invariant ([`judge::invariant`]). [`driven`] plays
//! such worlds with the engine itself.

pub mod driven;
pub mod judge;
pub mod play;
pub mod world;
