//! The stored key of callbacks is rotated while a process runs: what that process accepts, and how often it looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::agent::Agent;
use engine::callback::{CallbackKey, KeyRotation, StoredCallbackKeys};
use engine::store::{BoxFuture, ClusterStore, Notification, Store, StoreError, Wrapper};
use engine::{Engine, Settings};
use machine::id::Digest;
use stores::memory::MemoryStore;

use crate::harness::{Harness, asking};

/// A store that other processes may use too. It counts how often its callback keys are read.
struct CountingStore {
    inner: MemoryStore,
    is_shared: bool,
    reads: Arc<AtomicU32>,
}

impl Wrapper for CountingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn next_notification(&self) -> BoxFuture<'_, Notification> {
        Box::pin(std::future::pending())
    }

    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.callback_keys(drawn)
    }
}

/// The token of another process with this key.
fn token(key: CallbackKey, path: &str) -> String {
    let id = Digest::hmac_sha256(key.as_bytes(), b"holdpoint callback key id").to_string();
    format!("{}.{}", &id[..8], Digest::hmac_sha256(key.as_bytes(), path.as_bytes()))
}

fn path() -> String {
    r#"["default","run_1","call_0",1]"#.bytes().map(|byte| format!("{byte:02x}")).collect()
}

async fn started(harness: &Harness, is_shared: bool) -> (Engine, Arc<AtomicU32>) {
    let reads = Arc::default();
    let store = CountingStore { inner: harness.store.clone(), is_shared, reads: Arc::clone(&reads) };
    let settings =
        Settings { callbacks_at: Some("https://runs.example.org/callbacks".into()), ..Settings::default() };
    let engine = harness.engine_on(Arc::new(store)).settings(settings);
    (engine.agent(Agent::new("assistant", asking(&[]))).start().await.unwrap(), reads)
}

const OLD: [u8; 32] = [7; 32];
const NEW: [u8; 32] = [8; 32];

#[tokio::test(start_paused = true)]
async fn a_process_that_runs_during_a_rotation_accepts_both_keys() {
    let harness = Harness::new();
    harness.store.callback_keys(Some(CallbackKey::from(OLD))).await.unwrap();
    let (engine, reads) = started(&harness, true).await;
    let (old, new) = (token(OLD.into(), &path()), token(NEW.into(), &path()));
    assert!(engine.verify_callback(&path(), &old).await.is_some());
    assert_eq!(reads.load(Ordering::Relaxed), 1, "only at its start");
    assert_eq!(harness.store.rotate_callback_key(NEW.into()).await, Ok(KeyRotation::Rotated));
    for token in [&new, &old, &new] {
        assert!(engine.verify_callback(&path(), token).await.is_some(), "{token}");
    }
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn guesses_have_the_keys_read_at_most_once_in_a_second_and_only_from_a_shared_store() {
    let harness = Harness::new();
    let (engine, reads) = started(&harness, true).await;
    let guess = token(CallbackKey::from([9; 32]), &path());
    for unnamed in ["", "guess", ".", "a.b", "1234567.8", &guess[9..]] {
        assert_eq!(engine.verify_callback(&path(), unnamed).await, None);
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1, "only at its start");
    for expected in [2, 3] {
        for _ in 0..5 {
            assert_eq!(engine.verify_callback(&path(), &guess).await, None);
        }
        assert_eq!(reads.load(Ordering::Relaxed), expected);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let (alone, reads) = started(&Harness::new(), false).await;
    assert_eq!(alone.verify_callback(&path(), &guess).await, None);
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}
