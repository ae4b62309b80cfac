//! The kill matrix: a process that drives runs is killed from outside, at every boundary and at any instant, started
//! again, and driven to the end by people who repeat themselves; then what is stored is judged.
//!
//! Four kinds of processes take part. The [`node`] has the engine, its store, and tools that act. The
//! [`ledger`] writes down every act before the tool that acted knows of it. The [`till`] charges whoever asks over HTTP,
//! once for each key, and is slow, cut off and unclear at times. The parent ([`matrix`]) speaks for the people of a
//! [story](stories), kills the node, and compares what is stored with what was acknowledged and with what the ledger
//! says really happened ([`judge`]).
//!
//! A [cluster] is the same with three nodes on one PostgreSQL server: what people say goes to any of them, and beside
//! kills a node stands still past its lease and goes on, the server crashes or is replaced by its standby, and the
//! network breaks connections off.

pub mod bystanders;
pub mod chance;
pub mod cluster;
pub mod command;
pub mod evidence;
pub mod judge;
pub mod ledger;
pub mod life;
pub mod matrix;
pub mod node;
pub mod people;
pub mod plan;
pub mod process;
pub mod proxy;
pub mod report;
pub mod scratch;
pub mod server;
pub mod stop;
pub mod store_at;
pub mod stories;
pub mod tally;
pub mod till;
pub mod wire;
pub mod world;
