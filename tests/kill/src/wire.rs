//! The protocol between the parent and the process that it will kill: one JSON value per line in each direction.

use std::fmt;

use machine::event::Pending;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId, ThreadId, ToolName};
use machine::policy::PolicyRequest;
use machine::status::CallStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request from the parent. Its answer has the same number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub number: u64,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Post(Post),
    Decide(GivenDecision),
    /// Approves a call by nothing but its id. Sent again whenever the answer may have been lost.
    ApproveUnnamed {
        run: RunId,
        call: CallId,
    },
    Interrupt {
        run: RunId,
    },
    /// Lets the thread's later calls through, or ends that.
    AutoApprove {
        thread: ThreadId,
        is_on: bool,
    },
    DeleteThread {
        thread: ThreadId,
    },
    /// A tool that hangs after its act may return.
    ReleaseTool {
        call: CallId,
    },
    /// An attempt of an earlier process answers late.
    LateAnswer {
        run: RunId,
        step: u32,
        call: CallId,
        attempt: u32,
    },
    /// Asks how many boundaries were crossed since the start.
    CountBoundaries,
    /// Everything halted at a boundary continues, and nothing halts any more.
    Resume,
    /// The next task that is about to store something of a run halts before it does.
    HaltBeforeStoring,
    /// Asks for the runs again.
    Show,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Post {
    pub message: MessageId,
    pub thread: ThreadId,
    pub content: Value,
    pub policy: PolicyRequest,
}

/// A decision as a person gave it. It is resent unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenDecision {
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
    /// Approved, and with it every later call of the tool.
    ApproveForLater,
    /// Approved with other arguments.
    Edit(Value),
    Reject,
    RejectAndEnd,
    Result(Value),
    Retry,
    GiveUp,
}

/// A line that the process prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The store has changed.
    RunsSnapshot(RunsSnapshot),
    Responded {
        number: u64,
        response: Response,
    },
    /// A tool has handed its answer to the engine.
    Answered {
        call: CallId,
        attempt: u32,
    },
    /// The process has halted at this boundary.
    Stopped(Boundary),
    /// Shared store only: this node has claimed the run.
    Claimed {
        run: RunId,
        epoch: u64,
    },
    /// Shared store only: an append up to this event was stored.
    Stored {
        run: RunId,
        epoch: u64,
        seq: u64,
    },
    /// Shared store only: an append was refused.
    NotStored {
        run: RunId,
        epoch: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Posted {
        run: RunId,
    },
    /// What was sent has been stored.
    Accepted,
    /// It had been stored before.
    AlreadyApplied,
    Done,
    BoundaryCount {
        count: u64,
    },
    Refused {
        why: String,
    },
    /// The store failed. The change may or may not be stored.
    Trouble {
        why: String,
    },
}

/// The runs in the store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunsSnapshot {
    /// Oldest first.
    pub runs: Vec<RunSnapshot>,
    /// The number of runs in memory.
    pub held_count: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSnapshot {
    pub run: RunId,
    pub message: Option<MessageId>,
    /// The last event's sequence number.
    pub seq: u64,
    pub ended: bool,
    pub waiting: bool,
    pub calls: Vec<CallSnapshot>,
    pub pending: Vec<Pending>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSnapshot {
    pub call: CallId,
    pub tool: ToolName,
    pub step: u32,
    pub status: CallStatus,
    pub attempts: u32,
}

impl RunsSnapshot {
    /// Grows with every commit: the state with the smaller number is older.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.runs.iter().map(|run| run.seq).sum()
    }

    pub fn calls(&self) -> impl Iterator<Item = &CallSnapshot> {
        self.runs.iter().flat_map(|run| &run.calls)
    }

    pub fn pending(&self) -> impl Iterator<Item = (&RunSnapshot, &Pending)> {
        self.runs.iter().flat_map(|run| run.pending.iter().map(move |open| (run, open)))
    }
}

/// One side of an operation with an effect. The process numbers its crossings in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Boundary {
    pub side: Side,
    pub operation: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    PutRevision,
    Create,
    Claim,
    Append,
    /// An append that starts a tool. After it the intent is stored, but nothing has been sent.
    Start,
    Release,
    Submit,
    /// A tool acts. Before: the ledger does not have the act yet. After: the ledger has confirmed it.
    Act,
    /// A hook is asked. Before: nothing was sent. After: it has answered, and nothing of that is stored.
    Ask,
    /// Auto-approval of a thread is set, or a thread is deleted.
    ChangeThread,
}

impl Operation {
    pub const ALL: [Self; 10] = [
        Self::PutRevision,
        Self::Create,
        Self::Claim,
        Self::Append,
        Self::Start,
        Self::Release,
        Self::Submit,
        Self::Act,
        Self::Ask,
        Self::ChangeThread,
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
            Self::Ask => "ask",
            Self::ChangeThread => "change_thread",
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

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.side.as_str(), self.operation.as_str())
    }
}
