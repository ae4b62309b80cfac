//! Worlds for the engine itself: the real driver, its tasks and its feed, on a store that is as rough as the world.
//!
//! One world is one thread and one stopped clock. Everything that is drawn comes from one tape, in the order in which
//! the tasks of the runtime ask for it; the runtime polls them in an order that follows from nothing but that tape.
//! The [`rough`] store stands between the engine and a real one: it loses its process before and after commits, takes
//! its time, refuses, and hands leases over. The [`place`] says where the data is: in memory, in a file, or on a
//! PostgreSQL server, whose answers are waited for in real time while the world stands still. The [`book`] keeps what
//! was committed, and objects to whatever starts, is shown or is told before its commit.

mod accepted;
pub mod book;
mod crowd;
mod deletion;
mod disk;
mod ending;
pub mod listener;
mod performers;
pub mod place;
mod real_time;
pub mod rough;
pub mod runner;
mod schema;
mod server;
mod shown;
pub mod stage;
pub mod tally;
mod trouble;
mod troupe;
mod wording;
mod world;
