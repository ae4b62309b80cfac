//! A seeded world that tries to break the machine: scripted models, rough tools, lost workers and hasty people.
//!
//! Everything that happens is drawn from a [`tape::Tape`], so that a failure is a number that anybody can play
//! again and shrink to a short story. The machine is the real one; the [`store`] follows the rules of the design;
//! the [`ledger`] keeps its own books and objects to whatever must not be ([`invariant`]).

pub mod arguments;
pub mod cast;
pub mod causes;
mod commit;
pub mod coverage;
pub mod differential;
pub mod driven;
pub mod ends;
pub mod hearing;
mod hearing_calls;
pub mod hooks;
pub mod invariant;
pub mod ledger;
pub mod live;
pub mod model_input;
pub mod names;
mod noise;
pub mod outputs;
mod pass;
pub mod people;
pub mod recorded;
mod rest;
pub mod runner;
pub mod script;
pub mod shrink;
pub mod store;
pub mod story;
mod submit;
pub mod tables;
pub mod tape;
mod tasks;
pub mod thread_rows;
mod turns;
pub mod words;
pub mod worker;
pub mod world;
