//! The disk is full from the k-th write on, for every k of a run, until the operator frees space.

use std::sync::Arc;

use engine::store::{StoreError, StoreFailure};
use machine::inbox::Item;
use stores::sqlite::{SqliteOpenError, SqliteSettings, SqliteStore};
use tokio::task::JoinSet;

use crate::disk::{Disk, DiskState, Image, Outcome, Part, Request, Unsynced};
use crate::fixture::{Clock, World};
use crate::ledger::Ledger;
use crate::recording::{Recording, one_run, one_run_with_a_long_message};
use crate::recovery_check::{Trial, assert_recovers, resume_all};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{approve, order};

/// No space from this write on: half of the bytes of each write are still written.
fn full_from(number: u64) -> impl FnMut(Request) -> Outcome + Send {
    let mut writes = 0;
    move |request| match request {
        Request::Write { len, .. } => {
            writes += 1;
            if writes < number { Outcome::Done } else { Outcome::Full { written: len / 2 } }
        }
        Request::Truncate { .. } | Request::Sync { .. } => Outcome::Done,
    }
}

/// The store runs inline on the calling thread. A store that would end its process fails the test.
fn inline() -> Recording {
    Recording::on(|folder, clock| World::new(Arc::new(open(folder, clock, true)), clock.clone()))
}

/// A caller that frees space when a write is refused, and then retries it.
struct SpaceMaker<'r> {
    recording: &'r Recording,
    refusals: usize,
}

impl SpaceMaker<'_> {
    async fn until_stored<T>(
        &mut self,
        run: &str,
        mut work: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> T {
        loop {
            match work().await {
                Ok(done) => return done,
                Err(refused) => self.make_space(run, &refused).await,
            }
        }
    }

    async fn make_space(&mut self, run: &str, refused: &StoreError) {
        let Recording { world, ledger, disk, .. } = self.recording;
        assert!(matches!(refused, StoreError::Failed(StoreFailure::Full(_))), "{refused}");
        self.refusals += 1;
        assert_eq!(self.refusals, 1, "there is space again, and the store still reports a full disk");
        // On a full disk everything can be read, and a refused write has left no trace.
        let stored = world.store.run(&world.tenant, &run.into()).await.unwrap();
        assert_eq!(
            stored.map_or(0, |stored| stored.control.as_ref().unwrap().seq),
            ledger.promised_seq(&run.into())
        );
        ledger.close(world).await.assert_kept(world, ledger.promise_count()).await;
        disk.stop_failing();
    }
}

/// Drives a run from its creation through a held call and a decision to its end.
async fn patient_run(patient: &mut SpaceMaker<'_>, run: &str) {
    let Recording { world, ledger, .. } = patient.recording;
    let (thread, call) = (format!("thr_{run}"), format!("pay_{run}"));
    let mut worker = patient.until_stored(run, async || ledger.start(world, order(&thread, run)).await).await;
    worker.asks(&[(&call, "transfer")]);
    patient.until_stored(run, async || ledger.commit(world, &mut worker).await).await;
    let decision = Item::Decision(worker.decision(&call, Some("d1"), approve()));
    let submit = async || ledger.submit(world, &worker.lease.run, decision.clone()).await;
    patient.until_stored(run, submit).await;
    worker.reload(world).await;
    worker.drain();
    patient.until_stored(run, async || ledger.commit(world, &mut worker).await).await;
    worker.succeeds(&call);
    worker.finish_with("paid");
    patient.until_stored(run, async || ledger.commit(world, &mut worker).await).await;
}

#[tokio::test]
async fn whichever_write_finds_no_space_the_run_resumes_when_there_is_space() {
    for number in 1.. {
        let recording = inline();
        recording.disk.fail(full_from(number));
        let mut patient = SpaceMaker { recording: &recording, refusals: 0 };
        patient_run(&mut patient, "run").await;
        if patient.refusals == 0 {
            assert!(number > 50, "only {number} writes");
            return;
        }
        let account = recording.account().await;
        let mut disk_state = DiskState::default();
        recording.disk.ops().iter().for_each(|op| disk_state.record_op(op));
        let image = disk_state.image(Unsynced::Lost, Unsynced::Lost);
        assert_eq!(disk_state.promised, recording.ledger.promise_count());
        let context = format!("no space for write {number}");
        assert_recovers(&context, &image, &account, disk_state.promised, Trial::Resume).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_share_a_sync_are_refused_together_and_all_resume() {
    for first in [1, 10, 20, 30, 40, 50] {
        let recording = Recording::begin();
        let mut writes = 0;
        // Several batches find no space.
        recording.disk.fail(move |request| {
            writes += u64::from(matches!(request, Request::Write { .. }));
            if (first..first + 5).contains(&writes) { Outcome::Full { written: 7 } } else { Outcome::Done }
        });
        let mut tasks = JoinSet::new();
        for index in 0..12 {
            let (ledger, world) = (recording.ledger.clone(), recording.world.clone());
            tasks.spawn(async move { crowd_member(&ledger, &world, &format!("run_{index:02}")).await });
        }
        let mut refusals = 0;
        while let Some(member) = tasks.join_next().await {
            refusals += member.unwrap();
        }
        assert!(refusals > 0, "no write was refused from write {first} on");
        let Recording { ledger, world, .. } = &recording;
        ledger.close(world).await.assert_kept(world, ledger.promise_count()).await;
        resume_all(world).await;
    }
}

/// Returns how many of its writes were refused because the disk was full.
async fn crowd_member(ledger: &Ledger, world: &World, run: &str) -> usize {
    let mut refusals = 0;
    let mut heard = |refused: StoreError| {
        assert!(matches!(refused, StoreError::Failed(StoreFailure::Full(_))), "{refused}");
        refusals += 1;
    };
    let mut worker = loop {
        match ledger.start(world, order(&format!("thr_{run}"), run)).await {
            Ok(worker) => break worker,
            Err(refused) => heard(refused),
        }
    };
    worker.asks(&[(&format!("pay_{run}"), "transfer")]);
    while let Err(refused) = ledger.commit(world, &mut worker).await {
        heard(refused);
    }
    assert!(world.store.release(&worker.lease).await.unwrap());
    refusals
}

#[tokio::test]
async fn a_file_that_cannot_grow_leaves_everything_in_the_log_until_it_can() {
    let recording = inline();
    recording.disk.fail(|request| match request {
        Request::Write { part: Part::Main, .. } => Outcome::Full { written: 0 },
        _ => Outcome::Done,
    });
    let Recording { ledger, world, disk, folder } = &recording;
    let empty = std::fs::metadata(folder.file()).unwrap().len();
    for index in 0..60 {
        one_run_with_a_long_message(ledger, world, &format!("long_{index:02}")).await.unwrap();
    }
    assert_eq!(
        std::fs::metadata(folder.file()).unwrap().len(),
        empty,
        "no checkpoint has extended the main file"
    );
    ledger.close(world).await.assert_kept(world, ledger.promise_count()).await;
    disk.stop_failing();
    for index in 60..120 {
        one_run_with_a_long_message(ledger, world, &format!("long_{index:02}")).await.unwrap();
    }
    assert!(std::fs::metadata(folder.file()).unwrap().len() > empty + 4_000_000);
    ledger.close(world).await.assert_kept(world, ledger.promise_count()).await;
}

/// Opens the files with no space from the k-th write on, then with space. Returns the number of refused attempts.
async fn open_whenever_full(found: Option<(&Image, &Recording)>) -> u64 {
    for number in 1.. {
        let (folder, clock) = (Folder::new(), Clock::new());
        let disk = Disk::under(&folder.file());
        if let Some((image, _)) = found {
            image.write_to(&folder.file());
        }
        disk.fail(full_from(number));
        let settings = SqliteSettings { inline: true, ..Default::default() };
        let is_over = match SqliteStore::open_with(folder.file(), settings) {
            Ok(_) => true,
            Err(SqliteOpenError::Trouble(StoreFailure::Full(_))) => false,
            Err(other) => panic!("no space for write {number}: {other}"),
        };
        disk.stop_failing();
        let world = World::new(Arc::new(open(&folder, &clock, true)), clock);
        if let Some((_, recording)) = found {
            let ledger = &recording.ledger;
            recording.account().await.assert_kept(&world, ledger.promise_count()).await;
        }
        if is_over {
            return number - 1;
        }
    }
    0
}

#[tokio::test]
async fn a_store_that_cannot_be_made_for_lack_of_space_is_made_when_there_is_space() {
    assert!(open_whenever_full(None).await > 20);
}

#[tokio::test]
async fn a_store_that_is_found_on_a_full_disk_is_opened_when_there_is_space() {
    let recording = inline();
    one_run(&recording.ledger, &recording.world, "run").await.unwrap();
    let image = Image::of(&recording.folder.file());
    assert!(open_whenever_full(Some((&image, &recording))).await > 5);
}
