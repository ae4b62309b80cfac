//! A worker's hold on one run: its own copy, what it has under way, and what reached it but is not stored yet.

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
    /// Of the run when its inbox was last read.
    pub version: u64,
    /// Everything that was accepted before the take-over has been heard.
    pub drained: bool,
    /// The lease is acquired, the inbox not yet drained.
    pub acquired: bool,
    /// The last pass would have overtaken an accepted answer: the inbox is heard first.
    pub hurry: bool,
    pub overtaking_count: u32,
    pub tasks: Vec<Task>,
    pub heard: Vec<Heard>,
    /// What tasks came back with in a pass whose append was refused.
    pub unstored: Vec<Input>,
    /// Decisions that somebody brought to this very worker.
    pub direct: Vec<Written>,
    /// Answers that come a second time, or after their attempt was given up.
    pub echoes: Vec<Input>,
    /// This worker's clock is behind by so much.
    pub skew_ms: u64,
}

/// Something under way.
#[derive(Clone, Debug)]
pub struct Task {
    pub effect: Effect,
    /// Phases before the model call whose hooks had nothing to say.
    pub asked: Vec<Phase>,
    pub done: bool,
}

/// What the hooks of AfterToolExecute said about a call as it stood.
#[derive(Clone, Debug)]
pub struct Heard {
    pub call: CallId,
    pub status: CallStatus,
    pub hooks: HookAnswers,
    pub fresh: bool,
}

/// An attempt that nobody waits for any more and that may answer all the same.
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

    /// The places of tasks that can come back now.
    #[must_use]
    pub fn completable(&self, now: Timestamp) -> Vec<usize> {
        self.tasks
            .iter()
            .zip(0..)
            .filter(|(task, _)| !task.done && not_before(&task.effect) <= now)
            .map(|(_, place)| place)
            .collect()
    }

    /// When the next pause before an attempt is over, or the next deadline comes.
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
