//! What the parent says to the process that it will kill, and what it hears from it: one JSON value per line.

use std::fmt;

use machine::event::Pending;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId, ThreadId, ToolName};
use machine::policy::PolicyRequest;
use machine::status::CallStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that the parent wants, under a number that its answer has too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub number: u64,
    pub wish: Wish,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Post(Post),
    Decide(Given),
    /// Yes to a call, by nothing but its id, and said again whenever the answer may have been lost.
    ApproveUnnamed {
        run: RunId,
        call: CallId,
    },
    Interrupt {
        run: RunId,
    },
    /// A tool that hangs after its act may come back.
    Tell {
        call: CallId,
    },
    /// An attempt of an earlier process has answered after all.
    LateAnswer {
        run: RunId,
        step: u32,
        call: CallId,
        attempt: u32,
    },
    /// How many boundaries were crossed since the start.
    CountCrossings,
    /// Whoever stands at a boundary goes on, and nobody stops any more.
    GoOn,
    /// Whoever is about to store something of a run stands still before it does.
    StandBeforeStoring,
    /// The runs are shown again.
    Show,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Post {
    pub message: MessageId,
    pub thread: ThreadId,
    pub content: Value,
    pub policy: PolicyRequest,
}

/// A decision as a person gave it, and gives it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    pub id: DecisionId,
    pub run: RunId,
    pub call: CallId,
    pub suspension: SuspensionId,
    pub reply: Reply,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Approve,
    /// Yes, with other arguments.
    Edit(Value),
    Reject,
    RejectAndEnd,
    Result(Value),
    Retry,
    GiveUp,
}

/// What the process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Something that is stored has changed.
    Shown(Shown),
    Told {
        number: u64,
        word: Word,
    },
    /// A tool has handed its answer to the engine.
    Answered {
        call: CallId,
        attempt: u32,
    },
    /// The process stands at this boundary and goes no further.
    Stopped(Crossing),
    /// Of a store that is shared: the run is held here from now on.
    Claimed {
        run: RunId,
        epoch: u64,
    },
    /// Of a store that is shared: an append up to this event was taken.
    Stored {
        run: RunId,
        epoch: u64,
        seq: u64,
    },
    /// Of a store that is shared: an append was not taken.
    NotStored {
        run: RunId,
        epoch: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    Posted {
        run: RunId,
    },
    /// The decision, the interrupt or the late answer is stored.
    Accepted,
    /// It was stored before.
    AlreadyApplied,
    Done,
    Crossings {
        count: u64,
    },
    Refused {
        why: String,
    },
    /// The store is in trouble. It may be stored or not.
    Trouble {
        why: String,
    },
}

/// The runs as the store shows them at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Oldest first.
    pub runs: Vec<ShownRun>,
    /// Runs that are in memory.
    pub held_count: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownRun {
    pub run: RunId,
    pub message: Option<MessageId>,
    /// Of its last event.
    pub seq: u64,
    pub ended: bool,
    pub waiting: bool,
    pub calls: Vec<ShownCall>,
    pub pending: Vec<Pending>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCall {
    pub call: CallId,
    pub tool: ToolName,
    pub step: u32,
    pub status: CallStatus,
    pub attempts: u32,
}

impl Shown {
    /// Grows with every commit: what has less is older.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.runs.iter().map(|run| run.seq).sum()
    }

    pub fn calls(&self) -> impl Iterator<Item = &ShownCall> {
        self.runs.iter().flat_map(|run| &run.calls)
    }

    pub fn pending(&self) -> impl Iterator<Item = (&ShownRun, &Pending)> {
        self.runs.iter().flat_map(|run| run.pending.iter().map(move |open| (run, open)))
    }
}

/// One side of something that changes the world. Numbered by the process in the order in which it comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Crossing {
    pub side: Side,
    pub passage: Passage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passage {
    PutRevision,
    Create,
    Claim,
    Append,
    /// An append with which a tool starts: behind it, the intent is stored and nothing is sent.
    Start,
    Release,
    Submit,
    /// A tool acts: before the ledger hears of it, and after it has said that it did.
    Act,
}

impl Passage {
    pub const ALL: [Self; 8] = [
        Self::PutRevision,
        Self::Create,
        Self::Claim,
        Self::Append,
        Self::Start,
        Self::Release,
        Self::Submit,
        Self::Act,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PutRevision => "put_revision",
            Self::Create => "create",
            Self::Claim => "claim",
            Self::Append => "append",
            Self::Start => "start",
            Self::Release => "release",
            Self::Submit => "submit",
            Self::Act => "act",
        }
    }
}

impl Side {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.side.as_str(), self.passage.as_str())
    }
}
