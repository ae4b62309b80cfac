//! What happens to a new message on its thread: admission, queueing, promotion and supersede.
//!
//! A superseding message replaces every unended run of its thread that was admitted before it, including queued ones.
//! So of several such messages only the last one runs, and none of the others waits in the queue after it.

use core::fmt;

use crate::id::RunId;
use crate::policy::{OnBusy, Policy, PolicyRequest, WhileWaiting};

/// Maximum number of runs that wait for the run that holds the thread.
pub const QUEUE_MAX: usize = 100;
/// The same limit including superseding runs, which a full queue does not refuse: they wait until the runs before them
/// have ended.
pub const QUEUE_WITH_SUPERSEDING_MAX: usize = 2 * QUEUE_MAX;

/// The unended runs of a thread, as the store sees them inside its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadState {
    Free,
    Busy {
        /// The run in front: the holder, or the first in the queue while no run holds the thread.
        front: RunId,
        /// Its descendants count: see [`RunActivity::with_descendants`].
        front_is: FrontState,
        /// One of its calls, or of its descendants' calls, is held because it may or may not have taken effect.
        in_doubt: bool,
        queued: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontState {
    /// Also used for a run with held calls, for one that is ending, and for one that waits for a run that executes.
    Executing,
    Queued,
    /// The run only waits, and so does every run that works for it.
    Waiting,
}

/// An unended run, as far as admission looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunActivity {
    pub state: FrontState,
    pub in_doubt: bool,
}

impl RunActivity {
    /// The run together with the unended runs that it delegated to, directly or through others. A run that waits for a
    /// run that does not wait counts as executing, and a doubt of any of them counts as its own.
    #[must_use]
    pub fn with_descendants(self, descendants: impl IntoIterator<Item = Self>) -> Self {
        descendants.into_iter().fold(self, |front, descendant| {
            let state = match (front.state, descendant.state) {
                (FrontState::Waiting, FrontState::Executing | FrontState::Queued) => FrontState::Executing,
                (state @ (FrontState::Executing | FrontState::Queued | FrontState::Waiting), _) => state,
            };
            Self { state, in_doubt: front.in_doubt || descendant.in_doubt }
        })
    }
}

/// What a message asks for in case its thread is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfBusy {
    /// If the run in front executes or is queued.
    pub executes: OnBusy,
    /// If it only waits.
    pub waits: OnBusy,
}

impl IfBusy {
    /// `asked` is the message's own `on_busy`. Without it the message's policy applies, then the agent's.
    #[must_use]
    pub fn resolve(asked: Option<OnBusy>, request: &PolicyRequest, agent: &Policy) -> Self {
        let waits = match request.while_waiting.unwrap_or(agent.while_waiting) {
            WhileWaiting::Reject => OnBusy::Reject,
            WhileWaiting::Enqueue => OnBusy::Enqueue,
            WhileWaiting::Supersede => OnBusy::Interrupt,
        };
        Self { executes: asked.or(request.on_busy).unwrap_or(agent.on_busy), waits: asked.unwrap_or(waits) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The thread is free: the run holds it at once.
    Hold,
    Enqueue,
    /// The run goes to the end of the queue, and those that [`to_supersede`] names are interrupted in the same commit.
    Supersede,
    Refuse(Busy),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    ActiveRun(RunId),
    QueueFull {
        /// The maximum number of queued runs at which this message is still accepted.
        max: usize,
    },
    InDoubt(RunId),
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ActiveRun(run) => {
                write!(f, "run {run} of this thread has not ended; wait for it, interrupt it, or enqueue")
            }
            Self::QueueFull { max } => write!(f, "{max} runs are queued on this thread"),
            Self::InDoubt(run) => {
                write!(
                    f,
                    "a call of run {run}, or of a run that works for it, is in doubt; a person has to settle it first"
                )
            }
        }
    }
}

#[must_use]
pub fn admit(thread: &ThreadState, if_busy: IfBusy) -> Admission {
    let ThreadState::Busy { front, front_is, in_doubt, queued } = thread else {
        return Admission::Hold;
    };
    let asked = match front_is {
        FrontState::Executing | FrontState::Queued => if_busy.executes,
        FrontState::Waiting => if_busy.waits,
    };
    let full = |max: usize| (*queued >= max).then_some(Admission::Refuse(Busy::QueueFull { max }));
    match asked {
        OnBusy::Reject => Admission::Refuse(Busy::ActiveRun(front.clone())),
        OnBusy::Interrupt if *in_doubt => Admission::Refuse(Busy::InDoubt(front.clone())),
        OnBusy::Interrupt => full(QUEUE_WITH_SUPERSEDING_MAX).unwrap_or(Admission::Supersede),
        OnBusy::Enqueue => full(QUEUE_MAX).unwrap_or(Admission::Enqueue),
    }
}

/// An unended run of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnendedRun<'r> {
    pub run: &'r RunId,
    /// An interrupt was accepted for it: it will end, and starts nothing more.
    pub interrupted: bool,
}

/// The runs that a superseding message interrupts, out of the unended runs of its thread. The others are already
/// ending.
pub fn to_supersede<'r>(unended: impl Iterator<Item = UnendedRun<'r>>) -> impl Iterator<Item = &'r RunId> {
    unended.filter(|one| !one.interrupted).map(|one| one.run)
}

/// The run that gets the thread after its holder has ended: the first in the queue that is not interrupted. Interrupted
/// runs end without the thread; one of them gets it only if no other is queued, so that a later run has a holder before
/// it.
#[must_use]
pub fn promote<'r>(line: impl Iterator<Item = UnendedRun<'r>>) -> Option<&'r RunId> {
    let mut interrupted = None;
    for one in line {
        if !one.interrupted {
            return Some(one.run);
        }
        interrupted = interrupted.or(Some(one.run));
    }
    interrupted
}
