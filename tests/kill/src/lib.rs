//! The kill matrix. A process that drives runs is killed from outside, at every boundary and at random moments, and
//! started again. The people of the test resend what they are not sure of until every run has ended. Then the stored
//! data is judged.
//!
//! Five kinds of processes take part. The [`node`] has the engine, its store, and tools that act. The [`ledger`]
//! records every act before the acting tool gets its answer. The [`payment_server`] charges over HTTP, once for each key; its answers are
//! sometimes slow, lost or unclear. The [hook](hook_server) of one agent answers over HTTP too, and records every
//! question. The parent ([`matrix`]) plays the people of a [story](stories), kills the node, and
//! compares the stored data with what was acknowledged and with what the ledger says really happened ([`judge`]).
//!
//! A [cluster] is the same with three nodes on one PostgreSQL server. Each command goes to a random node. Besides
//! kills, a node pauses for longer than its lease and resumes, the server crashes or is replaced by its standby, and
//! the network cuts connections.

pub mod audit_evidence;
pub mod chance;
pub mod cluster;
pub mod command;
pub mod driven_process;
pub mod evidence;
pub mod hook_server;
pub mod incoming_post;
pub mod judge;
pub mod ledger;
pub mod matrix;
pub mod node;
pub mod payment_server;
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
pub mod support_processes;
pub mod tally;
pub mod wire;
pub mod world;
