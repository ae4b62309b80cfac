//! A worker's session on one run: its own copy, its tasks, and the inputs that are not stored yet.

use machine::id::CallId;
use machine::phase::{HookAnswers, Phase};
use machine::status::CallStatus;
use machine::{Effect, Input, Run, Timestamp};

use crate::world::people::Written;
use crate::world::store::RunIndex;

#[derive(Clone, Debug)]
pub struct Session {
    pub run: RunIndex,
    pub epoch: u64,
    pub copy: Run,
    pub expected_seq: u64,
    /// The run's version when its inbox was last read.
    pub version: u64,
    /// Everything that was accepted before the takeover has been processed.
    pub drained: bool,
    /// The lease is acquired, but the inbox may not be drained yet.
    pub acquired: bool,
    /// The last pass would have overtaken an accepted answer, so the inbox is processed first.
    pub hurry: bool,
    pub overtaking_count: u32,
    pub tasks: Vec<Task>,
    pub heard: Vec<Heard>,
    /// The results of tasks in a pass whose append was refused.
    pub unstored: Vec<Input>,
    /// Decisions that were sent directly to this worker.
    pub direct: Vec<Written>,
    /// Answers that arrive a second time, or after their attempt was abandoned.
    pub echoes: Vec<Input>,
    /// How far this worker's clock is behind.
    pub skew_ms: u64,
}

/// A task in flight.
#[derive(Clone, Debug)]
pub struct Task {
    pub effect: Effect,
    /// Phases before the model call whose hooks answered with nothing.
    pub asked: Vec<Phase>,
    pub done: bool,
}

/// What the `AfterToolExecute` hooks answered about a call with this status.
#[derive(Clone, Debug)]
pub struct Heard {
    pub call: CallId,
    pub status: CallStatus,
    pub hooks: HookAnswers,
    pub fresh: bool,
}

/// An attempt that no worker waits for any more, but that may still answer.
#[derive(Clone, Debug)]
pub struct Ghost {
    pub run: RunIndex,
    pub step: u32,
    pub call: CallId,
    pub attempt: u32,
}

impl Session {
    #[must_use]
    pub const fn new(run: RunIndex, epoch: u64, copy: Run, version: u64, skew_ms: u64) -> Self {
        let expected_seq = copy.control.seq;
        Self {
            run,
            epoch,
            copy,
            expected_seq,
            version,
            drained: false,
            acquired: false,
            hurry: false,
            overtaking_count: 0,
            tasks: Vec::new(),
            heard: Vec::new(),
            unstored: Vec::new(),
            direct: Vec::new(),
            echoes: Vec::new(),
            skew_ms,
        }
    }

    #[must_use]
    pub const fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_sub(self.skew_ms))
    }

    /// The indices of tasks that can complete now.
    #[must_use]
    pub fn completable(&self, now: Timestamp) -> Vec<usize> {
        self.tasks
            .iter()
            .zip(0..)
            .filter(|(task, _)| !task.done && not_before(&task.effect) <= now)
            .map(|(_, place)| place)
            .collect()
    }

    /// When the next pause before an attempt ends, or the next deadline comes.
    #[must_use]
    pub fn next_moment(&self, now: Timestamp) -> Option<Timestamp> {
        self.tasks
            .iter()
            .map(|task| not_before(&task.effect))
            .chain(self.copy.next_deadline().map(|deadline| deadline.at))
            .filter(|at| *at > now)
            .min()
    }
}

#[must_use]
pub fn not_before(effect: &Effect) -> Timestamp {
    match effect {
        Effect::CallModel { not_before, .. } | Effect::RunTool { not_before, .. } => *not_before,
        Effect::RunPhase(_) | Effect::Gate(_) | Effect::RunAfterToolHooks { .. } => Timestamp::ZERO,
    }
}
