//! Stores: where runs are kept, and what "stored" means.
//!
//! | store | for | survives |
//! |---|---|---|
//! | [`MemoryStore`](crate::store::MemoryStore) | tests, demos, runs that may be lost | nothing |
//! | [`SqliteStore`](crate::store::SqliteStore) | one process, up to a machine's worth of runs | a crash of the process and of the machine |
//! | `store::postgres::PostgresStore`, feature `postgres` | many processes on many machines | whatever the database survives |
//!
//! All of them implement the same [`contract`](crate::store::contract), a list of numbered rules, and one test suite
//! verifies it. Your own store implements the trait [`Store`](crate::store::Store).
//!
//! # SQLite
//!
//! - **One file, one process.** A lock file beside the database ensures this. A second process gets
//!   [`SqliteOpenError::InUse`](crate::store::SqliteOpenError). The lock disappears with its process.
//! - **Stored means synced.** A verdict, an event or the start of a tool call is acknowledged after the operating
//!   system has confirmed that it is on the disk. Commits that arrive while a sync runs share the next one: many
//!   runs cost few syncs.
//! - **A full disk refuses writes and recovers.** A failed sync ends the process, because it is then unknown what the
//!   file contains. Open the file again to find out.
//! - While the database is open, it has companion files that end in `-wal` and `-shm`. Do not copy any of these files
//!   by hand; use [`backup`](crate::store::upkeep::backup) or the command `holdpoint backup`. The same program checks a
//!   store (`doctor`) and deletes old threads (`prune`).
//!
//! # Closing
//!
//! An [`Engine`](crate::Engine) does not have to be closed: a process may exit, or be killed, at any time. For a clean
//! shutdown, or to open the same file again:
//!
//! ```
//! # use holdpoint::prelude::*;
//! # use std::time::Duration;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("holdpoint-stores-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("runs.db");
//! # let clerk = || Agent::new("clerk", ScriptedModel::replying([Reply::text("Yes?")]));
//! let engine = Engine::on(SqliteStore::open(&path)?).agent(clerk()).start().await?;
//! let finished = engine.run(Message::to("clerk", "Hello")).await?;
//! // Lets what executes finish within this time, and leaves the rest as after a crash.
//! engine.close(Duration::from_secs(10)).await;
//!
//! let engine = Engine::on(SqliteStore::open(&path)?).agent(clerk()).start().await?;
//! let view = engine.view(&Tenant::default(), &finished.run).await?;
//! assert!(view.is_some_and(|run| run.status.ended()));
//! # engine.close(Duration::from_secs(10)).await;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs
//!
//! A round with tools, from the message to the model's final answer, takes four commits. A decision and the start of
//! the call that it allows share one commit. A step late in a run costs as much as the first one: loading a run reads
//! its small state, never its log. One engine executes 256 runs at the same time unless [`Settings`](crate::Settings)
//! say otherwise, and queues the rest; held runs do not count.
//!
//! # Time
//!
//! An engine and its store read the system clock. A test that must not wait gives both another clock:
//! [`approvals`](super::approvals#if-no-answer-comes) has an example.
