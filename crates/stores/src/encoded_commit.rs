//! A commit in the form that an on-disk store binds. All encoding happens here, before any caller has to wait for it.

use std::sync::Arc;

use engine::store::{Append, InlineAgent, NewChildRun, StoreError};
use machine::chain::{CommitContent, anchor, link};
use machine::event::{Event, Fact, InterruptCause};
use machine::id::{AgentName, Digest, MessageId, Principal, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::projection_rows::{ProjectionRows, PublicRunStatus, RunSummary};
use machine::undecodable::FinalCommit;
use machine::{Control, Timestamp, checkpoint};

use crate::commit_text::{checkpoint_name, commit_body};

/// One commit of a run, ready to be bound.
pub(crate) struct EncodedCommit {
    pub(crate) expected_seq: u64,
    pub(crate) expected_version: u64,
    pub(crate) state: EncodedRun,
    /// `None` if the commit only consumes inbox rows that changed nothing.
    pub(crate) log: Option<EncodedEvents>,
    pub(crate) consumed: Vec<Ticket>,
    pub(crate) accepted: Vec<EncodedItem>,
    pub(crate) spawn: Vec<EncodedChild>,
    pub(crate) deliver: Vec<(RunId, EncodedItem)>,
    pub(crate) rows: ProjectionRows,
    /// The values of `rows.state`, in the same order.
    pub(crate) state_values: Vec<String>,
    pub(crate) started_at: Option<Timestamp>,
    /// The inline agent that came with the message of the run that this creates.
    pub(crate) inline_agent: Option<InlineAgent>,
    /// Total size of everything in here that is bound as text or bytes.
    pub(crate) bytes: u64,
}

/// The plain columns of a run that ends, with the tickets of all items in its inbox.
pub(crate) struct EndingRun {
    pub(crate) id: RunId,
    pub(crate) thread: ThreadId,
    pub(crate) agent: AgentName,
    pub(crate) seq: u64,
    pub(crate) version: u64,
    pub(crate) inbox: Vec<Ticket>,
}

/// What an undecodable run is ended from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndingSource {
    /// Its control, as stored or as folded from its log, if that agrees with its columns.
    Control,
    Columns,
}

/// The cause of an interrupt, from the first inbox row that is decodable and is an interrupt. If there is none, the
/// system principal is the cause.
pub(crate) fn interrupt_cause_in<'t>(texts: impl IntoIterator<Item = &'t str>) -> InterruptCause {
    let items = texts.into_iter().filter_map(|text| serde_json::from_str(text).ok());
    let mut causes = items.filter_map(|item| match item {
        Item::Interrupt { cause } => Some(cause),
        Item::Decision(_) | Item::Early { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => None,
    });
    causes.next().unwrap_or_else(|| InterruptCause::Person(Principal::system()))
}

/// The inbox rows that are readable.
pub(crate) fn readable_items<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<Item> {
    texts.into_iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
}

/// The columns of the run's row after the commit.
pub(crate) struct EncodedRun {
    pub(crate) run: RunId,
    pub(crate) thread: ThreadId,
    pub(crate) agent: AgentName,
    pub(crate) parent: Option<machine::event::Parent>,
    pub(crate) user_message: Option<MessageId>,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) summary: RunSummary,
    pub(crate) control: Vec<u8>,
}

/// The events of one commit, one per line.
pub(crate) struct EncodedEvents {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) first_at: Timestamp,
    pub(crate) checkpoint: &'static str,
    pub(crate) body: String,
    pub(crate) links: CommitLinks,
}

/// What the hash of a commit is computed from, except for the hash of the commit before it.
pub(crate) struct CommitLinks {
    /// Takes the place of the previous hash in the first commit of a chain. `None` if the run's frozen agent is unknown,
    /// because its state cannot be decoded: then the commit starts no chain.
    pub(crate) anchor: Option<Digest>,
    pub(crate) content: Digest,
}

impl CommitLinks {
    /// The hash of the commit after a commit with the hash `previous`.
    pub(crate) fn hash_after(&self, previous: Option<Digest>) -> Option<Digest> {
        previous.or(self.anchor).map(|previous| link(&previous, &self.content))
    }
}

/// The run whose events are encoded.
struct EncodedFor<'e> {
    tenant: &'e str,
    run: &'e RunId,
    /// The frozen agent, if it is known.
    revision: Option<&'e Digest>,
}

impl<'e> EncodedFor<'e> {
    fn from_control(tenant: &'e str, control: &'e Control) -> Self {
        Self { tenant, run: &control.run, revision: Some(&control.revision) }
    }
}

/// An item with its stored form, and the stored form of its decision.
pub(crate) struct EncodedItem {
    pub(crate) item: Item,
    pub(crate) text: String,
    pub(crate) decision: Option<String>,
}

pub(crate) struct EncodedChild {
    pub(crate) thread: ThreadId,
    pub(crate) state: EncodedRun,
    pub(crate) log: EncodedEvents,
}

impl EncodedCommit {
    pub(crate) fn from_append(tenant: &str, append: Append) -> Result<Self, StoreError> {
        let Append {
            expected_seq,
            expected_version,
            events,
            control,
            consumed,
            accepted,
            spawn,
            deliver,
            rows,
        } = append;
        let log = EncodedEvents::encode(&EncodedFor::from_control(tenant, &control), expected_seq, &events)?;
        let state = EncodedRun::from_control(&control)?;
        let last_seq = log.as_ref().map_or(expected_seq, |log| log.last_seq);
        if state.seq != last_seq {
            return Err(impossible(format!("the control is of event {}, not of {last_seq}", state.seq)));
        }
        let accepted = accepted.into_iter().map(EncodedItem::encode).collect::<Result<Vec<_>, _>>()?;
        let spawn = spawn
            .iter()
            .map(|birth| EncodedChild::from_birth(tenant, birth))
            .collect::<Result<Vec<_>, _>>()?;
        let deliver = deliver
            .into_iter()
            .map(|one| Ok((one.to, EncodedItem::encode(one.item)?)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        let state_values = rows.state.iter().map(|kept| kept.value.to_string()).collect();
        let mut commit = Self {
            expected_seq,
            expected_version,
            state,
            log,
            consumed,
            accepted,
            spawn,
            deliver,
            rows,
            state_values,
            started_at: started_at(&events),
            inline_agent: None,
            bytes: 0,
        };
        commit.bytes = commit.byte_count();
        Ok(commit)
    }

    /// The last commit of a run with undecodable stored data. `before` is its stored control, kept if there is no new
    /// one.
    pub(crate) fn for_undecoded_end(
        tenant: &str,
        run: EndingRun,
        last: FinalCommit,
        before: Vec<u8>,
    ) -> Result<Self, StoreError> {
        let FinalCommit { events, rows, deliver, control } = last;
        let events: Vec<Arc<Event>> = events.into_iter().map(Arc::new).collect();
        if let Some(control) = control {
            let (consumed, expected_seq, expected_version) = (run.inbox, run.seq, run.version);
            let (accepted, spawn, control) = (Vec::new(), Vec::new(), Arc::new(control));
            let append = Append {
                expected_seq,
                expected_version,
                events,
                control,
                consumed,
                accepted,
                spawn,
                deliver,
                rows,
            };
            return Self::from_append(tenant, append);
        }
        let log =
            EncodedEvents::encode(&EncodedFor { tenant, run: &run.id, revision: None }, run.seq, &events)?;
        let (seq, at) = events.last().map_or((run.seq, Timestamp::ZERO), |last| (last.seq, last.at));
        let deliver = deliver
            .into_iter()
            .map(|one| Ok((one.to, EncodedItem::encode(one.item)?)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        let mut commit = Self {
            expected_seq: run.seq,
            expected_version: run.version,
            state: EncodedRun {
                run: run.id,
                thread: run.thread,
                agent: run.agent,
                parent: None,
                user_message: None,
                seq,
                at,
                summary: RunSummary {
                    status: PublicRunStatus::Interrupted,
                    wake_at: None,
                    in_doubt: false,
                    ending: false,
                },
                control: before,
            },
            log,
            consumed: run.inbox,
            accepted: Vec::new(),
            spawn: Vec::new(),
            deliver,
            rows,
            state_values: Vec::new(),
            started_at: None,
            inline_agent: None,
            bytes: 0,
        };
        commit.bytes = commit.byte_count();
        Ok(commit)
    }

    /// The first commit of a run, with the inline agent that came along.
    pub(crate) fn for_creation(
        tenant: &str,
        append: Append,
        inline_agent: Option<InlineAgent>,
    ) -> Result<Self, StoreError> {
        inline_agent.as_ref().map_or(Ok(()), |inline_agent| inline_agent.check(&append.control))?;
        let commit = Self::from_append(tenant, append)?;
        let bytes =
            commit.bytes + inline_agent.as_ref().map_or(0, |inline_agent| inline_agent.text().len() as u64);
        Ok(Self { inline_agent, bytes, ..commit })
    }

    fn byte_count(&self) -> u64 {
        let written = |one: &EncodedItem| one.text.len() + one.decision.as_ref().map_or(0, String::len);
        let log = |log: &EncodedEvents| log.body.len();
        let rows: usize = self.rows.messages.iter().map(|row| row.id.as_str().len()).sum::<usize>()
            + self.rows.calls.iter().map(|call| call.as_str().len()).sum::<usize>()
            + self
                .rows
                .opened
                .iter()
                .map(|row| row.id.as_str().len() + row.call.as_str().len())
                .sum::<usize>();
        let all = self.log.as_ref().map_or(0, log)
            + self.state.control.len()
            + self.accepted.iter().map(|one| one.decision.as_ref().map_or(0, String::len)).sum::<usize>()
            + self.deliver.iter().map(|(_, one)| written(one)).sum::<usize>()
            + self.spawn.iter().map(|born| log(&born.log) + born.state.control.len()).sum::<usize>()
            + self.state_values.iter().map(String::len).sum::<usize>()
            + rows;
        all as u64
    }
}

impl EncodedRun {
    fn from_control(control: &Control) -> Result<Self, StoreError> {
        Ok(Self {
            run: control.run.clone(),
            thread: control.thread.clone(),
            agent: control.agent.clone(),
            parent: control.parent.clone(),
            user_message: control.user_message.clone(),
            seq: control.seq,
            at: control.at,
            summary: RunSummary::from_control(control),
            control: control.encode().map_err(impossible)?,
        })
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.summary.status.ended().then_some(self.at)
    }

    /// A run that has ended has no wake time.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.summary.wake_at.filter(|_| !self.summary.status.ended())
    }
}

impl EncodedEvents {
    fn encode(
        of: &EncodedFor<'_>,
        expected_seq: u64,
        events: &[Arc<Event>],
    ) -> Result<Option<Self>, StoreError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(None) };
        for (event, seq) in events.iter().zip(expected_seq + 1..) {
            if event.seq != seq {
                return Err(impossible(format!("found event {} where {seq} belongs", event.seq)));
            }
        }
        let body = commit_body(events.iter().map(|event| &**event))?;
        let checkpoint = checkpoint_name(checkpoint::from_event_iter(events.iter().map(|event| &**event)));
        let (first_seq, last_seq) = (first.seq, last.seq);
        let (tenant, run) = (of.tenant, of.run.as_str());
        let content = CommitContent { tenant, run, first_seq, last_seq, checkpoint, body: &body };
        let links = CommitLinks {
            anchor: of.revision.map(|revision| anchor(revision, first_seq)),
            content: content.hash(),
        };
        Ok(Some(Self { first_seq, last_seq, first_at: first.at, checkpoint, body, links }))
    }
}

impl EncodedItem {
    pub(crate) fn encode(item: Item) -> Result<Self, StoreError> {
        let decision = match item.decision() {
            Some(decision) if decision.id.is_some() => Some(serde_json::to_string(decision)),
            Some(_) | None => None,
        };
        let unwritable = |error: serde_json::Error| impossible(error.to_string());
        let decision = decision.transpose().map_err(unwritable)?;
        Ok(Self { text: serde_json::to_string(&item).map_err(unwritable)?, decision, item })
    }
}

impl EncodedChild {
    fn from_birth(tenant: &str, birth: &NewChildRun) -> Result<Self, StoreError> {
        let state = EncodedRun::from_control(&birth.control)?;
        let of = EncodedFor::from_control(tenant, &birth.control);
        let log = EncodedEvents::encode(&of, 0, std::slice::from_ref(&birth.first))?;
        let log = log.filter(|log| log.last_seq == state.seq && birth.thread == state.thread);
        let log = log.ok_or_else(|| {
            impossible(format!("the control of {} is not of its first event", birth.control.run))
        })?;
        Ok(Self { thread: birth.thread.clone(), state, log })
    }
}

fn impossible(why: String) -> StoreError {
    StoreError::Impossible(why)
}

fn started_at(events: &[Arc<Event>]) -> Option<Timestamp> {
    events.iter().find(|event| matches!(event.fact, Fact::RunStarted { .. })).map(|event| event.at)
}
