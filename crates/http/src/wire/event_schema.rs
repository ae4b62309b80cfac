//! The OpenAPI schema of events: one schema for each type of stored event and of live frame, in one union that `type`
//! discriminates.

use std::borrow::Cow;

use utoipa::openapi::schema::{Discriminator, OneOfBuilder};
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::event::Envelope;
use super::live::{DeltaPayload, Frame, LogPayload, ProgressPayload, ResetPayload};
use super::payload::{
    Added, Answered, ApprovalRequested, ApprovalVoided, Cancelled, Changed, Child, Decided, Ended, Ending,
    Failed, Recovered, Requested, Resumed, Retrying, Started, Status, Step, Succeeded, Suspended, Unreadable,
};

/// In the OpenAPI document: everything that a list or a stream of events may contain, which is a stored event, or in a
/// stream a live frame.
pub(crate) enum Event {}

struct EventType {
    name: &'static str,
    form: Form,
    /// The name of the payload's schema.
    payload: Cow<'static, str>,
    add_payload: fn(&mut NamedSchemas),
}

#[derive(Clone, Copy)]
enum Form {
    Stored,
    /// In place of a stored event that cannot be decoded.
    Unreadable,
    Live,
}

type NamedSchemas = Vec<(String, RefOr<Schema>)>;

fn event_type<P: ToSchema>(form: Form, name: &'static str) -> EventType {
    let add_payload = |into: &mut NamedSchemas| {
        into.push((P::name().into_owned(), P::schema()));
        P::schemas(into);
    };
    EventType { name, form, payload: P::name(), add_payload }
}

fn event_types() -> Vec<EventType> {
    let mut types = vec![
        event_type::<Status>(Form::Stored, "run.queued"),
        event_type::<Status>(Form::Stored, "run.started"),
        event_type::<Status>(Form::Stored, "run.waiting"),
        event_type::<Status>(Form::Stored, "run.resumed"),
        event_type::<Status>(Form::Stored, "run.interrupting"),
        event_type::<Ending>(Form::Stored, "run.ending"),
        event_type::<Ended>(Form::Stored, "run.completed"),
        event_type::<Ended>(Form::Stored, "run.failed"),
        event_type::<Ended>(Form::Stored, "run.interrupted"),
        event_type::<Recovered>(Form::Stored, "run.recovered"),
        event_type::<Step>(Form::Stored, "step.started"),
        event_type::<Step>(Form::Stored, "step.ended"),
        event_type::<Added>(Form::Stored, "message.added"),
        event_type::<Retrying>(Form::Stored, "model.retrying"),
        event_type::<Answered>(Form::Stored, "phase.answered"),
        event_type::<Changed>(Form::Stored, "state.changed"),
        event_type::<Child>(Form::Stored, "child.started"),
        event_type::<Child>(Form::Stored, "child.ended"),
        event_type::<Unreadable>(Form::Unreadable, "event.unreadable"),
        event_type::<DeltaPayload>(Form::Live, "text.delta"),
        event_type::<DeltaPayload>(Form::Live, "reasoning.delta"),
        event_type::<DeltaPayload>(Form::Live, "tool.arguments_delta"),
        event_type::<ResetPayload>(Form::Live, "step.reset"),
        event_type::<LogPayload>(Form::Live, "tool.log"),
        event_type::<ProgressPayload>(Form::Live, "tool.progress"),
    ];
    types.extend(stored_tool_events());
    types
}

fn stored_tool_events() -> [EventType; 11] {
    [
        event_type::<Requested>(Form::Stored, "tool.requested"),
        event_type::<ApprovalRequested>(Form::Stored, "tool.approval_requested"),
        event_type::<ApprovalVoided>(Form::Stored, "tool.approval_voided"),
        event_type::<Decided>(Form::Stored, "tool.approved"),
        event_type::<Decided>(Form::Stored, "tool.denied"),
        event_type::<Suspended>(Form::Stored, "tool.suspended"),
        event_type::<Resumed>(Form::Stored, "tool.resumed"),
        event_type::<Started>(Form::Stored, "tool.execution_started"),
        event_type::<Succeeded>(Form::Stored, "tool.execution_succeeded"),
        event_type::<Failed>(Form::Stored, "tool.execution_failed"),
        event_type::<Cancelled>(Form::Stored, "tool.cancelled"),
    ]
}

impl EventType {
    /// `tool.execution_started` is `ToolExecutionStartedEvent`, and `text.delta` is `TextDeltaFrame`.
    fn schema_name(&self) -> String {
        let mut name = String::new();
        for word in self.name.split(['.', '_']) {
            let mut letters = word.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
        }
        name.push_str(match self.form {
            Form::Stored | Form::Unreadable => "Event",
            Form::Live => "Frame",
        });
        name
    }

    /// The schema of the envelope, narrowed to this type.
    fn schema(&self) -> RefOr<Schema> {
        let envelope = match self.form {
            Form::Stored | Form::Unreadable => Envelope::schema(),
            Form::Live => Frame::schema(),
        };
        let RefOr::T(Schema::Object(mut object)) = envelope else { return envelope };
        let mut set = |name: &str, schema: RefOr<Schema>| object.properties.insert(name.to_owned(), schema);
        let name = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([self.name]));
        set("type", name.build().into());
        set("payload", Ref::from_schema_name(&*self.payload).into());
        match self.form {
            Form::Stored => {
                set("ts", Ref::from_schema_name("Time").into());
                object.properties.remove("unreadable");
            }
            Form::Unreadable => {
                set("ts", ObjectBuilder::new().schema_type(Type::Null).build().into());
                let always = ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true]));
                set("unreadable", always.build().into());
            }
            Form::Live => {}
        }
        object.required = object.properties.keys().filter(|name| *name != "checkpoint").cloned().collect();
        RefOr::T(Schema::Object(object))
    }
}

impl PartialSchema for Event {
    fn schema() -> RefOr<Schema> {
        let types = event_types();
        let reference = |of: &EventType| Ref::from_schema_name(of.schema_name());
        let mapping = types.iter().map(|of| (of.name, reference(of).ref_location));
        let union = types.iter().map(reference).fold(OneOfBuilder::new(), OneOfBuilder::item);
        let about = "Everything that a list or a stream of events may contain. `type` determines which schema applies; \
                     ignore types that you do not know.";
        let discriminator = Discriminator::with_mapping("type", mapping);
        let union = union.description(Some(about)).discriminator(Some(discriminator)).build();
        RefOr::T(Schema::OneOf(union))
    }
}

impl ToSchema for Event {
    fn schemas(into: &mut NamedSchemas) {
        Envelope::schemas(into);
        Frame::schemas(into);
        for of in event_types() {
            into.push((of.schema_name(), of.schema()));
            (of.add_payload)(into);
        }
    }
}
