//! The boundaries that the process crosses, and the one at which it stands still until it is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::say;
use crate::wire::{Crossing, Line, Passage, Side};

/// Whatever is ready at the boundary goes on as far as it can without changing the store: an answer that is given too
/// early is heard, and an act that comes too early is done.
const TURNS: usize = 64;

#[derive(Clone)]
pub(super) struct Stops {
    count: Arc<AtomicU64>,
    stop_at: Option<u64>,
    /// Acts that the ledger is being told of.
    acting: watch::Sender<u32>,
}

/// The ledger is being told of an act.
pub(super) struct Acting(watch::Sender<u32>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Stops {
    pub(super) fn new(stop_at: Option<u64>) -> Self {
        Self { count: Arc::default(), stop_at, acting: watch::Sender::new(0) }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn acting(&self) -> Acting {
        self.acting.send_modify(|count| *count += 1);
        Acting(self.acting.clone())
    }

    /// From the boundary at which the process stops nothing comes back, and nothing enters or leaves the store.
    pub(super) async fn cross(&self, side: Side, passage: Passage) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let Some(stop_at) = self.stop_at.filter(|stop_at| number >= *stop_at) else { return };
        if number == stop_at {
            let mut acting = self.acting.subscribe();
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                let _ = acting.wait_for(|count| *count == 0).await;
                say(&Line::Stopped(Crossing { side, passage }));
            });
        } else if passage == Passage::Act {
            return;
        }
        std::future::pending().await
    }
}
