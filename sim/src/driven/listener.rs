//! Hears what the engine tells its operator. Trouble with the store is expected; a complaint about itself is a breach.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::stage::Stage;
use crate::judge::invariant::{Invariant, Violation};

/// What the store of a world says when it is in trouble; whatever names it was expected.
pub(crate) const PLUG_PULLED: &str = "the simulator pulled the plug";
pub(crate) const STORE_TAKEN: &str = "another process has the store";

pub(crate) struct Listener(pub(crate) Arc<Stage>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let Words { message, fields } = words;
        self.0.tell(|| format!("the engine says: {message}{fields}"));
        let expected = [PLUG_PULLED, STORE_TAKEN].iter().any(|known| fields.contains(known));
        if *event.metadata().level() == Level::ERROR && !expected {
            let detail = format!("the engine says: {message}{fields}");
            self.0.object(Violation { invariant: Invariant::NothingIsBroken, detail });
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(", {} {value:?}", field.name()));
        }
    }
}
