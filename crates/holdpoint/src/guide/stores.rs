//! Stores: where runs are kept, and what "stored" means.
//!
//! | store | for | survives |
//! |---|---|---|
//! | [`MemoryStore`](crate::store::MemoryStore) | tests, demos, runs that may be lost | nothing |
//! | [`SqliteStore`](crate::store::SqliteStore) | one process, up to a machine's worth of runs | a crash of the process and of the machine |
//! | `store::postgres::PostgresStore`, feature `postgres` | many processes on many machines | whatever the database survives |
//!
//! All keep the same [`contract`](crate::store::contract), a list of numbered rules, and one suite of tests holds them to
//! it. A store of your own implements the trait [`Store`](crate::store::Store).
//!
//! # SQLite
//!
//! - **One file, one process.** A lock file beside it sees to that, and whoever finds it taken is told so:
//!   [`SqliteOpenError::InUse`](crate::store::SqliteOpenError). The lock is gone when its process is.
//! - **Stored means synced.** A verdict, an event or the start of a tool is acknowledged after the operating system said
//!   that it is on the disk. Commits that arrive while a sync runs share the next one, so many runs cost few syncs.
//! - **A full disk refuses and recovers.** A failed sync ends the process, because nobody knows what the file holds; open
//!   it again, and it says.
//! - The database has companions with the endings `-wal` and `-shm` while it is open. Copy none of them by hand; use
//!   [`backup`](crate::store::upkeep::backup), or the program `holdpoint backup`. The same program examines a store
//!   (`doctor`) and deletes what ended long ago (`prune`).
//!
//! # Closing
//!
//! An [`Engine`](crate::Engine) needs no closing: a process may end, or be killed, at any time. To be polite, or to open the
//! same file again:
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
//! A round with tools, from the message to the model's last word, takes four commits. A decision and the start of the call
//! that it allows are one. A step late in a run costs what the first one did: loading a run reads its small state, never
//! its log. One engine lets 256 runs execute at the same time unless [`Settings`](crate::Settings) say otherwise, and
//! queues the rest; runs that are held do not count.
//!
//! # Time
//!
//! An engine and its store read the system's clock. A test that must not wait gives both another one:
//! [`approvals`](super::approvals#if-nobody-answers) has an example.
