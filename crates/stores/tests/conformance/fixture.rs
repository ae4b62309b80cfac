//! A fresh store for each test, with a clock that the test moves, and the crash that it must survive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::{Store, Tenant};
use machine::Timestamp;
use machine::id::RunId;
use machine::inbox::Item;
use stores::memory::MemoryStore;

/// The clock that the store and all workers of a test share.
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

    /// The same store, seen by another tenant.
    pub(crate) fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Tenant::from(tenant), ..self.clone() }
    }

    pub(crate) async fn run(&self, run: &str) -> engine::store::RunView {
        self.store.run(&self.tenant, &RunId::from(run)).await.unwrap().expect("the run does not exist")
    }

    /// Submits an item that the store must accept.
    pub(crate) async fn submit_accepted(&self, run: &str, item: Item) {
        let verdict = self.store.submit(&self.tenant, &RunId::from(run), item).await.unwrap();
        assert!(verdict.is_taken(), "{verdict}");
    }
}

pub(crate) trait Fixture: Send + Sized + 'static {
    /// How long a request that a lost process has sent may still be in flight.
    const LATE_MS: u64 = 0;

    async fn open() -> (Self, World);

    /// Kills the process without a clean shutdown and restarts it. The old world and all its handles are dropped.
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
