//! The takeover of a run: a worker records that it has claimed the run, and drains the inbox before it does anything else.

use machine::Timestamp;

#[derive(Clone, Copy)]
pub(super) struct Takeover {
    /// From then on, an attempt of an earlier worker is certainly not sent any more.
    doubt_at: Timestamp,
    stage: TakeoverStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TakeoverStage {
    Pending,
    /// Everything that was accepted before the takeover has been processed.
    Done,
}

impl Takeover {
    pub(super) const fn pending(doubt_at: Timestamp) -> Self {
        Self { doubt_at, stage: TakeoverStage::Pending }
    }

    /// No attempt of an earlier worker can be lost.
    pub(super) const fn not_needed(doubt_at: Timestamp) -> Self {
        Self { doubt_at, stage: TakeoverStage::Done }
    }

    /// When lost attempts count as in doubt, if the takeover still has to be recorded.
    pub(super) fn due(self) -> Option<Timestamp> {
        (self.stage == TakeoverStage::Pending).then_some(self.doubt_at)
    }

    pub(super) const fn complete(&mut self) {
        self.stage = TakeoverStage::Done;
    }

    pub(super) const fn repeat(&mut self) {
        self.stage = TakeoverStage::Pending;
    }
}
