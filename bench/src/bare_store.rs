//! The bare store: how long appends of W1's size take when clients call the store without an engine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use engine::store::{Append, Appended, Create, Created, Lease, Store, StoreError, Tenant, ThreadView};
use machine::event::{Origin, RunRequest, Usage, UserMessage};
use machine::id::{CallId, Digest, MessageId, RunId, ThreadId, ToolName};
use machine::input::{GateInput, ModelAnswered, Outcome, RequestedCall, ToolAnswer};
use machine::phase::HookAnswers;
use machine::policy::OnBusy;
use machine::policy::Policy;
use machine::projection_rows::{InboxPosition, ProjectionRows};
use machine::thread::IfBusy;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool, ToolLookup};
use machine::{Event, ImpossibleEvent, Input, Revision, Run, Timestamp, fold, queue};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::environment::{AGENT, ECHOED, Setting, USER, on};
use crate::failure::Failure;
use crate::pace::milliseconds;

const CALLS: [&str; 2] = ["call_0", "call_1"];
/// Batches that do not count: the first ones grow the log.
const WARM_UP_COUNT: usize = 4;

/// The store's performance with a number of concurrent clients.
pub(crate) struct BareStoreTimes {
    /// Each client sends its next append once the last one is acknowledged.
    pub(crate) appends_per_second: f64,
    /// Milliseconds from when all clients send one append each until the last one is acknowledged.
    pub(crate) batches: Vec<f64>,
    pub(crate) syncs_per_batch: f64,
    pub(crate) bytes_per_append: f64,
}

/// A prepared commit that is not sent yet: the results of both calls.
struct Ready {
    lease: Lease,
    append: Append,
}

impl Ready {
    async fn send(self, store: Arc<dyn Store>) -> Result<Appended, StoreError> {
        store.append(&self.lease, self.append).await
    }
}

pub(crate) fn measure(
    runtime: &Runtime,
    setting: &Setting,
    client_count: usize,
    batch_count: usize,
) -> Result<BareStoreTimes, Failure> {
    let setting = setting.clone();
    on(runtime, async move {
        let opened = setting.open().await?;
        let store = &opened.store;
        let mut lanes = prepared(store, client_count, WARM_UP_COUNT + 2 * batch_count).await?;
        for _ in 0..WARM_UP_COUNT {
            batch(store, &mut lanes).await?;
        }
        let before = store.metrics();
        let mut batches = Vec::new();
        for _ in 0..batch_count {
            batches.push(batch(store, &mut lanes).await?);
        }
        let after = store.metrics();
        let append_count = (client_count * batch_count) as f64;
        let seconds = one_after_the_other(store, lanes).await?;
        Ok(BareStoreTimes {
            appends_per_second: append_count / seconds,
            batches,
            syncs_per_batch: (after.syncs - before.syncs) as f64 / batch_count as f64,
            bytes_per_append: (after.bytes - before.bytes) as f64 / append_count,
        })
    })
}

/// Milliseconds for one append of each client, all sent together.
async fn batch(store: &Arc<dyn Store>, lanes: &mut [Vec<Ready>]) -> Result<f64, Failure> {
    let next: Vec<Ready> = lanes.iter_mut().filter_map(Vec::pop).collect();
    let begin = Instant::now();
    let mut sent: JoinSet<_> = next.into_iter().map(|ready| ready.send(store.clone())).collect();
    while let Some(appended) = sent.join_next().await {
        appended??;
    }
    Ok(milliseconds(begin.elapsed()))
}

/// Seconds for all remaining appends.
async fn one_after_the_other(store: &Arc<dyn Store>, lanes: Vec<Vec<Ready>>) -> Result<f64, Failure> {
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for lane in lanes {
        let store = store.clone();
        clients.spawn(async move {
            for ready in lane {
                ready.send(store.clone()).await?;
            }
            Ok::<(), StoreError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// For each client, `append_count` runs whose two calls have returned, which the store does not know yet.
async fn prepared(
    store: &Arc<dyn Store>,
    client_count: usize,
    append_count: usize,
) -> Result<Vec<Vec<Ready>>, Failure> {
    let mut clients = JoinSet::new();
    for client in 0..client_count {
        let store = store.clone();
        clients.spawn(async move {
            let mut lane = Vec::new();
            for number in 0..append_count {
                lane.push(ready(&store, number * client_count + client).await?);
            }
            Ok::<Vec<Ready>, Failure>(lane)
        });
    }
    let mut lanes = Vec::new();
    while let Some(lane) = clients.join_next().await {
        lanes.push(lane??);
    }
    Ok(lanes)
}

/// A run on a thread of its own, stored up to the commit in which its calls started.
async fn ready(store: &Arc<dyn Store>, number: usize) -> Result<Ready, Failure> {
    let now = store.now();
    let order = order(number);
    let seen = ThreadView::absent(order.thread_id.clone());
    let first = queue(order, now);
    let mut run = Run::new(Arc::new(Revision::default()), fold([&first]).map_err(unfit)?);
    let append = commit(&mut run, Some(first), &[Input::Start { after: None }], now)?;
    let create = Create {
        tenant: Tenant::default(),
        seen,
        if_busy: IfBusy { executes: OnBusy::Reject, waits: OnBusy::Reject },
        begins_after: None,
        key: None,
        inline_agent: None,
        lease: true,
        append,
    };
    let Created { lease, version, .. } = store.create(create).await?;
    let lease = lease.ok_or_else(|| Failure::new("no lease was given"))?;
    let [first, second] = CALLS;
    let asked = commit(&mut run, None, &[asking(), gated(first), gated(second)], now)?;
    let asked = Append { expected_version: version, ..asked };
    let expected_version = store.append(&lease, asked).await?.version;
    let append = commit(&mut run, None, &CALLS.map(returned), now)?;
    Ok(Ready { lease, append: Append { expected_version, ..append } })
}

/// The commit that the machine makes of these inputs, as an engine passes it to its store.
fn commit(run: &mut Run, first: Option<Event>, inputs: &[Input], now: Timestamp) -> Result<Append, Failure> {
    let before = first.is_none().then(|| run.control.clone());
    let mut events: Vec<Event> = first.into_iter().collect();
    let mut rows = ProjectionRows::default();
    rows.add_events(before.as_ref(), &events, InboxPosition::default());
    for input in inputs {
        let decided = run.decide(input, now)?.events;
        for event in &decided {
            run.apply(event).map_err(unfit)?;
        }
        rows.add_events(before.as_ref(), &decided, InboxPosition::default());
        events.extend(decided);
    }
    Ok(Append {
        expected_seq: before.map_or(0, |before| before.seq),
        expected_version: 0,
        events: events.into_iter().map(Arc::new).collect(),
        control: Arc::new(run.control.clone()),
        consumed: Vec::new(),
        accepted: Vec::new(),
        spawn: Vec::new(),
        deliver: Vec::new(),
        rows,
    })
}

fn unfit(why: ImpossibleEvent) -> Failure {
    Failure::new(format!("an event does not fit its run: {why:?}"))
}

/// Ids of the same length as an engine's, and also in time order.
fn order(number: usize) -> RunRequest {
    let id = |prefix: &str| format!("{prefix}_0190f3c4-7a3b-7c22-b1a5-{number:012x}");
    RunRequest {
        run_id: RunId::from(id("run")),
        thread_id: ThreadId::from(id("thr")),
        agent: AGENT.into(),
        revision: Digest::sha256(b"revision"),
        policy: Policy::default(),
        loosened_by: None,
        message: Some(UserMessage {
            id: MessageId::from(id("msg")),
            content: Arc::new(json!(USER)),
            by: None,
        }),
        parent: None,
    }
}

fn echoed() -> Arc<Value> {
    Arc::new(json!({"text": ECHOED}))
}

fn arguments() -> Arguments {
    let value = echoed();
    Arguments::Valid { digest: Digest::sha256(value.to_string().as_bytes()), value }
}

fn asking() -> Input {
    let asked =
        |id: &str| RequestedCall { id: id.into(), tool: ToolName::from("echo"), arguments: arguments() };
    Input::ModelAnswered(ModelAnswered {
        step: 1,
        attempt: 1,
        text: String::new(),
        reasoning: None,
        calls: CALLS.map(asked).into(),
        usage: Usage::default(),
        origin: Origin::default(),
        matched: Vec::new(),
        output: None,
        taken: BTreeSet::new(),
        hooks: HookAnswers::default(),
    })
}

fn gated(call: &str) -> Input {
    Input::Gated(GateInput {
        call: CallId::from(call),
        tool: ToolLookup::Known(Tool {
            definition: Digest::sha256(b"definition"),
            class: EffectClass::Read,
            approval: Approval::Never,
            performer: Performer::Server,
            expires_in_ms: None,
            on_expiry: OnExpiry::Deny,
        }),
        arguments: arguments(),
        hits: Vec::new(),
        grants: Vec::new(),
        loosening_ended: false,
        unsent_attempt: None,
        hooks: HookAnswers::default(),
    })
}

fn returned(call: &str) -> Input {
    let answer = ToolAnswer::Success { value: echoed(), warning: None };
    Input::ToolReturned { step: 1, call: CallId::from(call), attempt: 1, outcome: Outcome::Answered(answer) }
}
