//! Turns the log of one run into envelopes for clients. The log stores every text once, so a message can only be
//! hydrated after the events that contain its text and its arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::store::{CommittedEvent, LogEntry, UnreadableEvent};
use machine::event::{CallInMessage, Event, Fact, Message as Stored, NoteBody, ToolBody, UserMessage};
use machine::id::{CallId, Principal, RunId, ThreadId, ToolName};
use machine::model_text::{
    ChangedBy, INTERRUPTION, calls_dropped, correction, late_result, placeholder, result_text,
};
use machine::output::{OutputFit, stored_output};
use machine::phase::note_text;
use serde_json::Value;

use super::event::{Envelope, interrupter};
use super::message::{HydratedBody, ToolCall};

/// Takes every event of a run in order, from the first, and returns the envelopes that a client is sent. A caller that
/// wants to begin later drops the envelopes up to the seq that it has.
#[derive(Clone, Debug)]
pub struct EventHydrator {
    thread: ThreadId,
    run: RunId,
    /// The user's message, until its envelope is built.
    user_message: Option<UserMessage>,
    /// The caller who interrupted the run, kept until the envelope of its last event is built.
    interrupted_by: Option<Principal>,
    /// Calls that a later message or event may still refer to.
    calls: BTreeMap<CallId, TrackedCall>,
    /// Notes that hooks asked for, by the seq of the event that contains them.
    notes: BTreeMap<u64, String>,
    /// The text of the last model answer, if it fits the requested output.
    output: Option<String>,
    /// Events held back: an assistant message whose calls have not all been read, and everything after it.
    buffered: VecDeque<CommittedEvent>,
    /// The caller reads large results and arguments again when an envelope needs them.
    drops_large_events: bool,
}

/// Larger results and arguments are not kept, if the caller can read them again.
const BUFFERED_EVENT_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug)]
struct TrackedCall {
    tool: ToolName,
    /// The last event that set the arguments.
    arguments: Option<NeededEvent>,
    changed: Option<(ChangedBy, Arc<Value>)>,
    /// The event that settled the call. The result text is built only when a message needs it.
    settled: Option<NeededEvent>,
}

/// An event that a later envelope may need.
#[derive(Clone, Debug)]
enum NeededEvent {
    Loaded(CommittedEvent),
    /// Not kept; it is in the log at this seq.
    AtSeq(u64),
}

impl NeededEvent {
    const fn loaded(&self) -> Option<&CommittedEvent> {
        match self {
            Self::Loaded(event) => Some(event),
            Self::AtSeq(_) => None,
        }
    }

    const fn missing_seq(&self) -> Option<u64> {
        match self {
            Self::Loaded(_) => None,
            Self::AtSeq(seq) => Some(*seq),
        }
    }

    fn drop_if_large(&mut self) {
        if let Self::Loaded(committed) = self
            && committed.weight() > BUFFERED_EVENT_BYTES_MAX
        {
            *self = Self::AtSeq(committed.event.seq);
        }
    }
}

impl TrackedCall {
    const fn new(tool: ToolName) -> Self {
        Self { tool, arguments: None, changed: None, settled: None }
    }

    fn result(&self) -> Option<String> {
        let settled = self.settled.as_ref()?.loaded()?;
        let changed = self.changed.as_ref().map(|(by, value)| (*by, &**value));
        result_text(&settled.event.fact, changed, usize::MAX)
    }

    fn arguments(&self) -> Option<Value> {
        let (_, arguments) = self.arguments.as_ref()?.loaded()?.event.fact.arguments()?;
        Some(super::arguments(arguments))
    }
}

impl EventHydrator {
    #[must_use]
    pub const fn new(thread: ThreadId, run: RunId) -> Self {
        Self {
            thread,
            run,
            user_message: None,
            interrupted_by: None,
            calls: BTreeMap::new(),
            notes: BTreeMap::new(),
            output: None,
            buffered: VecDeque::new(),
            drops_large_events: false,
        }
    }

    /// For a caller that can read the log: it [supplies](Self::supply_event) the event that is
    /// [missing](Self::missing_event) before it hydrates the next one. Large results and arguments are not kept until
    /// an envelope needs them.
    #[must_use]
    pub const fn dropping_large_events(mut self) -> Self {
        self.drops_large_events = true;
        self
    }

    /// The seq of the event that the caller must supply before it hydrates this one.
    #[must_use]
    pub fn missing_event(&self, committed: &CommittedEvent) -> Option<u64> {
        let fact = &committed.event.fact;
        if let Fact::MessageAdded(
            Stored::Tool { call_id, body: ToolBody::Settled { .. }, .. }
            | Stored::Note { call_id, body: NoteBody::Late { .. }, .. },
        ) = fact
        {
            return self.calls.get(call_id)?.settled.as_ref()?.missing_seq();
        }
        if lacks_arguments(fact) {
            return self.calls.get(fact.call_id()?)?.arguments.as_ref()?.missing_seq();
        }
        None
    }

    /// Takes the event whose seq [`Self::missing_event`] returned.
    pub fn supply_event(&mut self, committed: &CommittedEvent) {
        self.track(committed);
    }

    /// Holds back an assistant message and what follows it until all its calls have been read. The last event of the
    /// commit releases them at the latest.
    pub fn hydrate(&mut self, committed: &CommittedEvent) -> Vec<Envelope> {
        self.buffered.push_back(committed.clone());
        if committed.checkpoint.is_none() && !self.has_all_calls() {
            return Vec::new();
        }
        let (ready, envelopes) = self.flush();
        if self.drops_large_events {
            self.drop_large_events(&ready);
        }
        envelopes
    }

    fn drop_large_events(&mut self, flushed: &VecDeque<CommittedEvent>) {
        // A result is dropped only if it was flushed by itself: among several events, a message in the same flush may
        // need it.
        let is_single = flushed.len() == 1;
        for committed in flushed {
            let Some(call) = committed.event.fact.call_id().and_then(|id| self.calls.get_mut(id)) else {
                continue;
            };
            call.arguments.iter_mut().for_each(NeededEvent::drop_if_large);
            if is_single {
                call.settled.iter_mut().for_each(NeededEvent::drop_if_large);
            }
        }
    }

    fn flush(&mut self) -> (VecDeque<CommittedEvent>, Vec<Envelope>) {
        let ready = std::mem::take(&mut self.buffered);
        let mut requested = requested_arguments(&ready);
        let envelopes = ready.iter().map(|committed| self.envelope_for(committed, &mut requested)).collect();
        (ready, envelopes)
    }

    /// The envelopes for one entry of the log.
    pub fn hydrate_entry(&mut self, entry: &LogEntry) -> Vec<Envelope> {
        match entry {
            LogEntry::Event(committed) => self.hydrate(committed),
            LogEntry::Unreadable(event) => self.hydrate_unreadable(event),
        }
    }

    /// Builds an envelope for an event that cannot be decoded. Events that were held back before it come first.
    fn hydrate_unreadable(&mut self, event: &UnreadableEvent) -> Vec<Envelope> {
        let (_, mut envelopes) = self.flush();
        envelopes.push(Envelope::unreadable(&self.thread, &self.run, event));
        envelopes
    }

    /// Whether every call that a buffered message asks for has been read.
    fn has_all_calls(&self) -> bool {
        let mut missing = 0_usize;
        for committed in &self.buffered {
            if let Fact::MessageAdded(Stored::Assistant { calls, .. }) = &committed.event.fact {
                missing += calls.len();
            }
            if let Fact::ToolRequested { .. } = &committed.event.fact {
                missing = missing.saturating_sub(1);
            }
        }
        missing == 0
    }

    fn envelope_for(&mut self, committed: &CommittedEvent, requested: &mut RequestedArguments) -> Envelope {
        self.track(committed);
        let body = self.apply(&committed.event, requested);
        Envelope::new(&self.thread, &self.run, committed, body)
    }

    /// Remembers the event if it sets the arguments of its call, or settles it.
    fn track(&mut self, committed: &CommittedEvent) {
        let fact = &committed.event.fact;
        let Some(call_id) = fact.call_id() else { return };
        if let Fact::ToolRequested { tool, .. } = fact
            && !self.calls.contains_key(call_id)
        {
            // The message with the call cannot be decoded.
            self.calls.insert(call_id.clone(), TrackedCall::new(tool.clone()));
        }
        let Some(call) = self.calls.get_mut(call_id) else { return };
        if fact.settlement().is_some() {
            call.settled = Some(NeededEvent::Loaded(committed.clone()));
        }
        if fact.arguments().is_some() {
            call.arguments = Some(NeededEvent::Loaded(committed.clone()));
        }
    }

    /// Remembers what later envelopes will need, and returns what this one needs of other events.
    fn apply(&mut self, event: &Event, requested: &mut RequestedArguments) -> HydratedBody {
        let fact = &event.fact;
        if let Fact::MessageAdded(message) = fact {
            return self.message_body(message, requested);
        }
        if let Fact::RunEnded { output, .. } = fact {
            let output = output.and_then(|_| self.output.take()).and_then(|text| stored_output(&text));
            let by = self.interrupted_by.take();
            return HydratedBody { output, by, ..HydratedBody::default() };
        }
        if let Fact::RunQueued(order) = fact {
            self.user_message.clone_from(&order.message);
        }
        if let Fact::RunInterrupting { cause } = fact {
            self.interrupted_by = interrupter(cause).cloned();
        }
        if let Fact::PhaseAnswered { actions, .. } = fact {
            self.notes.extend(note_text(actions).map(|note| (event.seq, note)));
        }
        if let (Some(call_id), Some((by, value))) = (fact.call_id(), fact.changed_arguments()) {
            self.update_call(call_id, |call| call.changed = Some((by, value.clone())));
        }
        self.call_body(fact)
    }

    fn call_body(&self, fact: &Fact) -> HydratedBody {
        let Some(call) = fact.call_id().and_then(|id| self.calls.get(id)) else {
            return HydratedBody::default();
        };
        HydratedBody {
            tool: call.tool.as_str().into(),
            arguments: lacks_arguments(fact).then(|| call.arguments()).flatten(),
            ..HydratedBody::default()
        }
    }

    fn message_body(&mut self, message: &Stored, requested: &mut RequestedArguments) -> HydratedBody {
        match message {
            Stored::User { .. } => {
                let asked =
                    self.user_message.take().map(|asked| (Arc::unwrap_or_clone(asked.content), asked.by));
                let (content, by) = asked.unwrap_or_default();
                HydratedBody { content, by, ..HydratedBody::default() }
            }
            Stored::Assistant { text, calls, output, .. } => {
                self.output = output.as_ref().filter(|fit| **fit == OutputFit::Fits).map(|_| text.clone());
                for call in calls {
                    self.calls.insert(call.call_id.clone(), TrackedCall::new(call.tool.clone()));
                }
                let tool_calls = calls.iter().map(|call| tool_call(call, requested)).collect();
                HydratedBody { content: Value::String(text.clone()), tool_calls, ..HydratedBody::default() }
            }
            Stored::Tool { call_id, body, .. } => text_body(match body {
                ToolBody::Settled { .. } => self.calls.remove(call_id).and_then(|call| call.result()),
                // The result follows later, as a note.
                ToolBody::Placeholder { kind } => Some(placeholder(*kind)),
            }),
            Stored::Note { call_id, body, .. } => text_body(match body {
                NoteBody::Late { .. } => self.calls.remove(call_id).map(|call| {
                    let result = call.result().unwrap_or_default();
                    late_result(call_id.as_str(), call.tool.as_str(), &result)
                }),
                NoteBody::Plugin { seq } => self.notes.remove(seq),
            }),
            Stored::Correction { why, .. } => text_body(Some(correction(why))),
            Stored::CallsDropped { taken, dropped, .. } => text_body(Some(calls_dropped(*taken, *dropped))),
            Stored::Interruption { .. } => text_body(Some(INTERRUPTION.into())),
        }
    }

    fn update_call(&mut self, id: &CallId, change: impl FnOnce(&mut TrackedCall)) {
        if let Some(call) = self.calls.get_mut(id) {
            change(call);
        }
    }
}

/// Whether the fact shows arguments that it does not contain: those of a call whose tool holds it.
fn lacks_arguments(fact: &Fact) -> bool {
    matches!(fact, Fact::ToolSuspended(opened) if opened.arguments.is_none())
}

/// Arguments of the calls that are requested in the buffered events.
type RequestedArguments = BTreeMap<CallId, Value>;

fn requested_arguments(events: &VecDeque<CommittedEvent>) -> RequestedArguments {
    let mut requests = RequestedArguments::new();
    for committed in events {
        if let Fact::ToolRequested { call_id, arguments, .. } = &committed.event.fact {
            requests.insert(call_id.clone(), super::arguments(arguments));
        }
    }
    requests
}

/// The model's own arguments, even if a hook set others.
fn tool_call(call: &CallInMessage, requested: &mut RequestedArguments) -> ToolCall {
    let own = call.own_arguments.as_ref().map(super::arguments);
    ToolCall {
        call_id: call.call_id.as_str().into(),
        tool: call.tool.as_str().into(),
        arguments: own.or_else(|| requested.remove(&call.call_id)).unwrap_or_default(),
    }
}

fn text_body(text: Option<String>) -> HydratedBody {
    HydratedBody { content: Value::String(text.unwrap_or_default()), ..HydratedBody::default() }
}
