//! Holdpoint's pure core. No IO happens here: no clock, no thread, no random number, no network, no disk.
//!
//! The machine decides everything and does nothing. [`Run::decide`] turns an [`Input`] into [`Event`]s or a
//! [`Rejection`] that changed nothing; [`Run::apply`] is the only place where state changes; [`Run::wanted`] returns
//! the effects that should be under way; [`Run::next_deadline`] returns when the run must be woken again, and why.
//! Effects are derived from state, never queued, so recovery is the ordinary path: load the run, process what was
//! accepted in the meantime, derive what is wanted, continue.
//!
//! A driver uses it in exactly this order:
//!
//! 1. Load the [`Control`] of a run ([`Control::decode`]), or make it from the event of [`queue`] with [`fold`].
//! 2. After every claim: [`Input::LeaseAcquired`], then the rows that [`inbox::drain`] names, each turned into an
//!    input by [`inbox::to_input`], then [`Input::InboxDrained`]. Start nothing before that.
//! 3. Submit [`Input::Start`] once the run holds its thread, [`Input::DeadlineReached`] when [`Run::next_deadline`] is
//!    due, and the results of tasks. For each: `decide`, and continue from the state that it returns ([`Decided`]). A
//!    rejected row is consumed too, unless [`Rejection::is_internal_error`]: then stop the run. While an accepted interrupt is
//!    in the inbox, submit results and the rows before it with [`Run::decide_before_interrupt`], then the interrupt,
//!    and nothing else. If the commit would override an accepted answer ([`inbox::overrides_accepted_answer`]), start
//!    the pass again with `include_deferred`.
//! 4. Store all new events in one commit, with the encoded control, the rows consumed, what [`delivery`] derives
//!    from the events, children under [`policy::for_child`], and at the end of the run [`thread::promote`]. If the
//!    store refuses the commit because it accepted something since the inbox was read, load again and repeat the pass.
//!    If it refuses for any other reason, release the run. In both cases nothing was published or started.
//! 5. Publish the events; start what is wanted and not under way ([`Effect::same_task`]); stop what is no longer
//!    wanted.
//! 6. Wait for the inbox, for something under way, or for the deadline.
//!
//! Anything that needs a library which cannot be used here (schemas, canonical digests, regular expressions, access
//! to the live configuration) is passed in with the input.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::expect_used, clippy::indexing_slicing, clippy::unreachable)
)]

extern crate alloc;

pub mod apply;
pub mod audit;
pub mod call;
pub mod call_error;
pub mod chain;
pub mod checkpoint;
pub mod control;
mod decide;
pub mod decision;
pub mod delivery;
pub mod event;
pub mod event_codec;
pub mod grant;
pub mod id;
pub mod inbox;
pub mod input;
pub mod json;
pub mod json_text;
pub mod json_value;
pub mod message;
pub mod model_text;
mod named_enum;
pub mod output;
pub mod phase;
pub mod policy;
pub mod preview;
mod principal;
pub mod projection_rows;
pub mod recently_settled;
mod rejection;
pub mod revision;
pub mod rules;
pub mod status;
pub mod step_projection;
pub mod stop;
pub mod suspension;
pub mod termination;
pub mod thread;
mod time;
pub mod tool;
pub mod transcript;
pub mod trim;
pub mod undecodable;
pub mod visible;
mod wanted;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::borrow::Borrow;

pub use apply::{ImpossibleEvent, fold};
pub use control::Control;
pub use decide::{Decided, InputOutcome, queue};
pub use event::{Event, Fact};
pub use input::Input;
pub use rejection::Rejection;
pub use revision::Revision;
pub use time::Timestamp;
pub use wanted::{Deadline, DeadlineReason, Effect};

/// A run in memory: the frozen agent it is pinned to, and its control state, which a driver may share (`Arc<Control>`).
#[derive(Clone, Debug, PartialEq)]
pub struct Run<C = Control> {
    pub revision: Arc<Revision>,
    pub control: C,
}

impl<C: Borrow<Control>> Run<C> {
    #[must_use]
    pub const fn new(revision: Arc<Revision>, control: C) -> Self {
        Self { revision, control }
    }

    /// What follows from an input. Changes nothing; the events count once they are stored and applied.
    pub fn decide(&self, input: &Input, now: Timestamp) -> Result<Decided, Rejection> {
        decide::decide(&self.revision, self.control.borrow(), input, now, false)
    }

    /// Like [`Run::decide`], for an input that precedes an accepted interrupt. The answer is recorded, and nothing
    /// follows from it: no attempt, no next step and no end other than the interrupt's.
    pub fn decide_before_interrupt(&self, input: &Input, now: Timestamp) -> Result<Decided, Rejection> {
        decide::decide(&self.revision, self.control.borrow(), input, now, true)
    }

    /// The effects that should be under way now.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Effect> {
        wanted::wanted(&self.revision, self.control.borrow())
    }

    /// When the run must be woken even if no input arrives, and why.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        wanted::next_deadline(self.control.borrow())
    }
}

impl Run {
    /// The only place where state changes. An error means that the log cannot be trusted: halt the run and report it.
    pub fn apply(&mut self, event: &Event) -> Result<(), ImpossibleEvent> {
        apply::apply(&mut self.control, event)
    }
}
