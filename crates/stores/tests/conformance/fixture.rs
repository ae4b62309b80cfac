//! A fresh store for each test, with a clock that the test moves, and the crash that it must survive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{Store, Tenant};
use machine::Timestamp;
use machine::id::RunId;
use machine::inbox::Item;
use stores::memory::MemoryStore;

/// The time of everybody in a test: the store's own, and that of the workers.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// A store under test, as every task of a test sees it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) tenant: Tenant,
}

impl World {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { store, clock, tenant: Tenant::from("acme") }
    }

    /// The same store, seen by somebody else.
    pub(crate) fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Tenant::from(tenant), ..self.clone() }
    }

    pub(crate) async fn run(&self, run: &str) -> engine::store::RunView {
        self.store.run(&self.tenant, &RunId::from(run)).await.unwrap().expect("the run is not there")
    }

    /// Submits what must be taken.
    pub(crate) async fn submit_accepted(&self, run: &str, item: Item) {
        let verdict = self.store.submit(&self.tenant, &RunId::from(run), item).await.unwrap();
        assert!(verdict.is_taken(), "{verdict}");
    }
}

pub(crate) trait Fixture: Send + Sized + 'static {
    /// How long a process that is gone may still have something on its way.
    const LATE_MS: u64 = 0;

    async fn open() -> (Self, World);

    /// The process dies without a word and starts again. The old world is given up with every handle in it.
    async fn crash(&mut self, world: World) -> World;
}

pub(crate) struct Memory(MemoryStore);

impl Fixture for Memory {
    #[allow(clippy::unused_async, reason = "other stores wait while they open")]
    async fn open() -> (Self, World) {
        let clock = Clock::new();
        let store_clock = clock.clone();
        let store = MemoryStore::with_clock(Arc::new(move || store_clock.now()));
        (Self(store.clone()), World::new(Arc::new(store), clock))
    }

    #[allow(clippy::unused_async, reason = "other stores wait while they open")]
    async fn crash(&mut self, world: World) -> World {
        let World { store, clock, tenant } = world;
        drop(store);
        self.0 = self.0.reopen();
        World { store: Arc::new(self.0.clone()), clock, tenant }
    }
}
