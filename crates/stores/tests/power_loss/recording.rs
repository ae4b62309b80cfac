//! Runs on a store whose disk records every operation: held calls, decisions, a child, an interrupt, commits that share
//! a sync, and checkpoints.

use std::sync::Arc;

use engine::store::StoreError;
use machine::Input;
use machine::event::{InterruptCause, RunRequest, UserMessage};
use machine::id::{MessageId, RunId, ThreadId};
use machine::inbox::Item;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::disk::{Disk, Part};
use crate::fixture::{Clock, World};
use crate::ledger::{Account, Ledger, Promise};
use crate::sqlite_fixture::{Folder, open};
use crate::worker::{Worker, approve, claim, order, reject};

/// A frame of the log: a page of the file, and the frame's header.
const PAGE_BYTES: usize = 4_096 + 24;

/// A store whose operations are recorded.
pub(crate) struct Recording {
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<Disk>,
    pub(crate) ledger: Ledger,
    pub(crate) world: World,
}

impl Recording {
    /// The store has its own writer thread, as in a server.
    pub(crate) fn begin() -> Self {
        Self::on(|folder, clock| World::new(Arc::new(open(folder, clock, false)), clock.clone()))
    }

    pub(crate) fn on(open: impl FnOnce(&Folder, &Clock) -> World) -> Self {
        let folder = Folder::new();
        let disk = Disk::under(&folder.file());
        let ledger = Ledger::new(disk.clone(), &folder.file());
        let world = open(&folder, &Clock::new());
        Self { folder, disk, ledger, world }
    }

    /// Closes the store as a server does, and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let World { store, clock, tenant } = self.world;
        drop(store);
        let store = Arc::new(open(&self.folder, &clock, false));
        Self { world: World { store, clock, tenant }, ..self }
    }

    pub(crate) async fn account(&self) -> Account {
        self.ledger.close(&self.world).await
    }

    async fn commit(&self, worker: &mut Worker) {
        self.ledger.commit(&self.world, worker).await.unwrap();
    }

    async fn start(&self, thread: &str, run: &str) -> Worker {
        self.ledger.start(&self.world, order(thread, run)).await.unwrap()
    }

    async fn take_over(&self, run: &str) -> Worker {
        let mut worker = claim(&self.world, run).await.unwrap();
        worker.take_over();
        self.commit(&mut worker).await;
        worker
    }

    /// A call is held while another executes. The worker releases the run, a person approves, and a worker continues.
    pub(crate) async fn approved_run(&self, name: &str) {
        let thread = ThreadId::from(format!("thr_{name}"));
        let metadata = json!({"title": name});
        self.world.store.put_thread(&self.world.tenant, &thread, &metadata).await.unwrap();
        self.ledger.promised(Promise::Thread(thread.clone()));
        let (held, running) = (format!("pay_{name}"), format!("look_{name}"));
        let mut worker = self.start(thread.as_str(), name).await;
        worker.asks(&[(&held, "transfer"), (&running, "echo")]);
        self.commit(&mut worker).await;
        worker.succeeds(&running);
        self.commit(&mut worker).await;
        assert!(self.world.store.release(&worker.lease).await.unwrap());
        let decision = worker.decision(&held, Some("d1"), approve());
        self.ledger.submit(&self.world, &worker.lease.run, Item::Decision(decision)).await.unwrap();
        let mut worker = self.take_over(name).await;
        worker.succeeds(&held);
        worker.finish_with("paid");
        self.commit(&mut worker).await;
    }

    /// The child's end is delivered with its last commit.
    pub(crate) async fn run_with_a_child(&self, name: &str) {
        let mut parent = self.start(&format!("thr_{name}"), name).await;
        parent.asks(&[("study", "researcher")]);
        self.ledger.send(&parent.lease.run, parent.run.control.seq);
        let born = parent.commit(&self.world).await.unwrap().woken;
        let (run, seq) = (parent.lease.run.clone(), parent.run.control.seq);
        self.ledger.promised(Promise::Log { run, seq });
        let mut child = claim(&self.world, born[0].as_str()).await.unwrap();
        child.apply_input(&Input::Start { after: None });
        self.commit(&mut child).await;
        child.finish_with("found it");
        self.commit(&mut child).await;
        parent.reload(&self.world).await;
        parent.drain();
        self.commit(&mut parent).await;
        parent.finish_with("the child found it");
        self.commit(&mut parent).await;
    }

    /// Many concurrent runs, so that commits share a sync. Each finally waits for a person.
    pub(crate) async fn concurrent_runs(&self, name: &str, count: usize, rounds: usize) {
        let mut tasks = JoinSet::new();
        for index in 0..count {
            let (ledger, world) = (self.ledger.clone(), self.world.clone());
            let run = format!("{name}_{index:02}");
            tasks.spawn(async move {
                let mut worker = ledger.start(&world, order(&format!("thr_{run}"), &run)).await.unwrap();
                for round in 0..rounds {
                    let call = format!("look_{run}_{round}");
                    worker.asks(&[(&call, "echo")]);
                    ledger.commit(&world, &mut worker).await.unwrap();
                    worker.succeeds(&call);
                    ledger.commit(&world, &mut worker).await.unwrap();
                }
                worker.asks(&[(&format!("pay_{run}"), "transfer")]);
                ledger.commit(&world, &mut worker).await.unwrap();
                assert!(world.store.release(&worker.lease).await.unwrap());
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }

    /// The call of one run is denied, and the other run is interrupted.
    pub(crate) async fn ends_of(&self, denied: &str, interrupted: &str) {
        let mut worker = self.take_over(denied).await;
        let no = worker.decision(&format!("pay_{denied}"), Some("d2"), reject());
        worker.accept(Item::Decision(no.clone()));
        self.commit(&mut worker).await;
        self.ledger.promised(Promise::Decision {
            run: RunId::from(denied),
            id: "d2".into(),
            decision: Box::new(no),
        });
        worker.finish_with("as you wish");
        self.commit(&mut worker).await;
        let interrupt = Item::Interrupt { cause: InterruptCause::Person("bob".into()) };
        self.ledger.submit(&self.world, &RunId::from(interrupted), interrupt).await.unwrap();
        let mut worker = claim(&self.world, interrupted).await.unwrap();
        worker.take_over();
        self.commit(&mut worker).await;
    }

    /// Runs that begin with a long message each: the log grows by many pages for few commits.
    pub(crate) async fn long_messages_until_the_log_has(&self, pages: usize) {
        let log = Part::Log.path(&self.folder.file());
        for index in 0.. {
            one_run_with_a_long_message(&self.ledger, &self.world, &format!("long_{index:02}"))
                .await
                .unwrap();
            if std::fs::metadata(&log).unwrap().len() >= (pages * PAGE_BYTES) as u64 {
                return;
            }
        }
    }

    /// Copies the whole log into the file, as the store does when the log has grown. The next commit restarts the log.
    pub(crate) fn checkpoint(&self) {
        let raw = Connection::open(self.folder.file()).unwrap();
        let copied = raw.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (busy, pages, done) = copied.unwrap();
        assert_eq!((busy, done), (0, pages), "a reader kept the checkpoint from copying the whole log");
    }
}

/// Drives a run from its creation through a held call and a decision to its end. Stops when the store refuses a write.
pub(crate) async fn one_run(ledger: &Ledger, world: &World, run: &str) -> Result<(), StoreError> {
    let call = format!("pay_{run}");
    let mut worker = ledger.start(world, order(&format!("thr_{run}"), run)).await?;
    worker.asks(&[(&call, "transfer")]);
    ledger.commit(world, &mut worker).await?;
    let decision = worker.decision(&call, Some("d1"), approve());
    ledger.submit(world, &worker.lease.run, Item::Decision(decision)).await?;
    worker.reload(world).await;
    worker.drain();
    ledger.commit(world, &mut worker).await?;
    worker.succeeds(&call);
    worker.finish_with("paid");
    ledger.commit(world, &mut worker).await
}

/// One commit of many pages.
pub(crate) async fn one_run_with_a_long_message(
    ledger: &Ledger,
    world: &World,
    run: &str,
) -> Result<(), StoreError> {
    let id = MessageId::from(format!("msg_user_{run}"));
    let message = UserMessage { id, content: Arc::new(Value::from("x".repeat(100_000))), by: None };
    let order = RunRequest { message: Some(message), ..order(&format!("thr_{run}"), run) };
    ledger.start(world, order).await.map(drop)
}
