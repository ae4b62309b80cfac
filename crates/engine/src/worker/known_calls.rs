//! What a worker remembers about open calls so that it need not read it from the log again.

use std::collections::BTreeMap;

use machine::Control;
use machine::event::{Event, Fact};
use machine::id::{CallId, Digest};
use machine::tool::Arguments;

#[derive(Default)]
pub(super) struct KnownCalls {
    /// By the sequence number of the event that contains them.
    pub(super) arguments: BTreeMap<u64, Arguments>,
    /// The digest of each call's tool definition as the gate saw it.
    pub(super) gated: BTreeMap<CallId, Digest>,
}

impl KnownCalls {
    pub(super) fn remember(&mut self, events: &[Event]) {
        for event in events {
            if let Some(arguments) = arguments_in(event) {
                self.arguments.insert(event.seq, arguments);
            }
        }
    }

    pub(super) fn forget_settled(&mut self, control: &Control) {
        self.arguments.retain(|seq, _| control.calls.iter().any(|call| call.arguments_seq == *seq));
        self.gated.retain(|id, _| control.call(id).is_some_and(|call| !call.settled()));
    }
}

pub(super) fn arguments_in(event: &Event) -> Option<Arguments> {
    if let Fact::ToolRequested { arguments, .. } = &event.fact {
        return Some(arguments.clone());
    }
    if let Fact::ToolApproved { arguments, .. } | Fact::ToolResumed { arguments, .. } = &event.fact {
        return arguments.clone();
    }
    None
}
