//! A commit in the form that its database function takes: one JSON parameter beside the control and the log. Empty
//! parts are omitted, and the function skips them.

use engine::store::{PostKey, ThreadView};
use machine::audit::AuditRecord;
use machine::grant::{GrantCoverage, HoldReason};
use machine::id::{MessageId, RunId};
use machine::inbox::Item;
use machine::phase::Scope;
use machine::policy::OnBusy;
use machine::projection_rows::{ClosedRow, GrantRow, OpenedRow, PublicRunStatus};
use machine::thread::{FrontState, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX};
use serde::Serialize;

use super::nul_escape::{EscapedText, escape};
use crate::columns::{item_kind_name, millis, role_name, to_i64};
use crate::encoded_commit::{EncodedChild, EncodedCommit, EncodedItem, EncodedRun};

/// Far later than every deadline, and still representable in microseconds.
const WAKE_AT_MAX: i64 = 9_000_000_000_000_000;

#[derive(Serialize)]
pub(super) struct BoundCommit<'e> {
    tenant: EscapedText<'e>,
    /// The run id of the lease.
    id: EscapedText<'e>,
    of_run: EscapedText<'e>,
    of_thread: EscapedText<'e>,
    seq: i64,
    status: &'static str,
    wake_at: Option<i64>,
    in_doubt: bool,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    interrupts: bool,
    checkpoint: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    creation: Option<BoundCreation<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    consumed: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<BoundItem<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<BoundMessage<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<EscapedText<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grants: Vec<BoundGrant<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    state: Vec<BoundState<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspensions: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    voided: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    born: Vec<BoundChild<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deliver: Vec<BoundItem<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit: Vec<BoundAudit>,
}

/// Parts that only few commits of a batch have.
#[derive(Serialize)]
pub(super) struct BatchExtras<'e> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspensions: Vec<BoundSuspension<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<BoundItem<'e>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit: Vec<BoundAudit>,
}

impl<'e> BatchExtras<'e> {
    /// `None` if the commit has none of them.
    pub(super) fn from_commit(tenant: &str, commit: &'e EncodedCommit) -> Option<Self> {
        let accepted: Vec<_> = commit.accepted.iter().map(BoundItem::from_item).collect();
        let suspensions = suspensions(commit);
        let audit = audit(tenant, commit);
        let is_needed = !suspensions.is_empty() || !accepted.is_empty() || !audit.is_empty();
        is_needed.then_some(Self { suspensions, accepted, audit })
    }
}

/// Parts that only the first commit of a run has.
#[derive(Serialize)]
struct BoundCreation<'e> {
    agent: EscapedText<'e>,
    parent: Option<EscapedText<'e>>,
    parent_call: Option<EscapedText<'e>>,
    begins_after: Option<EscapedText<'e>>,
    user_message: Option<EscapedText<'e>>,
    created_at: i64,
    /// The item for each run that this one supersedes.
    supersedes: BoundItem<'e>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    key: Option<BoundKey<'e>>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    inline_agent: Option<BoundInlineAgent<'e>>,
}

#[derive(Serialize)]
struct BoundKey<'e> {
    key_scope: EscapedText<'e>,
    key_body: String,
}

#[derive(Serialize)]
struct BoundInlineAgent<'e> {
    brought_digest: String,
    brought_text: EscapedText<'e>,
}

#[derive(Serialize)]
pub(super) struct BoundItem<'e> {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<EscapedText<'e>>,
    kind: &'static str,
    call: Option<EscapedText<'e>>,
    early_call: Option<EscapedText<'e>>,
    arguments: Option<String>,
    text: &'e str,
    decision_id: Option<EscapedText<'e>>,
    decision: Option<&'e str>,
}

#[derive(Serialize)]
struct BoundMessage<'e> {
    id: EscapedText<'e>,
    seq: i64,
    role: &'static str,
}

#[derive(Serialize)]
struct BoundGrant<'e> {
    id: EscapedText<'e>,
    given_by: EscapedText<'e>,
    since: i64,
    tool: Option<EscapedText<'e>>,
    agent: Option<EscapedText<'e>>,
    definition: Option<String>,
    reasons: Option<&'e [HoldReason]>,
}

impl<'e> BoundGrant<'e> {
    fn from_row(row: &'e GrantRow) -> Self {
        let GrantRow { grant, since } = row;
        let granted = match &grant.covers {
            GrantCoverage::Thread => None,
            GrantCoverage::Tool(granted) => Some(granted),
        };
        Self {
            id: EscapedText(grant.id.as_str()),
            given_by: EscapedText(grant.by.as_str()),
            since: millis(*since),
            tool: granted.map(|granted| EscapedText(granted.tool.as_str())),
            agent: granted
                .and_then(|granted| granted.agent.as_ref())
                .map(|agent| EscapedText(agent.as_str())),
            definition: granted.map(|granted| granted.definition.to_string()),
            reasons: granted.map(|granted| granted.reasons.as_slice()),
        }
    }
}

#[derive(Serialize)]
struct BoundState<'e> {
    of_thread: bool,
    plugin: EscapedText<'e>,
    key: EscapedText<'e>,
    value: &'e str,
}

#[derive(Default, Serialize)]
struct BoundSuspension<'e> {
    opens: bool,
    id: EscapedText<'e>,
    seq: i64,
    call: Option<EscapedText<'e>>,
    kind: Option<&'static str>,
    arguments: Option<String>,
    at: i64,
    expires_at: Option<i64>,
    status: Option<&'static str>,
    decided_by: Option<EscapedText<'e>>,
    reason: Option<EscapedText<'e>>,
    note: Option<EscapedText<'e>>,
}

#[derive(Serialize)]
pub(super) struct BoundAudit {
    at: i64,
    action: &'static str,
    actor: String,
    /// JSON, which contains no NUL.
    body: String,
}

/// What the commit adds to the audit record.
fn audit(tenant: &str, commit: &EncodedCommit) -> Vec<BoundAudit> {
    let EncodedRun { run, thread, .. } = &commit.state;
    let records = commit.rows.audit.iter().map(|entry| entry.to_record_of_run(tenant, thread, run));
    records.map(BoundAudit::from_record).collect()
}

impl BoundAudit {
    pub(super) fn from_record(record: AuditRecord) -> Self {
        let AuditRecord { at, action, by, body } = record;
        Self { at: millis(at), action: action.as_str(), actor: escape(by.as_str()).into_owned(), body }
    }
}

#[derive(Serialize)]
struct BoundChild<'e> {
    thread: EscapedText<'e>,
    id: EscapedText<'e>,
    agent: EscapedText<'e>,
    parent_call: Option<EscapedText<'e>>,
    promised: Option<EscapedText<'e>>,
    status: &'static str,
    in_doubt: bool,
    wake_at: Option<i64>,
    first_seq: i64,
    last_seq: i64,
    created_at: i64,
    control: String,
    checkpoint: &'static str,
    body: &'e str,
    hash: Option<String>,
}

/// How a run asks to be admitted to its thread, and to which thread.
#[derive(Serialize)]
pub(super) struct AdmissionRequest<'s> {
    /// The number of the thread that was read; `None` if it did not exist.
    thread: Option<i64>,
    head: Option<EscapedText<'s>>,
    /// The run starts in the commit that creates it.
    starts: bool,
    executes: &'static str,
    waits: &'static str,
    /// Every status in which the run at the front only waits.
    waits_in: Vec<&'static str>,
    queue_max: usize,
    line_max: usize,
}

impl<'e> BoundCommit<'e> {
    pub(super) fn new(tenant: &'e str, parse_lease: &'e RunId, commit: &'e EncodedCommit) -> Self {
        let EncodedRun { run, thread, seq, summary, .. } = &commit.state;
        let rows = &commit.rows;
        Self {
            tenant: EscapedText(tenant),
            id: EscapedText(parse_lease.as_str()),
            of_run: EscapedText(run.as_str()),
            of_thread: EscapedText(thread.as_str()),
            seq: to_i64(*seq),
            status: summary.status.as_str(),
            wake_at: wake_at(&commit.state),
            in_doubt: summary.in_doubt,
            started_at: commit.started_at.map(millis),
            ended_at: commit.state.ended_at().map(millis),
            interrupts: commit.accepted.iter().any(|one| matches!(one.item, Item::Interrupt { .. })),
            checkpoint: commit.log.as_ref().map(|log| log.checkpoint),
            creation: None,
            consumed: commit.consumed.iter().copied().map(to_i64).collect(),
            accepted: commit.accepted.iter().map(BoundItem::from_item).collect(),
            messages: rows
                .messages
                .iter()
                .map(|row| BoundMessage {
                    id: EscapedText(row.id.as_str()),
                    seq: to_i64(row.seq),
                    role: role_name(row.role),
                })
                .collect(),
            calls: rows.calls.iter().map(|call| EscapedText(call.as_str())).collect(),
            grants: rows.grants.iter().map(BoundGrant::from_row).collect(),
            state: rows
                .state
                .iter()
                .zip(&commit.state_values)
                .map(|(kept, value)| BoundState {
                    of_thread: kept.scope == Scope::Thread,
                    plugin: EscapedText(kept.plugin.as_str()),
                    key: EscapedText(&kept.key),
                    value,
                })
                .collect(),
            suspensions: suspensions(commit),
            voided: rows.voided.iter().map(BoundSuspension::closed).collect(),
            born: commit.spawn.iter().map(BoundChild::from_child).collect(),
            deliver: commit.deliver.iter().map(|(to, one)| BoundItem::to(to, one)).collect(),
            audit: audit(tenant, commit),
        }
    }

    /// Adds the parts of a run's first commit.
    pub(super) fn with_creation(
        mut self,
        commit: &'e EncodedCommit,
        begins_after: Option<&'e MessageId>,
        key: Option<&'e PostKey>,
        superseded: &'e EncodedItem,
    ) -> Self {
        let state = &commit.state;
        let parent = state.parent.as_ref();
        self.creation = Some(BoundCreation {
            agent: EscapedText(state.agent.as_str()),
            parent: parent.map(|parent| EscapedText(parent.run_id.as_str())),
            parent_call: parent.map(|parent| EscapedText(parent.call_id.as_str())),
            begins_after: begins_after.map(|message| EscapedText(message.as_str())),
            user_message: state.user_message.as_ref().map(|message| EscapedText(message.as_str())),
            created_at: commit.log.as_ref().map_or(0, |log| millis(log.first_at)),
            supersedes: BoundItem::from_item(superseded),
            key: key
                .map(|key| BoundKey { key_scope: EscapedText(&key.scope), key_body: key.body.to_string() }),
            inline_agent: commit.inline_agent.as_ref().map(|inline_agent| BoundInlineAgent {
                brought_digest: inline_agent.digest().to_string(),
                brought_text: EscapedText(inline_agent.text()),
            }),
        });
        self
    }
}

pub(super) fn wake_at(state: &EncodedRun) -> Option<i64> {
    state.wake_at().map(|at| millis(at).min(WAKE_AT_MAX))
}

impl<'e> BoundItem<'e> {
    pub(super) fn from_item(one: &'e EncodedItem) -> Self {
        let (early_call, arguments) = match &one.item {
            Item::Early { decision, digest } => {
                (Some(EscapedText(decision.call.as_str())), Some(digest.to_string()))
            }
            Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
                (None, None)
            }
        };
        let decision = one.item.decision();
        Self {
            to: None,
            kind: item_kind_name(&one.item),
            call: one.item.call().map(|call| EscapedText(call.as_str())),
            early_call,
            arguments,
            text: &one.text,
            decision_id: decision
                .and_then(|decision| decision.id.as_ref())
                .map(|id| EscapedText(id.as_str())),
            decision: one.decision.as_deref(),
        }
    }

    fn to(to: &'e RunId, one: &'e EncodedItem) -> Self {
        Self { to: Some(EscapedText(to.as_str())), ..Self::from_item(one) }
    }
}

/// In the order of the log: a call may be held, released and held again in one commit.
fn suspensions(commit: &EncodedCommit) -> Vec<BoundSuspension<'_>> {
    let opened = commit.rows.opened.iter().map(|row| (row.seq, BoundSuspension::opened(row)));
    let closed = commit.rows.closed.iter().map(|row| (row.seq, BoundSuspension::closed(row)));
    let mut all: Vec<_> = closed.chain(opened).collect();
    all.sort_by_key(|(seq, one)| (*seq, one.opens));
    all.into_iter().map(|(_, one)| one).collect()
}

impl<'e> BoundSuspension<'e> {
    fn opened(row: &'e OpenedRow) -> Self {
        Self {
            opens: true,
            id: EscapedText(row.id.as_str()),
            seq: to_i64(row.seq),
            call: Some(EscapedText(row.call.as_str())),
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
            id: EscapedText(row.id.as_str()),
            seq: to_i64(row.seq),
            at: millis(row.at),
            status: Some(row.status.as_str()),
            decided_by: Some(EscapedText(row.by.as_str())),
            reason: row.reason.as_deref().map(EscapedText),
            note: row.note.as_deref().map(EscapedText),
            ..Self::default()
        }
    }
}

impl<'e> BoundChild<'e> {
    fn from_child(born: &'e EncodedChild) -> Self {
        let EncodedChild { thread, state, log } = born;
        let summary = state.summary;
        let unstarted = summary.status == PublicRunStatus::Queued;
        Self {
            thread: EscapedText(thread.as_str()),
            id: EscapedText(state.run.as_str()),
            agent: EscapedText(state.agent.as_str()),
            parent_call: state.parent.as_ref().map(|parent| EscapedText(parent.call_id.as_str())),
            promised: state
                .user_message
                .as_ref()
                .filter(|_| unstarted)
                .map(|message| EscapedText(message.as_str())),
            status: summary.status.as_str(),
            in_doubt: summary.in_doubt,
            wake_at: wake_at(state),
            first_seq: to_i64(log.first_seq),
            last_seq: to_i64(log.last_seq),
            created_at: millis(log.first_at),
            control: hexadecimal(&state.control),
            checkpoint: log.checkpoint,
            body: &log.body,
            hash: log.links.hash_after(None).map(|hash| hash.to_string()),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

impl<'s> AdmissionRequest<'s> {
    pub(super) fn new(seen: &'s ThreadView, if_busy: IfBusy, starts: bool) -> Self {
        let waits = |status: &PublicRunStatus| status.front_state() == FrontState::Waiting;
        Self {
            thread: seen.created_at.map(|_| seen.row),
            head: seen.head.as_ref().map(|head| EscapedText(head.as_str())),
            starts,
            executes: on_busy_name(if_busy.executes),
            waits: on_busy_name(if_busy.waits),
            waits_in: PublicRunStatus::ALL.into_iter().filter(waits).map(PublicRunStatus::as_str).collect(),
            queue_max: QUEUE_MAX,
            line_max: QUEUE_WITH_SUPERSEDING_MAX,
        }
    }
}

const fn on_busy_name(on_busy: OnBusy) -> &'static str {
    match on_busy {
        OnBusy::Reject => "reject",
        OnBusy::Enqueue => "enqueue",
        OnBusy::Interrupt => "interrupt",
    }
}
