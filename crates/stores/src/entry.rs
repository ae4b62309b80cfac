//! A commit as a store on disk binds it. All the encoding happens here, before anybody waits for it.

use std::sync::Arc;

use engine::store::{Append, Birth, Brought, Refused};
use machine::event::{Event, Fact};
use machine::id::{AgentName, MessageId, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::rows::{Rows, Standing};
use machine::{Control, Timestamp, checkpoint, stored};

use crate::words::checkpoint_word;

/// One commit of a run, ready to be bound.
pub(crate) struct Entry {
    pub(crate) expected_seq: u64,
    pub(crate) expected_version: u64,
    pub(crate) state: State,
    /// None where rows were consumed that changed nothing.
    pub(crate) log: Option<Log>,
    pub(crate) consumed: Vec<Ticket>,
    pub(crate) accepted: Vec<Written>,
    pub(crate) spawn: Vec<Newborn>,
    pub(crate) deliver: Vec<(RunId, Written)>,
    pub(crate) rows: Rows,
    /// The values of `rows.state`, in the same order.
    pub(crate) state_values: Vec<String>,
    pub(crate) started_at: Option<Timestamp>,
    /// What came with the message of the run that this creates.
    pub(crate) brought: Option<Brought>,
    /// Of everything in here that is bound as text or bytes.
    pub(crate) bytes: u64,
}

/// What the run's row says after the commit.
pub(crate) struct State {
    pub(crate) run: RunId,
    pub(crate) thread: ThreadId,
    pub(crate) agent: AgentName,
    pub(crate) parent: Option<machine::event::Parent>,
    pub(crate) user_message: Option<MessageId>,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) standing: Standing,
    pub(crate) control: Vec<u8>,
}

/// The events of one commit, one a line.
pub(crate) struct Log {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) first_at: Timestamp,
    pub(crate) checkpoint: &'static str,
    pub(crate) body: String,
}

/// An item with its stored form, and that of the decision in it.
pub(crate) struct Written {
    pub(crate) item: Item,
    pub(crate) text: String,
    pub(crate) decision: Option<String>,
}

pub(crate) struct Newborn {
    pub(crate) thread: ThreadId,
    pub(crate) state: State,
    pub(crate) log: Log,
}

impl Entry {
    pub(crate) fn of(append: Append) -> Result<Self, Refused> {
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
        let log = Log::of(expected_seq, &events)?;
        let state = State::of(&control)?;
        let last_seq = log.as_ref().map_or(expected_seq, |log| log.last_seq);
        if state.seq != last_seq {
            return Err(impossible(format!("the control is of event {}, not of {last_seq}", state.seq)));
        }
        let accepted = accepted.into_iter().map(Written::of).collect::<Result<Vec<_>, _>>()?;
        let spawn = spawn.iter().map(Newborn::of).collect::<Result<Vec<_>, _>>()?;
        let deliver = deliver
            .into_iter()
            .map(|one| Ok((one.to, Written::of(one.item)?)))
            .collect::<Result<Vec<_>, Refused>>()?;
        let state_values = rows.state.iter().map(|kept| kept.value.to_string()).collect();
        let mut entry = Self {
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
            brought: None,
            bytes: 0,
        };
        entry.bytes = entry.byte_count();
        Ok(entry)
    }

    /// The first commit of a run, with what came along.
    pub(crate) fn born(append: Append, brought: Option<Brought>) -> Result<Self, Refused> {
        brought.as_ref().map_or(Ok(()), |brought| brought.check(&append.control))?;
        let entry = Self::of(append)?;
        let bytes = entry.bytes + brought.as_ref().map_or(0, |brought| brought.text().len() as u64);
        Ok(Self { brought, bytes, ..entry })
    }

    fn byte_count(&self) -> u64 {
        let written = |one: &Written| one.text.len() + one.decision.as_ref().map_or(0, String::len);
        let log = |log: &Log| log.body.len();
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

impl State {
    fn of(control: &Control) -> Result<Self, Refused> {
        Ok(Self {
            run: control.run.clone(),
            thread: control.thread.clone(),
            agent: control.agent.clone(),
            parent: control.parent.clone(),
            user_message: control.user_message.clone(),
            seq: control.seq,
            at: control.at,
            standing: Standing::of(control),
            control: control.encode().map_err(impossible)?,
        })
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.standing.status.ended().then_some(self.at)
    }

    /// A run that has ended is woken by nothing.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.standing.wake_at.filter(|_| !self.standing.status.ended())
    }
}

impl Log {
    fn of(expected_seq: u64, events: &[Arc<Event>]) -> Result<Option<Self>, Refused> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(None) };
        let mut body = String::new();
        for (event, seq) in events.iter().zip(expected_seq + 1..) {
            if event.seq != seq {
                return Err(impossible(format!("event {} stands where {seq} belongs", event.seq)));
            }
            if !body.is_empty() {
                body.push('\n');
            }
            body.push_str(&stored::write(event).map_err(impossible)?);
        }
        Ok(Some(Self {
            first_seq: first.seq,
            last_seq: last.seq,
            first_at: first.at,
            checkpoint: checkpoint_word(checkpoint::name_of(events.iter().map(|event| &**event))),
            body,
        }))
    }
}

impl Written {
    pub(crate) fn of(item: Item) -> Result<Self, Refused> {
        let decision = match item.decision() {
            Some(decision) if decision.id.is_some() => Some(serde_json::to_string(decision)),
            Some(_) | None => None,
        };
        let unwritable = |error: serde_json::Error| impossible(error.to_string());
        let decision = decision.transpose().map_err(unwritable)?;
        Ok(Self { text: serde_json::to_string(&item).map_err(unwritable)?, decision, item })
    }
}

impl Newborn {
    fn of(birth: &Birth) -> Result<Self, Refused> {
        let state = State::of(&birth.control)?;
        let log = Log::of(0, std::slice::from_ref(&birth.first))?;
        let log = log.filter(|log| log.last_seq == state.seq && birth.thread == state.thread);
        let log = log.ok_or_else(|| {
            impossible(format!("the control of {} is not of its first event", birth.control.run))
        })?;
        Ok(Self { thread: birth.thread.clone(), state, log })
    }
}

fn impossible(why: String) -> Refused {
    Refused::Impossible(why)
}

fn started_at(events: &[Arc<Event>]) -> Option<Timestamp> {
    events.iter().find(|event| matches!(event.fact, Fact::RunStarted { .. })).map(|event| event.at)
}
