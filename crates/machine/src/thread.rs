//! What a new message meets on its thread: admission, queueing, promotion and supersede.

use crate::id::RunId;
use crate::policy::{OnBusy, Policy, PolicyRequest, WhileWaiting};

/// Runs that line up behind the one that holds the thread.
pub const QUEUE_MAX: usize = 100;
/// With those that take its place: a full queue does not keep anybody from that, but while it is on its way to its end they
/// stand in line too.
const LINE_MAX: usize = 2 * QUEUE_MAX;

/// The unended runs of a thread, as the store shows them inside its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    Free,
    Busy {
        /// The run in front: the holder, or the first in the queue while nobody holds the thread.
        front: RunId,
        front_is: Front,
        /// One of its calls is held because it may or may not have taken effect.
        in_doubt: bool,
        queued: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Also with held calls, or on its way to its end.
    Executes,
    Queued,
    /// It only waits.
    Waits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The thread is free: the run holds it at once.
    Hold,
    Enqueue,
    /// The run in front ends as superseded, and the new one holds the thread in the same commit.
    TakeOver {
        from: RunId,
    },
    Refuse(Busy),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    ActiveRun(RunId),
    QueueFull,
    InDoubt(RunId),
}

/// `asked` is the message's own `on_busy`; then its policy counts, then the agent's.
#[must_use]
pub fn admit(thread: &Thread, asked: Option<OnBusy>, request: &PolicyRequest, agent: &Policy) -> Admission {
    let Thread::Busy { front, front_is, in_doubt, queued } = thread else {
        return Admission::Hold;
    };
    let wish = match front_is {
        Front::Executes | Front::Queued => match asked.or(request.on_busy).unwrap_or(agent.on_busy) {
            OnBusy::Reject => Wish::Reject,
            OnBusy::Enqueue => Wish::Enqueue,
            OnBusy::Interrupt => Wish::TakeOver,
        },
        Front::Waits => match (asked, request.while_waiting.unwrap_or(agent.while_waiting)) {
            (Some(OnBusy::Reject), _) | (None, WhileWaiting::Reject) => Wish::Reject,
            (Some(OnBusy::Enqueue), _) | (None, WhileWaiting::Enqueue) => Wish::Enqueue,
            (Some(OnBusy::Interrupt), _) | (None, WhileWaiting::Supersede) => Wish::TakeOver,
        },
    };
    match wish {
        Wish::Reject => Admission::Refuse(Busy::ActiveRun(front.clone())),
        Wish::TakeOver if *in_doubt => Admission::Refuse(Busy::InDoubt(front.clone())),
        Wish::TakeOver if *queued >= LINE_MAX => Admission::Refuse(Busy::QueueFull),
        Wish::TakeOver => Admission::TakeOver { from: front.clone() },
        Wish::Enqueue if *queued >= QUEUE_MAX => Admission::Refuse(Busy::QueueFull),
        Wish::Enqueue => Admission::Enqueue,
    }
}

enum Wish {
    Reject,
    Enqueue,
    TakeOver,
}

/// Who holds the thread after its holder ended: whoever superseded it, else the first in the queue.
#[must_use]
pub fn promote<'q>(
    superseded_by: Option<&'q RunId>,
    mut queue: impl Iterator<Item = &'q RunId>,
) -> Option<&'q RunId> {
    superseded_by.or_else(|| queue.next())
}
