//! What must hold in every world, by name, and how a breach is reported.

use std::fmt;

/// A breach: which invariant, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}\n  ({})", self.invariant, self.detail, self.invariant.meaning())
    }
}

pub type Checked<T = ()> = Result<T, Violation>;

macro_rules! invariants {
    ($($name:ident: $meaning:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(#[doc = $meaning] $name,)*
        }

        impl Invariant {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What must hold, in one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

invariants! {
    FoldIsControl: "The control that was stored and loaded again is the fold of the log from nothing.";
    EventsSurviveStorage: "An event that was written and read again is the same event.";
    RejectedChangesNothing: "An input that was rejected is rejected alike when it is said again.";
    NothingIsBroken: "The machine never contradicts its own log.";
    WrongInputHasNoEvents: "Duplicates, stale results and malformed decisions emit no event.";
    SeqIsDense: "Events are numbered 1, 2, 3 and so on within a run.";
    TimeNeverDecreases: "The time of an event is never before that of the event in front of it.";
    ControlIsSmall: "The stored control takes at most 16 KiB.";
    CallTransitionIsLegal: "A call changes its state only as the table of the design allows.";
    RunTransitionIsLegal: "A run changes its status only as the table of the design allows.";
    AttemptsAreNumbered: "The attempts of a call are numbered 1, 2, 3 and so on, each started by one event.";
    OneEndPerCall: "A call ends once, and nothing happens to it afterwards.";
    OneEndPerRun: "A run ends once, and its log has nothing after that.";
    EndLeavesNothingOpen: "When a run ends, every call has ended and no suspension is open.";
    StatusIsTheProjection: "The status of a run is what the states of its calls make of it.";
    ExecutingWantsSomething: "A run that executes wants something or has a deadline.";
    WaitingWantsNothing: "A run that waits wants nothing and has an open suspension.";
    WriteStartsOnce: "A write is not started twice unless a person decided in between.";
    HeldCallNeedsItsDecision: "A call that was held runs only by its own decision, on what was shown.";
    DispatchComparesDigests: "What is sent is what was asked for and decided on.";
    GateIsObeyed: "No call runs that a rule, a policy or a tool's own setting holds or forbids.";
    GrantsAreWhatWasAsked: "A grant covers the reasons that held the approved call, and lifts no other one.";
    LooseningIsNamed: "A call let through because a hold was lifted names who lifted it.";
    LooseningNeedsTheRole: "A request makes fewer calls wait only if its sender may approve.";
    ChildAsksAsMuch: "A child run asks about at least as many calls as its parent and its own agent.";
    FailedHookStopsTheCall: "A call whose hooks failed before it never runs.";
    OnlyTheCurrentAttemptSettles: "A lost, old, foreign or repeated attempt settles nothing.";
    WhatWasSaidIsStored: "A result, an edit and the name of the person who decided are stored as they were given.";
    HookAnswersAreKept: "A sound answer of a hook is recorded as given, and each set_state in it changes the state once.";
    RefusalEndsAsSaid: "A denial, an expiry or a block ends the run exactly when decision, suspension or policy say so.";
    CallIdsAreUnique: "No two calls of a thread share an id.";
    OneToolMessagePerCall: "Every ended call has exactly one tool message, in call order.";
    ModelInputIsValid: "In every model input each call has exactly one result, in order, right behind its message.";
    EmptyAnswerEndsTheRun: "An answer without text and calls is tried again once, on the first step, and never fails a run.";
    DroppedCallsAreNoted: "Of an answer every call that fits is taken, and a note counts the others.";
    OneContinuationPerTurn: "A step starts once, and only when the turn before it is complete.";
    EagerLosesNothing: "The model receives every result that comes after its placeholder.";
    OutputIsTheOneWanted: "A run ends by itself only with the output that is wanted, and fails only after one correction.";
    LimitsHold: "No step starts beyond a limit, and a run is stopped for a limit only when it was reached.";
    TreeIsBounded: "A run, and all the runs that it starts, start no more runs than its policy and its parent allow.";
    WaitingIsFree: "Time spent waiting does not count towards the time limit.";
    AcceptedDecisionIsHeard: "What came later never closes what an accepted decision answers.";
    ApprovedCallRuns: "A call that was approved before the end of its run was decided runs, and is awaited.";
    InterruptWins: "Once an interrupt is accepted nothing begins any more, and the run ends interrupted.";
    InboxIsHeardInOrder: "Results come first, then the rest as it came; no result overtakes a decision on its call.";
    VerdictIsRight: "The first good decision on an open suspension is accepted, every other one is refused.";
    ToolsExpiryCounts: "Whatever holds a call, except a child run, expires no later than the call's tool says.";
    ExpiredIsNeverAccepted: "Nothing is approved or answered by a decision that came after the expiry.";
    InboxBeforeAttempts: "After a take-over no attempt starts until every item accepted by then is processed.";
    NothingStartsUnstored: "Only an attempt whose start is stored is sent, and it is sent once.";
    OnlyStoredIsShown: "A watcher of a run sees only events that are already stored.";
    WatchersMissNothing: "A watcher of a run sees every event once, in order, up to the last.";
    StaleWorkerIsRefused: "The store takes nothing from a worker that lost its lease.";
    OneHolderPerThread: "At most one run holds a thread, and the next in line follows when it ends.";
    AdmissionIsRight: "A message is admitted, queued or refused as the policy and the state of its thread say.";
    LastMessageRuns: "A superseding message takes the place of every unended run before it, so the last of several runs.";
    DeletedThreadsStayGone: "A message to a thread that has to exist never creates it.";
    ChildEndIsDeliveredOnce: "The end of a child reaches its parent, once.";
    InterruptReachesChildren: "When a call ends without its child, the child is interrupted.";
    NothingWedges: "Every run ends once everything is answered.";
    ScheduleDoesNotMatter: "Hearing decisions at once or at the boundary gives the same transcript.";
}

/// Returns a breach of the invariant unless `holds`.
pub fn ensure(holds: bool, invariant: Invariant, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

pub fn breach<T>(invariant: Invariant, detail: impl Into<String>) -> Checked<T> {
    Err(Violation { invariant, detail: detail.into() })
}
