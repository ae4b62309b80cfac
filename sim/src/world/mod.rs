//! The world: its agents and people, their inputs and answers, the store, and the workers that get lost.

pub mod arguments;
pub(crate) mod commit;
pub mod hooks;
pub mod live;
pub(crate) mod noise;
pub(crate) mod pass;
pub mod people;
pub(crate) mod random_walk;
pub(crate) mod rest;
pub mod script;
pub mod setup;
pub mod store;
pub(crate) mod submit;
pub(crate) mod tasks;
pub mod thread_rows;
pub mod worker;

pub use random_walk::World;
