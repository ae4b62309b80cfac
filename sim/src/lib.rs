//! A seeded world that tries to break the machine: scripted models, rough tools, lost workers and hasty people.
//!
//! Everything that happens is drawn from a [`play::tape::Tape`], so that a failure is a number that anybody can play
//! again and shrink to a short story. The machine is the real one; the [`world::store`] follows the rules of the design;
//! the [`judge`] keeps its own books and objects to whatever must not be ([`judge::invariant`]). [`driven`] plays such
//! worlds with the engine itself.

pub mod driven;
pub mod judge;
pub mod play;
pub mod world;
