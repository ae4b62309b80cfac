//! A sync fails: the store reports it and acknowledges no further commit. A process that opens the file again does not
//! rely on data that is only in the system's page cache.

use std::sync::{Arc, Mutex};

use engine::store::{StoreError, StoreFailure};
use stores::sqlite::{SqliteSettings, SqliteStore};

use crate::disk::{Disk, DiskState, Image, Outcome, Part, Request};
use crate::fixture::{Clock, World};
use crate::recording::{Recording, one_run, one_run_with_a_long_message};
use crate::recovery_check::{Trial, assert_recovers, resume_all};
use crate::sqlite_fixture::Folder;
use crate::unsynced::fates;

/// The messages that a store reported instead of ending its process.
#[derive(Clone, Default)]
struct FatalMessages(Arc<Mutex<Vec<String>>>);

impl FatalMessages {
    fn messages(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Opens a store that runs inline on the calling thread, and records a fatal message instead of ending the process.
fn open(folder: &Folder, clock: &Clock, fatal_messages: &FatalMessages) -> World {
    let (store_clock, said) = (clock.clone(), fatal_messages.clone());
    let settings = SqliteSettings {
        clock: Some(Arc::new(move || store_clock.now())),
        on_fatal: Some(Arc::new(move |why| said.0.lock().unwrap().push(why.to_owned()))),
        inline: true,
    };
    World::new(Arc::new(SqliteStore::open_with(folder.file(), settings).unwrap()), clock.clone())
}

/// The process ends, another process opens the file and continues, and then the power is lost.
async fn restart_and_lose_power(context: &str, before: &Recording) {
    let (folder, clock) = (Folder::new(), Clock::new());
    let disk = Disk::under(&folder.file());
    // The second process reads everything that the first one wrote, synced or not.
    Image::of(&before.folder.file()).write_to(&folder.file());
    disk.continue_with(before.disk.ops());
    let ledger = before.ledger.on(disk.clone(), &folder.file());
    let world = open(&folder, &clock, &FatalMessages::default());
    one_run(&ledger, &world, "after").await.unwrap();
    let account = ledger.close(&world).await;
    let mut disk_state = DiskState::default();
    disk.ops().iter().for_each(|op| disk_state.record_op(op));
    assert_eq!(disk_state.promised, ledger.promise_count());
    for (main, log) in fates(1) {
        let image = disk_state.image(main, log);
        assert_recovers(context, &image, &account, disk_state.promised, Trial::Resume).await;
    }
    account.assert_kept(&world, disk_state.promised).await;
    resume_all(&world).await;
}

#[tokio::test]
async fn whichever_sync_of_the_log_fails_nothing_acknowledged_is_lost() {
    for number in 1.. {
        let fatal_messages = FatalMessages::default();
        let recording = Recording::on(|folder, clock| open(folder, clock, &fatal_messages));
        let mut syncs = 0;
        recording.disk.fail(move |request| {
            syncs += u32::from(request == Request::Sync { part: Part::Log });
            if syncs == number { Outcome::Fails } else { Outcome::Done }
        });
        let Recording { ledger, world, .. } = &recording;
        let mut told = one_run(ledger, world, "first").await;
        if told.is_ok() {
            told = one_run(ledger, world, "second").await;
        }
        let Err(refused) = told else {
            assert!(number > 10, "only {number} syncs");
            assert!(fatal_messages.messages().is_empty());
            return;
        };
        let context = format!("sync {number} failed");
        assert!(matches!(refused, StoreError::Failed(StoreFailure::Unavailable(_))), "{context}: {refused}");
        assert_eq!(fatal_messages.messages().len(), 1, "{context}: {:?}", fatal_messages.messages());
        recording.disk.stop_failing();
        // A process that did not end makes no further writes, even though the disk works again.
        let refused = one_run(ledger, world, "third").await.unwrap_err();
        assert!(refused.to_string().contains("must be opened again"), "{context}: {refused}");
        restart_and_lose_power(&context, &recording).await;
    }
}

#[tokio::test]
async fn a_sync_of_the_file_that_fails_during_a_checkpoint_loses_nothing() {
    let fatal_messages = FatalMessages::default();
    let recording = Recording::on(|folder, clock| open(folder, clock, &fatal_messages));
    recording.disk.fail(|request| match request {
        Request::Sync { part: Part::Main } => Outcome::Fails,
        _ => Outcome::Done,
    });
    let Recording { ledger, world, .. } = &recording;
    let mut stored = 0;
    while one_run_with_a_long_message(ledger, world, &format!("long_{stored:02}")).await.is_ok() {
        stored += 1;
        assert!(stored < 200, "the store did not report the failed checkpoint");
    }
    assert_eq!(fatal_messages.messages().len(), 1, "{:?}", fatal_messages.messages());
    recording.disk.stop_failing();
    restart_and_lose_power("a checkpoint failed", &recording).await;
}
