//! Checks that a store opened on an image of its files contains what was acknowledged, and keeps working.

use std::sync::Arc;

use machine::inbox::Item;
use machine::suspension::SuspensionKind;
use rusqlite::Connection;

use crate::disk::Image;
use crate::fixture::{Clock, World};
use crate::ledger::{Account, runs};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{Worker, approve, held, next_workers};

/// What is checked on an opened image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    Read,
    Resume,
}

/// Opens the image, and compares it with what was acknowledged.
pub(crate) async fn assert_recovers(
    context: &str,
    image: &Image,
    account: &Account,
    promised: usize,
    trial: Trial,
) {
    let context = Context(context);
    let (folder, clock) = (Folder::new(), Clock::new());
    image.write_to(&folder.file());
    let world = World::new(Arc::new(open(&folder, &clock, true)), clock);
    account.assert_kept(&world, promised).await;
    match trial {
        Trial::Read => {}
        Trial::Resume => resume_all(&world).await,
    }
    drop(world);
    let raw = Connection::open(folder.file()).unwrap();
    let found: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
    let strangers: i64 =
        raw.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
    assert_eq!(strangers, 0);
    drop(context);
}

/// Prints which image a check failed on.
struct Context<'c>(&'c str);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed image: {}", self.0);
        }
    }
}

/// Claims and continues every run that is ready, decides every held call, and starts a new run.
pub(crate) async fn resume_all(world: &World) {
    for mut worker in next_workers(world, 1_000).await {
        worker.take_over();
        worker.commit(world).await.unwrap();
        decide_what_is_held(world, &mut worker).await;
    }
    for view in runs(world).await {
        if view.control.as_ref().unwrap().ended().is_some() {
            let Some(parent) = &view.control.as_ref().unwrap().parent else { continue };
            let parent = world.run(parent.run_id.as_str()).await;
            let waits = parent.control.as_ref().unwrap().calls.iter().filter_map(|call| call.suspension());
            let waits = waits.filter(|held| held.held.kind() == SuspensionKind::ChildRun).count();
            assert_eq!(waits, 0, "{} waits for a child that has ended", parent.id);
        } else if let Some(mut worker) = crate::worker::claim(world, view.id.as_str()).await {
            worker.take_over();
            worker.commit(world).await.unwrap();
            decide_what_is_held(world, &mut worker).await;
        }
    }
    let mut worker = held(world, "thr_afterwards", "afterwards", "transfer").await;
    decide_what_is_held(world, &mut worker).await;
}

async fn decide_what_is_held(world: &World, worker: &mut Worker) {
    let approvals =
        worker.run.control.calls.iter().filter(|call| {
            call.suspension().is_some_and(|held| held.held.kind() == SuspensionKind::Approval)
        });
    let held: Vec<String> = approvals.map(|call| call.id.to_string()).collect();
    for call in held {
        let decision = worker.decision(&call, None, approve());
        worker.accept(Item::Decision(decision));
        worker.commit(world).await.unwrap();
        worker.succeeds(&call);
        worker.commit(world).await.unwrap();
    }
}
