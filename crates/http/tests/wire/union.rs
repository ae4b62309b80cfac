//! The union of all events in the OpenAPI document: what it names, and that everything that is sent fits it.

use std::collections::{BTreeMap, BTreeSet};

use engine::store::UnreadableEvent;
use holdpoint_http::openapi;
use holdpoint_http::wire::event::Envelope;
use holdpoint_http::wire::live::Frame;
use serde_json::{Value, json};

use crate::keys::PAYLOADS;
use crate::page::live_items;
use crate::stories;

fn document() -> Value {
    serde_json::to_value(openapi()).expect("it is JSON")
}

fn unreadable() -> Value {
    let unreadable = UnreadableEvent { seq: 1, checkpoint: None };
    serde_json::to_value(Envelope::unreadable(&"thr_1".into(), &"run_1".into(), &unreadable)).unwrap()
}

fn live_frames() -> Vec<Value> {
    let frame = |item| Frame::from_live_item(&"thr_1".into(), &"run_1".into(), &item);
    live_items().into_iter().map(|item| serde_json::to_value(frame(item)).unwrap()).collect()
}

#[test]
fn every_type_is_a_schema_of_its_own_in_one_union() {
    let document = document();
    let union = &document["components"]["schemas"]["Event"];
    assert_eq!(union["discriminator"]["propertyName"], "type");
    let mapping = union["discriminator"]["mapping"].as_object().expect("a mapping");
    let listed: BTreeSet<&str> = union["oneOf"]
        .as_array()
        .expect("variants")
        .iter()
        .map(|item| item["$ref"].as_str().unwrap())
        .collect();
    assert_eq!(listed, mapping.values().map(|schema| schema.as_str().unwrap()).collect());
    assert_eq!(listed.len(), mapping.len(), "each type has a schema of its own");
    for (name, reference) in mapping {
        let pointer = reference.as_str().unwrap().strip_prefix('#').expect("it is in this document");
        let variant = document.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is not there"));
        assert_eq!(variant["properties"]["type"]["enum"], json!([name]));
        let required: BTreeSet<&str> =
            variant["required"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
        for always in ["type", "thread_id", "run_id", "step", "ts", "v", "payload"] {
            assert!(required.contains(always), "{name} may lack {always}");
        }
        assert!(variant["properties"]["payload"]["$ref"].is_string(), "{name} has any payload");
    }
    let mut sent: BTreeSet<String> = PAYLOADS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let others = live_frames().into_iter().chain([unreadable()]);
    sent.extend(others.map(|frame| frame["type"].as_str().unwrap().to_owned()));
    assert_eq!(mapping.keys().cloned().collect::<BTreeSet<_>>(), sent);
}

#[test]
fn the_list_and_both_streams_name_the_union_as_their_item() {
    let document = document();
    let item = json!({"$ref": "#/components/schemas/Event"});
    assert_eq!(document["components"]["schemas"]["Events"]["properties"]["events"]["items"], item);
    for path in ["/v1/runs/{id}/events", "/v1/threads/{id}/events"] {
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        let schema = &content["text/event-stream"]["schema"];
        assert_eq!(*schema, json!({"type": "array", "items": item}), "{path}");
    }
}

#[test]
fn everything_that_is_sent_fits_its_schema_and_has_no_field_that_the_schema_lacks() {
    let document = document();
    let schema = json!({"$ref": "#/components/schemas/Event", "components": document["components"]});
    let validator = jsonschema::validator_for(&schema).expect("the document has JSON schemas");
    let events = stories::all().into_iter().flat_map(|story| story.envelopes_as_json());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for event in events.chain(live_frames()).chain([unreadable()]) {
        let name = event["type"].as_str().unwrap();
        if let Err(fault) = validator.validate(&event) {
            panic!("{name}: {fault}: {event}");
        }
        let mapping = &document["components"]["schemas"]["Event"]["discriminator"]["mapping"];
        let variant = find(&document, &mapping[name]);
        assert_eq!(unknown_fields(&event, variant), [""; 0], "{event}");
        let payload = find(&document, &variant["properties"]["payload"]["$ref"]);
        assert_eq!(unknown_fields(&event["payload"], payload), [""; 0], "{event}");
        *kinds.entry(name.to_owned()).or_default() += 1;
    }
    assert_eq!(kinds.len(), PAYLOADS.len() + 7, "{kinds:?}");
    // A field of a payload that is missing is found.
    let mut damaged = stories::named("one_held_call").envelopes_as_json();
    let approved = damaged.iter_mut().find(|event| event["type"] == "tool.approved").unwrap();
    approved["payload"].as_object_mut().unwrap().remove("tool");
    assert!(!validator.is_valid(approved));
}

fn find<'d>(document: &'d Value, reference: &Value) -> &'d Value {
    let pointer = reference.as_str().and_then(|reference| reference.strip_prefix('#')).expect("a reference");
    document.pointer(pointer).expect("it is in this document")
}

fn unknown_fields<'v>(value: &'v Value, schema: &Value) -> Vec<&'v str> {
    let known = schema["properties"].as_object();
    let fields = value.as_object().expect("an object").keys().map(String::as_str);
    fields.filter(|field| known.is_none_or(|known| !known.contains_key(*field))).collect()
}
