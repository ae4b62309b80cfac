//! Hands a lease to the caller that created the run. If the caller no longer waits, the run is released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::store::Lease;

use super::claim::abandon;
use super::writer::{WriteCommand, WriterHandle};

#[derive(Default)]
enum HandoverState {
    #[default]
    Awaited,
    Given(Lease),
    /// The caller no longer waits, or has received the lease.
    Over,
}

/// The writer's end.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<HandoverState>>);

impl Handover {
    fn state(&self) -> MutexGuard<'_, HandoverState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the caller still waits for the lease.
    pub(super) fn offer(&self, lease: &Lease) -> bool {
        let mut state = self.state();
        match *state {
            HandoverState::Awaited | HandoverState::Given(_) => {
                *state = HandoverState::Given(lease.clone());
                true
            }
            HandoverState::Over => false,
        }
    }
}

/// The caller's end. A cancelled request drops it early.
pub(super) struct HandoverGuard<'r> {
    writer_handle: &'r WriterHandle,
    handover: Handover,
}

impl<'r> HandoverGuard<'r> {
    pub(super) const fn new(writer_handle: &'r WriterHandle, handover: Handover) -> Self {
        Self { writer_handle, handover }
    }

    pub(super) fn complete(&self) {
        *self.handover.state() = HandoverState::Over;
    }
}

impl Drop for HandoverGuard<'_> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *self.handover.state(), HandoverState::Over);
        match state {
            HandoverState::Awaited | HandoverState::Over => {}
            HandoverState::Given(lease) => {
                let (command, _nobody_listens) = WriteCommand::new(move |tx| abandon(tx, &lease));
                self.writer_handle.send_detached(command);
            }
        }
    }
}
