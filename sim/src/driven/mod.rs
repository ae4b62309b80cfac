//! Worlds for the engine itself: the real driver, its tasks and its feed, on a store that is made to fail.
//!
//! One world is one thread and one paused clock. Every random choice comes from one tape, in the order in which the
//! runtime's tasks ask for it. The order in which the runtime polls them depends on that tape only. The [`faulty_store`] store
//! sits between the engine and a real one: it loses its process before and after commits, delays and refuses calls, and
//! hands leases over. The [`place`] says where the data is: in memory, in a file, or on a PostgreSQL server, whose
//! answers are awaited in real time while the world's clock is stopped. The [`book`] records what was committed, and
//! objects to everything that starts, is shown or is reported before its commit.

mod accepted;
mod agents;
pub mod book;
pub mod context;
mod deletion;
mod disk;
mod ending;
pub mod faulty_store;
pub mod listener;
mod people;
mod performers;
pub mod place;
mod real_time;
pub mod runner;
mod schema;
mod server;
mod shown;
pub mod tally;
mod trouble;
mod wording;
mod world;
