//! What may go wrong around one call of the store, and how often.

use crate::play::tape::Tape;
use crate::world::setup;

/// How much trouble a world has. Many worlds leave some kinds out, which lets the others go deeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineTrouble {
    pub(crate) act_count: usize,
    /// Percentage of store calls that are delayed, before and after their effect.
    pub(crate) delay: usize,
    /// Calls per thousand that are refused, before or after their effect.
    pub(crate) refusal: usize,
    /// Percentage of processes that are lost around one of their commits.
    pub(crate) lost_at_commit: usize,
    /// Percentage of attempts that may not be sent although the lease is valid.
    pub(crate) no_send: usize,
    /// Weights of what happens to a whole process.
    pub(crate) crash: usize,
    pub(crate) hand_over: usize,
    pub(crate) drain: usize,
    /// What models, tools, hooks and people do.
    pub(crate) setup: setup::WorldTrouble,
}

impl EngineTrouble {
    pub(crate) fn draw(tape: &mut Tape, setup: setup::WorldTrouble) -> Self {
        let sometimes = |tape: &mut Tape, weight: usize| if tape.chance(55) { weight } else { 0 };
        Self {
            act_count: 8 + tape.pick(40),
            delay: tape.among([0, 10, 40, 70]),
            refusal: tape.among([0, 10, 40, 100]),
            lost_at_commit: tape.among([0, 60, 90]),
            no_send: sometimes(tape, 4),
            crash: sometimes(tape, 4),
            hand_over: sometimes(tape, 4),
            drain: sometimes(tape, 2),
            setup,
        }
    }

    /// No trouble.
    pub(crate) fn calm() -> Self {
        Self {
            act_count: 0,
            delay: 0,
            refusal: 0,
            lost_at_commit: 0,
            no_send: 0,
            crash: 0,
            hand_over: 0,
            drain: 0,
            setup: setup::WorldTrouble::default(),
        }
    }
}

/// The kind of a store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Append,
    /// Whether the caller gets a lease with it.
    Create {
        lease: bool,
    },
    Submit,
    Release,
    Claim,
    Read,
    /// What an engine writes before it starts.
    Preparation,
}

impl Kind {
    /// Whether a process may be lost right before and right after it.
    pub(crate) const fn is_commit(self) -> bool {
        match self {
            Self::Append | Self::Create { .. } | Self::Submit => true,
            Self::Release | Self::Claim | Self::Read | Self::Preparation => false,
        }
    }

    const fn may_be_refused_before(self) -> bool {
        match self {
            Self::Append | Self::Create { .. } | Self::Submit | Self::Release | Self::Claim | Self::Read => {
                true
            }
            Self::Preparation => false,
        }
    }

    /// A lease that was granted but never arrived would belong to no worker. So a store that may have committed such a
    /// call and cannot say so ends its process instead.
    const fn may_be_refused_after(self) -> bool {
        match self {
            Self::Append | Self::Submit | Self::Release => true,
            Self::Create { lease } => !lease,
            Self::Claim | Self::Read | Self::Preparation => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Plain,
    Refused(Side),
    /// The process is lost.
    Lost(Side),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
    pub(crate) fate: Fate,
}

pub(crate) fn plan(tape: &mut Tape, temper: &EngineTrouble, kind: Kind) -> Plan {
    // Reads are frequent, and a slow one shows little.
    let percent = if kind == Kind::Read { temper.delay / 8 } else { temper.delay };
    let mut pause = || if tape.chance(percent) { 1 + tape.pick(9) as u64 } else { 0 };
    let (before_ms, after_ms) = (pause(), pause());
    let refused =
        temper.refusal > 0 && kind.may_be_refused_before() && tape.pick(1_000) >= 1_000 - temper.refusal;
    let fate = match refused {
        true if kind.may_be_refused_after() && tape.chance(50) => Fate::Refused(Side::After),
        true => Fate::Refused(Side::Before),
        false => Fate::Plain,
    };
    Plan { before_ms, after_ms, fate }
}
