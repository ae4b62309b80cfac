//! Receives the engine's warnings and errors. Store failures are expected; any other error is a breach.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::context::WorldContext;
use crate::judge::invariant::{Invariant, Violation};

/// The messages of a world's failing store. A log entry that contains one of them is expected.
pub(crate) const PLUG_PULLED: &str = "the simulator pulled the plug";
pub(crate) const STORE_TAKEN: &str = "another process has the store";

/// A subscriber that reports unexpected errors as violations of this world.
pub(crate) fn objecting(stage: Arc<WorldContext>) -> impl Subscriber {
    Listener(move |Told { level, message, fields }: Told| {
        stage.tell(|| format!("the engine says: {message}{fields}"));
        let expected = [PLUG_PULLED, STORE_TAKEN].iter().any(|known| fields.contains(known));
        if level == Level::ERROR && !expected {
            let detail = format!("the engine says: {message}{fields}");
            stage.object(Violation { invariant: Invariant::NothingIsBroken, detail });
        }
    })
}

/// Passes on warnings and errors.
pub struct Listener<H>(pub H);

/// One warning or error.
pub struct Told {
    pub level: Level,
    pub message: String,
    /// Each field with its value, after a comma.
    pub fields: String,
}

impl<H: Fn(Told) + Send + Sync + 'static> Subscriber for Listener<H> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (message, fields) = (String::new(), String::new());
        let mut told = Told { level: *event.metadata().level(), message, fields };
        event.record(&mut told);
        self.0(told);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(", {} {value:?}", field.name()));
        }
    }
}
