//! The stories: what happens in each world if no process is killed, and when. Call ids are unique within a story.

mod hooked;
mod permitted;

use std::time::Duration;

use machine::event::Pending;
use machine::policy::{Continuation, DecisionTiming, Execution, OnBusy, PolicyRequest, WhileWaiting};
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, StopCode, Termination};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::payment_server::{MANNER, Manner};
use crate::wire::{Operation, Reply};

/// The agent of every story. It is also the name of the tool that delegates work to that agent.
pub const AGENT: &str = "clerk";
/// The person who posts messages, decides and interrupts.
pub const PERSON: &str = "ana";
/// The thread to which all messages of a story are posted.
pub const THREAD: &str = "thread-1";
/// The argument of a call whose tool hangs between its act and its answer until a `Story::release_tool` releases it.
pub const HANGS: &str = "hangs";
/// The time to live of approvals that expire. An outage lasts longer.
pub const EXPIRES_IN: Duration = Duration::from_secs(60);
/// The argument that selects what the hook answers about a call.
pub const GATE: &str = "gate";
const OUTAGE: Duration = Duration::from_secs(3_600);

pub mod tools {
    //! The clerk's tools.
    pub const LOOK: &str = "look";
    pub const FILE: &str = "file";
    pub const TRANSFER: &str = "transfer";
    pub const TRANSFER_SOON: &str = "transfer_soon";
    pub const TRANSFER_OR_END: &str = "transfer_or_end";
    pub const SURVEY: &str = "survey";
    pub const ERRAND: &str = "errand";
    pub const SCREEN: &str = "screen";
    /// Sent over HTTP to the payment service.
    pub const CHARGE: &str = "charge";
    /// Tools that write and wait for approval first.
    pub const HELD: [&str; 5] = [TRANSFER, TRANSFER_SOON, TRANSFER_OR_END, SURVEY, CHARGE];
    /// Tools whose result is submitted from outside.
    pub const ELSEWHERE: [&str; 2] = [ERRAND, SCREEN];
}

/// A message as the model reads it: the calls that the model must request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    pub calls: Vec<ScriptedCall>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptedCall {
    pub id: String,
    pub tool: String,
    pub arguments: Value,
}

/// What the hook answers about a call. About any other call it only stores that it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    Block,
    Suspend,
    Supply,
    /// It answers without actions, which is not recorded.
    Silent,
}

/// When a person does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    AtOnce,
    /// The call is waiting for its approval, or has waited for it.
    Held(&'static str),
    /// The call is running, or it is unknown whether it still is.
    UnderWay(&'static str),
    Settled(&'static str),
    /// The decision on the call has been accepted.
    Decided(&'static str),
    /// The run of every message has ended.
    AllEnded,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedMessage {
    pub thread: String,
    pub when: When,
    pub script: Script,
    pub policy: PolicyRequest,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    pub name: &'static str,
    pub messages: Vec<ScriptedMessage>,
    /// The reply to an approval, a question or a call that is performed outside. With `None` the approval expires.
    pub reply: Option<Reply>,
    /// Whether approvals are sent without suspension ids, and sent again until the run has ended.
    pub unnamed: bool,
    /// The reply to a call in doubt.
    pub doubt: Doubt,
    /// When the first run is interrupted.
    pub interrupt: Option<When>,
    /// When auto-approval of the thread is switched on, and when it is switched off.
    pub auto_approve: Option<(When, When)>,
    /// Whether the thread is deleted at the end.
    pub deletes: bool,
    /// Whether the agent has the hook.
    pub hook: bool,
    /// The tool that hangs, and when it may return.
    pub release_tool: Option<(&'static str, When)>,
    /// How much time passes while no process is running.
    pub outage: Duration,
    /// How the first message's run ends. The runs of later messages end naturally.
    pub end: Ending,
    /// How the child runs end.
    pub child_end: Ending,
}

/// How a run ends, no matter which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Natural,
    Rejected,
    Expired,
    Interrupted,
    Superseded,
    ByParent,
}

impl Ending {
    /// Returns `None` for a termination that no story has.
    #[must_use]
    pub const fn from_termination(how: &Termination) -> Option<Self> {
        match how {
            Termination::NaturalEnd => Some(Self::Natural),
            Termination::Cancelled(Cancelled::Interrupted) => Some(Self::Interrupted),
            Termination::Cancelled(Cancelled::Superseded) => Some(Self::Superseded),
            Termination::Cancelled(Cancelled::ByParent) => Some(Self::ByParent),
            Termination::Stopped(stopped) => match stopped.code {
                StopCode::Rejected => Some(Self::Rejected),
                StopCode::Expired => Some(Self::Expired),
                StopCode::MaxRounds
                | StopCode::Timeout
                | StopCode::TokenBudget
                | StopCode::ConsecutiveErrors
                | StopCode::StopOnTool
                | StopCode::ContentMatch
                | StopCode::LoopDetection => None,
            },
            Termination::BehaviorRequested | Termination::Blocked(_) | Termination::Error(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    Retry,
    Happened,
    GiveUp,
    /// The lost attempt answers late.
    LateAnswer,
    /// The approver checks the payment service's ledger: what was charged has happened, the rest is retried.
    Checked,
}

impl Story {
    /// How a message's run ends; messages count from 1. `None` is a child run, which has no message.
    #[must_use]
    pub const fn ending_of(&self, message: Option<usize>) -> Ending {
        match message {
            Some(1) => self.end,
            Some(_) => Ending::Natural,
            None => self.child_end,
        }
    }

    /// Whether a process that plays the story can cross the boundaries of this operation.
    #[must_use]
    pub const fn reaches(&self, operation: Operation) -> bool {
        match operation {
            Operation::Ask => self.hook,
            Operation::ChangeThread => self.deletes || self.auto_approve.is_some(),
            Operation::PutRevision
            | Operation::Create
            | Operation::Claim
            | Operation::Append
            | Operation::Start
            | Operation::Release
            | Operation::Submit
            | Operation::Act => true,
        }
    }

    /// Whether a person or an expiry may deny a held call.
    #[must_use]
    pub fn may_deny(&self) -> bool {
        matches!(self.reply, Some(Reply::Reject | Reply::RejectAndEnd)) || !self.outage.is_zero()
    }

    /// The person's reply to this suspension, or `None` for no reply.
    #[must_use]
    pub fn reply_to(&self, open: &Pending) -> Option<Reply> {
        match open.kind {
            SuspensionKind::Approval => self.reply.clone(),
            SuspensionKind::Question => Some(Reply::Result(json!("the usual one"))),
            SuspensionKind::External | SuspensionKind::ClientTool => {
                Some(Reply::Result(json!({"done": open.call_id})))
            }
            SuspensionKind::InDoubt => match self.doubt {
                Doubt::Retry => Some(Reply::Retry),
                Doubt::Happened => Some(Reply::Result(json!({"done": open.call_id}))),
                Doubt::GiveUp => Some(Reply::GiveUp),
                Doubt::LateAnswer | Doubt::Checked => None,
            },
            SuspensionKind::ChildRun => None,
        }
    }
}

fn call(id: &str, tool: &str) -> ScriptedCall {
    ScriptedCall { id: id.into(), tool: tool.into(), arguments: json!({"for": id}) }
}

fn hanging(id: &str, tool: &str) -> ScriptedCall {
    ScriptedCall { id: id.into(), tool: tool.into(), arguments: json!({"for": id, HANGS: true}) }
}

fn charge(id: &str, manner: Manner) -> ScriptedCall {
    ScriptedCall { id: id.into(), tool: tools::CHARGE.into(), arguments: json!({"for": id, MANNER: manner}) }
}

fn delegated(id: &str, calls: Vec<ScriptedCall>) -> ScriptedCall {
    let message = serde_json::to_string(&Script { calls }).unwrap_or_default();
    ScriptedCall { id: id.into(), tool: AGENT.into(), arguments: json!({"message": message}) }
}

fn scripted_message(calls: Vec<ScriptedCall>) -> ScriptedMessage {
    let policy = PolicyRequest::default();
    ScriptedMessage { thread: THREAD.into(), when: When::AtOnce, script: Script { calls }, policy }
}

/// A story with one message and a person who approves every held call and retries every call in doubt.
fn approved_story(name: &'static str, calls: Vec<ScriptedCall>) -> Story {
    Story {
        name,
        messages: vec![scripted_message(calls)],
        reply: Some(Reply::Approve),
        unnamed: false,
        doubt: Doubt::Retry,
        interrupt: None,
        auto_approve: None,
        deletes: false,
        hook: false,
        release_tool: None,
        outage: Duration::ZERO,
        end: Ending::Natural,
        child_end: Ending::Natural,
    }
}

fn under(mut story: Story, policy: PolicyRequest) -> Story {
    story.messages.iter_mut().for_each(|scripted_message| scripted_message.policy = policy);
    story
}

fn then(
    mut story: Story,
    when: When,
    busy: OnBusy,
    waiting: WhileWaiting,
    calls: Vec<ScriptedCall>,
) -> Story {
    let policy =
        PolicyRequest { on_busy: Some(busy), while_waiting: Some(waiting), ..PolicyRequest::default() };
    story.messages.push(ScriptedMessage { thread: THREAD.into(), when, script: Script { calls }, policy });
    story
}

/// This many runs at once, each on its own thread and each with a write that waits for approval.
#[must_use]
pub fn concurrent_runs(runs: u64) -> Story {
    let message = |number: u64| {
        let calls = vec![
            call(&format!("write-{number}"), tools::TRANSFER),
            call(&format!("look-{number}"), tools::LOOK),
        ];
        ScriptedMessage { thread: format!("thread-{number}"), ..scripted_message(calls) }
    };
    Story { messages: (1..=runs).map(message).collect(), ..approved_story("concurrent-runs", Vec::new()) }
}

#[must_use]
pub fn all() -> Vec<Story> {
    let mut stories = plain();
    stories.extend(interrupted());
    stories.extend(on_one_thread());
    stories.extend(under_other_policies());
    stories.extend(charged());
    stories.extend(hooked::stories());
    stories.extend(permitted::stories());
    stories
}

fn plain() -> Vec<Story> {
    use tools::{ERRAND, FILE, LOOK, SCREEN, SURVEY, TRANSFER, TRANSFER_OR_END, TRANSFER_SOON};
    let write = |name| approved_story(name, vec![call("a", TRANSFER)]);
    let nested =
        |name| approved_story(name, vec![delegated("a", vec![delegated("b", vec![call("c", TRANSFER)])])]);
    vec![
        write("write-retried"),
        Story { doubt: Doubt::Happened, ..write("write-happened") },
        Story { doubt: Doubt::GiveUp, ..write("write-given-up") },
        Story { doubt: Doubt::LateAnswer, ..write("late-answer") },
        Story { unnamed: true, doubt: Doubt::GiveUp, ..write("approved-without-ids") },
        Story {
            reply: Some(Reply::Edit(json!({"for": "a", "with": "care"}))),
            ..approved_story("edited", vec![call("a", TRANSFER), call("b", FILE)])
        },
        approved_story("two-held-one-runs", vec![call("a", TRANSFER), call("b", TRANSFER), call("c", LOOK)]),
        approved_story("repeatable", vec![call("a", LOOK), call("b", FILE), call("c", LOOK)]),
        approved_story("question", vec![call("a", SURVEY)]),
        approved_story("performed-elsewhere", vec![call("a", ERRAND), call("b", SCREEN), call("c", LOOK)]),
        nested("two-levels-down"),
        Story {
            release_tool: Some(("b", When::Settled("a"))),
            ..approved_story("sibling-still-runs", vec![call("a", FILE), hanging("b", TRANSFER)])
        },
        Story {
            reply: None,
            outage: OUTAGE,
            ..approved_story("expires-denied", vec![call("a", TRANSFER_SOON), call("b", LOOK)])
        },
        Story {
            reply: None,
            outage: OUTAGE,
            end: Ending::Expired,
            ..approved_story("expires-ending", vec![call("a", TRANSFER_OR_END), call("b", FILE)])
        },
        Story { outage: OUTAGE, ..approved_story("decided-in-time", vec![call("a", TRANSFER_SOON)]) },
        Story {
            reply: Some(Reply::Reject),
            ..approved_story("rejected", vec![call("a", TRANSFER), call("b", LOOK)])
        },
        Story {
            reply: Some(Reply::RejectAndEnd),
            end: Ending::Rejected,
            ..approved_story("rejected-ending", vec![call("a", TRANSFER), call("b", FILE)])
        },
    ]
}

fn charged() -> Vec<Story> {
    use Manner::{Accepts, BadGateway, HangsUp, HangsUpBefore, Prompt, Refuses, Slow, TooSlow};
    let checked = |name, calls| Story { doubt: Doubt::Checked, ..approved_story(name, calls) };
    vec![
        checked("charged", vec![charge("a", Prompt), charge("b", Slow)]),
        checked("charged-and-cut-off", vec![charge("a", HangsUp), charge("b", BadGateway)]),
        approved_story("charged-too-slowly", vec![charge("a", TooSlow)]),
        checked(
            "not-charged-or-later",
            vec![charge("a", HangsUpBefore), charge("b", Refuses), charge("c", Accepts)],
        ),
        Story { reply: Some(Reply::Reject), ..approved_story("charge-rejected", vec![charge("a", Prompt)]) },
    ]
}

fn interrupted() -> Vec<Story> {
    use tools::{FILE, LOOK, TRANSFER};
    vec![
        Story {
            reply: None,
            interrupt: Some(When::Held("a")),
            end: Ending::Interrupted,
            ..approved_story("interrupted-held", vec![call("a", TRANSFER), call("b", LOOK)])
        },
        Story {
            interrupt: Some(When::UnderWay("a")),
            end: Ending::Interrupted,
            ..approved_story("interrupted-at-work", vec![hanging("a", TRANSFER), call("b", FILE)])
        },
        Story {
            reply: None,
            interrupt: Some(When::Held("b")),
            end: Ending::Interrupted,
            child_end: Ending::ByParent,
            ..approved_story("interrupted-above", vec![delegated("a", vec![call("b", TRANSFER)])])
        },
    ]
}

fn on_one_thread() -> Vec<Story> {
    use tools::{FILE, LOOK, TRANSFER};
    let waits = |name| approved_story(name, vec![call("a", TRANSFER)]);
    vec![
        then(
            waits("queued"),
            When::Held("a"),
            OnBusy::Enqueue,
            WhileWaiting::Enqueue,
            vec![call("b", LOOK), call("c", TRANSFER)],
        ),
        then(
            Story { reply: None, end: Ending::Superseded, ..waits("superseded") },
            When::Held("a"),
            OnBusy::Interrupt,
            WhileWaiting::Supersede,
            vec![call("b", FILE)],
        ),
        then(
            Story { end: Ending::Superseded, ..approved_story("pushed-aside", vec![hanging("a", LOOK)]) },
            When::UnderWay("a"),
            OnBusy::Interrupt,
            WhileWaiting::Supersede,
            vec![call("b", FILE)],
        ),
    ]
}

fn under_other_policies() -> Vec<Story> {
    use tools::{FILE, LOOK, TRANSFER};
    let policy = PolicyRequest::default();
    vec![
        under(
            approved_story(
                "one-after-the-other",
                vec![call("a", LOOK), call("b", TRANSFER), call("c", FILE)],
            ),
            PolicyRequest { execution: Some(Execution::Sequential), ..policy },
        ),
        under(
            approved_story("eager", vec![call("a", LOOK), call("b", TRANSFER)]),
            PolicyRequest { continuation: Some(Continuation::Eager), ..policy },
        ),
        under(
            Story {
                release_tool: Some(("a", When::Decided("b"))),
                ..approved_story("decision-in-the-inbox", vec![hanging("a", LOOK), call("b", TRANSFER)])
            },
            PolicyRequest { decisions: Some(DecisionTiming::AtBoundary), ..policy },
        ),
    ]
}
