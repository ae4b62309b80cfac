//! A lease on its way to whoever created the run. If nobody waits for it any more, the run is let go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::store::Lease;

use super::claim::let_go;
use super::writer::{Command, Route};

#[derive(Default)]
enum Stage {
    #[default]
    Awaited,
    Given(Lease),
    /// Nobody waits, or it has arrived.
    Over,
}

/// The writer's end.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<Stage>>);

impl Handover {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if somebody waits for it.
    pub(super) fn give(&self, lease: &Lease) -> bool {
        let mut stage = self.stage();
        match *stage {
            Stage::Awaited | Stage::Given(_) => {
                *stage = Stage::Given(lease.clone());
                true
            }
            Stage::Over => false,
        }
    }
}

/// The end of whoever waits. A request that is given up drops it early.
pub(super) struct Receipt<'r> {
    route: &'r Route,
    handover: Handover,
}

impl<'r> Receipt<'r> {
    pub(super) const fn new(route: &'r Route, handover: Handover) -> Self {
        Self { route, handover }
    }

    pub(super) fn sign(&self) {
        *self.handover.stage() = Stage::Over;
    }
}

impl Drop for Receipt<'_> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.handover.stage(), Stage::Over);
        match stage {
            Stage::Awaited | Stage::Over => {}
            Stage::Given(lease) => {
                let (command, _nobody_listens) = Command::new(move |desk| let_go(desk, &lease));
                self.route.post(command);
            }
        }
    }
}
