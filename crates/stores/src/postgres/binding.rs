//! A commit as its function takes it: one JSON parameter beside the control and the log. What is empty is left out,
//! and the function does not even look for it.

use engine::store::{PostKey, ThreadView};
use machine::grant::{GrantCoverage, HoldReason};
use machine::id::{MessageId, RunId};
use machine::inbox::Item;
use machine::phase::Scope;
use machine::policy::OnBusy;
use machine::projection_rows::{ClosedRow, GrantRow, OpenedRow, PublicRunStatus};
use machine::thread::{FrontState, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX};
use serde::Serialize;

use super::text::Text;
use crate::entry::{Entry, Newborn, State, Written};
use crate::words::{item_word, millis, number, role_word};

/// Far behind every deadline, and still a number of microseconds.
const WAKE_AT_MAX: i64 = 9_000_000_000_000_000;

#[derive(Serialize)]
pub(super) struct Bound<'e> {
    tenant: Text<'e>,
    /// Of the lease.
    id: Text<'e>,
    of_run: Text<'e>,
    of_thread: Text<'e>,
    seq: i64,
    status: &'static str,
    wake_at: Option<i64>,
    in_doubt: bool,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    interrupts: bool,
    checkpoint: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    birth: Option<Birth<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    consumed: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<BoundItem<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<BoundMessage<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Text<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grants: Vec<BoundGrant<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    state: Vec<BoundState<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspensions: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    voided: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    born: Vec<BoundNewborn<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deliver: Vec<BoundItem<'e>>,
}

/// What few of the commits have that go together.
#[derive(Serialize)]
pub(super) struct Beside<'e> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspensions: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<BoundItem<'e>>,
}

impl<'e> Beside<'e> {
    /// None where there is nothing of it.
    pub(super) fn of(entry: &'e Entry) -> Option<Self> {
        let accepted: Vec<_> = entry.accepted.iter().map(BoundItem::of).collect();
        let suspensions = suspensions(entry);
        (!suspensions.is_empty() || !accepted.is_empty()).then_some(Self { suspensions, accepted })
    }
}

/// What only the first commit of a run has.
#[derive(Serialize)]
struct Birth<'e> {
    agent: Text<'e>,
    parent: Option<Text<'e>>,
    parent_call: Option<Text<'e>>,
    begins_after: Option<Text<'e>>,
    user_message: Option<Text<'e>>,
    created_at: i64,
    /// What each run hears whose place this one takes.
    supersedes: BoundItem<'e>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    key: Option<BoundKey<'e>>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    brought: Option<BoundBrought<'e>>,
}

#[derive(Serialize)]
struct BoundKey<'e> {
    key_scope: Text<'e>,
    key_body: String,
}

#[derive(Serialize)]
struct BoundBrought<'e> {
    brought_digest: String,
    brought_text: Text<'e>,
}

#[derive(Serialize)]
pub(super) struct BoundItem<'e> {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Text<'e>>,
    kind: &'static str,
    call: Option<Text<'e>>,
    early_call: Option<Text<'e>>,
    arguments: Option<String>,
    text: &'e str,
    decision_id: Option<Text<'e>>,
    decision: Option<&'e str>,
}

#[derive(Serialize)]
struct BoundMessage<'e> {
    id: Text<'e>,
    seq: i64,
    role: &'static str,
}

#[derive(Serialize)]
struct BoundGrant<'e> {
    id: Text<'e>,
    given_by: Text<'e>,
    since: i64,
    tool: Option<Text<'e>>,
    agent: Option<Text<'e>>,
    definition: Option<String>,
    reasons: Option<&'e [HoldReason]>,
}

impl<'e> BoundGrant<'e> {
    fn of(row: &'e GrantRow) -> Self {
        let GrantRow { grant, since } = row;
        let granted = match &grant.covers {
            GrantCoverage::Thread => None,
            GrantCoverage::Tool(granted) => Some(granted),
        };
        Self {
            id: Text(grant.id.as_str()),
            given_by: Text(grant.by.as_str()),
            since: millis(*since),
            tool: granted.map(|granted| Text(granted.tool.as_str())),
            agent: granted.and_then(|granted| granted.agent.as_ref()).map(|agent| Text(agent.as_str())),
            definition: granted.map(|granted| granted.definition.to_string()),
            reasons: granted.map(|granted| granted.reasons.as_slice()),
        }
    }
}

#[derive(Serialize)]
struct BoundState<'e> {
    of_thread: bool,
    plugin: Text<'e>,
    key: Text<'e>,
    value: &'e str,
}

#[derive(Default, Serialize)]
struct BoundSuspension<'e> {
    opens: bool,
    id: Text<'e>,
    seq: i64,
    call: Option<Text<'e>>,
    kind: Option<&'static str>,
    arguments: Option<String>,
    at: i64,
    expires_at: Option<i64>,
    status: Option<&'static str>,
    decided_by: Option<Text<'e>>,
    reason: Option<Text<'e>>,
    note: Option<Text<'e>>,
}

#[derive(Serialize)]
struct BoundNewborn<'e> {
    thread: Text<'e>,
    id: Text<'e>,
    agent: Text<'e>,
    parent_call: Option<Text<'e>>,
    promised: Option<Text<'e>>,
    status: &'static str,
    in_doubt: bool,
    wake_at: Option<i64>,
    first_seq: i64,
    last_seq: i64,
    created_at: i64,
    control: String,
    checkpoint: &'static str,
    body: &'e str,
}

/// How a run wants to be admitted to its thread, and which thread that is.
#[derive(Serialize)]
pub(super) struct Asked<'s> {
    /// The number of the thread that was seen; none where there was none.
    thread: Option<i64>,
    head: Option<Text<'s>>,
    /// The run starts in the commit that creates it.
    starts: bool,
    executes: &'static str,
    waits: &'static str,
    /// Every status in which the run in front only waits.
    waits_in: Vec<&'static str>,
    queue_max: usize,
    line_max: usize,
}

impl<'e> Bound<'e> {
    pub(super) fn of(tenant: &'e str, lease_of: &'e RunId, entry: &'e Entry) -> Self {
        let State { run, thread, seq, summary, .. } = &entry.state;
        let rows = &entry.rows;
        Self {
            tenant: Text(tenant),
            id: Text(lease_of.as_str()),
            of_run: Text(run.as_str()),
            of_thread: Text(thread.as_str()),
            seq: number(*seq),
            status: summary.status.as_str(),
            wake_at: wake_at(&entry.state),
            in_doubt: summary.in_doubt,
            started_at: entry.started_at.map(millis),
            ended_at: entry.state.ended_at().map(millis),
            interrupts: entry.accepted.iter().any(|one| matches!(one.item, Item::Interrupt { .. })),
            checkpoint: entry.log.as_ref().map(|log| log.checkpoint),
            birth: None,
            consumed: entry.consumed.iter().copied().map(number).collect(),
            accepted: entry.accepted.iter().map(BoundItem::of).collect(),
            messages: rows
                .messages
                .iter()
                .map(|row| BoundMessage {
                    id: Text(row.id.as_str()),
                    seq: number(row.seq),
                    role: role_word(row.role),
                })
                .collect(),
            calls: rows.calls.iter().map(|call| Text(call.as_str())).collect(),
            grants: rows.grants.iter().map(BoundGrant::of).collect(),
            state: rows
                .state
                .iter()
                .zip(&entry.state_values)
                .map(|(kept, value)| BoundState {
                    of_thread: kept.scope == Scope::Thread,
                    plugin: Text(kept.plugin.as_str()),
                    key: Text(&kept.key),
                    value,
                })
                .collect(),
            suspensions: suspensions(entry),
            voided: rows.voided.iter().map(BoundSuspension::closed).collect(),
            born: entry.spawn.iter().map(BoundNewborn::of).collect(),
            deliver: entry.deliver.iter().map(|(to, one)| BoundItem::to(to, one)).collect(),
        }
    }

    /// The first commit of a run.
    pub(super) fn born(
        mut self,
        entry: &'e Entry,
        begins_after: Option<&'e MessageId>,
        key: Option<&'e PostKey>,
        superseded: &'e Written,
    ) -> Self {
        let state = &entry.state;
        let parent = state.parent.as_ref();
        self.birth = Some(Birth {
            agent: Text(state.agent.as_str()),
            parent: parent.map(|parent| Text(parent.run_id.as_str())),
            parent_call: parent.map(|parent| Text(parent.call_id.as_str())),
            begins_after: begins_after.map(|message| Text(message.as_str())),
            user_message: state.user_message.as_ref().map(|message| Text(message.as_str())),
            created_at: entry.log.as_ref().map_or(0, |log| millis(log.first_at)),
            supersedes: BoundItem::of(superseded),
            key: key.map(|key| BoundKey { key_scope: Text(&key.scope), key_body: key.body.to_string() }),
            brought: entry.brought.as_ref().map(|brought| BoundBrought {
                brought_digest: brought.digest().to_string(),
                brought_text: Text(brought.text()),
            }),
        });
        self
    }
}

pub(super) fn wake_at(state: &State) -> Option<i64> {
    state.wake_at().map(|at| millis(at).min(WAKE_AT_MAX))
}

impl<'e> BoundItem<'e> {
    pub(super) fn of(one: &'e Written) -> Self {
        let (early_call, arguments) = match &one.item {
            Item::Early { decision, digest } => {
                (Some(Text(decision.call.as_str())), Some(digest.to_string()))
            }
            Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
                (None, None)
            }
        };
        let decision = one.item.decision();
        Self {
            to: None,
            kind: item_word(&one.item),
            call: one.item.call().map(|call| Text(call.as_str())),
            early_call,
            arguments,
            text: &one.text,
            decision_id: decision.and_then(|decision| decision.id.as_ref()).map(|id| Text(id.as_str())),
            decision: one.decision.as_deref(),
        }
    }

    fn to(to: &'e RunId, one: &'e Written) -> Self {
        Self { to: Some(Text(to.as_str())), ..Self::of(one) }
    }
}

/// In the order of the log: a call may be held, let go and held again in one commit.
fn suspensions(entry: &Entry) -> Vec<BoundSuspension<'_>> {
    let opened = entry.rows.opened.iter().map(|row| (row.seq, BoundSuspension::opened(row)));
    let closed = entry.rows.closed.iter().map(|row| (row.seq, BoundSuspension::closed(row)));
    let mut all: Vec<_> = closed.chain(opened).collect();
    all.sort_by_key(|(seq, one)| (*seq, one.opens));
    all.into_iter().map(|(_, one)| one).collect()
}

impl<'e> BoundSuspension<'e> {
    fn opened(row: &'e OpenedRow) -> Self {
        Self {
            opens: true,
            id: Text(row.id.as_str()),
            seq: number(row.seq),
            call: Some(Text(row.call.as_str())),
            kind: Some(row.kind.as_str()),
            arguments: row.arguments.map(|digest| digest.to_string()),
            at: millis(row.at),
            expires_at: row.expires_at.map(millis),
            ..Self::default()
        }
    }

    fn closed(row: &'e ClosedRow) -> Self {
        Self {
            opens: false,
            id: Text(row.id.as_str()),
            seq: number(row.seq),
            at: millis(row.at),
            status: Some(row.status.as_str()),
            decided_by: Some(Text(row.by.as_str())),
            reason: row.reason.as_deref().map(Text),
            note: row.note.as_deref().map(Text),
            ..Self::default()
        }
    }
}

impl<'e> BoundNewborn<'e> {
    fn of(born: &'e Newborn) -> Self {
        let Newborn { thread, state, log } = born;
        let summary = state.summary;
        let unstarted = summary.status == PublicRunStatus::Queued;
        Self {
            thread: Text(thread.as_str()),
            id: Text(state.run.as_str()),
            agent: Text(state.agent.as_str()),
            parent_call: state.parent.as_ref().map(|parent| Text(parent.call_id.as_str())),
            promised: state.user_message.as_ref().filter(|_| unstarted).map(|message| Text(message.as_str())),
            status: summary.status.as_str(),
            in_doubt: summary.in_doubt,
            wake_at: wake_at(state),
            first_seq: number(log.first_seq),
            last_seq: number(log.last_seq),
            created_at: millis(log.first_at),
            control: hexadecimal(&state.control),
            checkpoint: log.checkpoint,
            body: &log.body,
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

impl<'s> Asked<'s> {
    pub(super) fn of(seen: &'s ThreadView, if_busy: IfBusy, starts: bool) -> Self {
        let waits = |status: &PublicRunStatus| status.front_state() == FrontState::Waiting;
        Self {
            thread: seen.created_at.map(|_| seen.row),
            head: seen.head.as_ref().map(|head| Text(head.as_str())),
            starts,
            executes: word_of(if_busy.executes),
            waits: word_of(if_busy.waits),
            waits_in: PublicRunStatus::ALL.into_iter().filter(waits).map(PublicRunStatus::as_str).collect(),
            queue_max: QUEUE_MAX,
            line_max: QUEUE_WITH_SUPERSEDING_MAX,
        }
    }
}

const fn word_of(on_busy: OnBusy) -> &'static str {
    match on_busy {
        OnBusy::Reject => "reject",
        OnBusy::Enqueue => "enqueue",
        OnBusy::Interrupt => "interrupt",
    }
}
