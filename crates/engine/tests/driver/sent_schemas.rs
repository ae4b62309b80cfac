//! Schemas that a client or a tool sent, with a message or with a question: what they may become, and what checking a
//! value against them may cost.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use engine::RunOutcome;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::posting::{Message, PostError};
use engine::tool::{
    AskKind, OnExpiry, Outcome, Performer, ResumeMode, SuspendRequest, ToolAnswer, ToolDefinition,
};
use machine::termination::{ErrorCode, Termination};
use serde_json::{Map, Value, json};
use stores::memory::MemoryStore;

use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, held, on, remaining_events, to_assistant,
};

/// Far more than a bounded check takes, and nothing beside what an unbounded one takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each level applies the next one twice: a few lines, and 2^levels checks of whatever value.
fn doubling(levels: usize) -> Value {
    let level = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        (format!("d{number}"), json!({"allOf": [next.clone(), next]}))
    };
    let mut levels_by_name: Map<String, Value> = (0..levels).map(level).collect();
    levels_by_name.insert(format!("d{levels}"), json!({}));
    json!({"$ref": "#/$defs/d0", "$defs": levels_by_name})
}

/// Small, and it doubles with every level of the value.
fn doubling_with_the_value() -> Value {
    let again = json!({"$ref": "#/$defs/a"});
    let nested = json!({"properties": {"x": {"allOf": [again.clone(), again]}}});
    json!({"$ref": "#/$defs/a", "$defs": {"a": nested}})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"x": inner}))
}

fn wanting(schema: Value) -> Message {
    Message { output_schema: Some(Arc::new(schema)), ..to_assistant() }
}

fn bringing(schemas: impl IntoIterator<Item = Value>) -> Message {
    let tools = schemas.into_iter().zip(0..).map(|(schema, number)| {
        ToolDefinition::new(&format!("t{number}"), "Asks the user")
            .parameters(schema)
            .performed_by(Performer::Client)
    });
    Message { tools: tools.collect(), ..to_assistant() }
}

async fn refused(message: Message) -> PostError {
    let agent = Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("{}"))]));
    let engine = on(&MemoryStore::new(), agent).start().await.expect("it starts");
    engine.post(message).await.expect_err("it is refused")
}

/// On a thread of its own: a check that never ends must not block the test that looks for that.
fn within_patience<T: Send + 'static>(story: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _ = sender.send(runtime.block_on(story()));
    });
    receiver.recv_timeout(PATIENCE).expect("it ends")
}

#[tokio::test]
async fn a_schema_that_unfolds_without_end_starts_nothing() {
    let PostError::BadOutputSchema { why } = refused(wanting(doubling(50))).await else {
        panic!("it is about the output")
    };
    assert!(why.contains("unfolds"), "{why}");
    let PostError::BadTools { why } = refused(bringing([doubling(50)])).await else {
        panic!("it is about the tools")
    };
    assert!(why.starts_with("tool t0:") && why.contains("unfolds"), "{why}");
    // One reference behind the other, none of them twice: as deep as a stack, once it is followed.
    let chain: Map<String, Value> = (0..1_000)
        .map(|number| (format!("d{number}"), json!({"$ref": format!("#/$defs/d{}", number + 1)})))
        .chain([("d1000".to_owned(), json!({}))])
        .collect();
    let chain = json!({"$ref": "#/$defs/d0", "$defs": chain});
    assert!(matches!(refused(wanting(chain)).await, PostError::BadOutputSchema { .. }));
}

/// Where a reference leads has to be seen without asking a library, or it could lead past the bound.
#[tokio::test]
async fn references_that_hide_where_they_lead_are_refused() {
    let hidden = [
        json!({"$defs": {"a": {"$id": "http://a.example/", "$ref": "#/$defs/b", "$defs": {"b": {}}}}}),
        json!({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}),
        json!({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": "b"}}}),
        json!({"$ref": "#/%24defs/a", "$defs": {"a": {}}}),
        json!({"$ref": "#/$defs/nowhere"}),
        json!({"$ref": "http://127.0.0.1:1/x"}),
    ];
    for schema in hidden {
        let why = refused(wanting(schema.clone())).await;
        assert!(matches!(why, PostError::BadOutputSchema { .. }), "{schema}: {why:?}");
    }
}

#[test]
fn a_value_that_takes_too_long_to_check_does_not_fit() {
    let error = within_patience(async || {
        let agent = Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text(nested(50).to_string()))]));
        let engine = on(&MemoryStore::new(), agent).start().await.expect("it starts");
        let finished = engine.run(wanting(doubling_with_the_value())).await.expect("it is posted");
        let RunOutcome::Ended(Termination::Error(error)) = finished.outcome else { panic!("{finished:?}") };
        error
    });
    assert_eq!(error.code, ErrorCode::Output);
    assert!(error.text.contains("too much work"), "{}", error.text);
}

#[test]
fn arguments_that_take_too_long_to_check_are_bad_ones() {
    let read = within_patience(async || {
        let model = asking(&[("a", "t0", nested(50))]);
        let agent = Agent::new("assistant", model.clone());
        let engine = on(&MemoryStore::new(), agent).start().await.expect("it starts");
        engine.run(bringing([doubling_with_the_value()])).await.expect("it is posted");
        model.last_read()
    });
    assert!(read.iter().any(|line| line.contains("too much work")), "{read:?}");
}

#[tokio::test]
async fn patterns_are_bounded_in_size_and_number() {
    let of = |pattern: &str| json!({"type": "string", "pattern": pattern});
    for bad in ["\\p{L}{190}", "(a{999}){999}", "(?=(a{999}){99})b", "(?=a)(b)\\1", "(a)\\1"] {
        let PostError::BadOutputSchema { why } = refused(wanting(of(bad))).await else {
            panic!("it is about the output")
        };
        assert!(why.contains("pattern"), "{bad}: {why}");
    }
    let many: Vec<Value> = (0..65).map(|number| of(&format!("^a{number}$"))).collect();
    let refusal = refused(wanting(json!({"anyOf": many.clone()}))).await;
    assert!(matches!(refusal, PostError::BadOutputSchema { .. }), "{refusal:?}");
    // Together they are too many, although none of the tools has more than one.
    let refusal = refused(bringing(many)).await;
    assert!(matches!(refusal, PostError::BadTools { .. }), "{refusal:?}");
    let named: Map<String, Value> = (0..65).map(|number| (format!("^a{number}$"), json!({}))).collect();
    let refusal = refused(wanting(json!({"patternProperties": named}))).await;
    assert!(matches!(refusal, PostError::BadOutputSchema { .. }), "{refusal:?}");
}

/// Every tool is compiled by itself, so what they have in common costs once for each of them.
#[tokio::test]
async fn patterns_that_tools_have_in_common_are_bounded_too() {
    let of = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let heavy: Vec<Value> = (0..30).map(|number| of(&format!("a{{250}}{number}"))).collect();
    let small: Vec<Value> = (0..3).map(|number| of(&format!("^{number}"))).collect();
    for patterns in [heavy, small] {
        let refusal = refused(bringing(vec![json!({"anyOf": patterns}); 128])).await;
        let PostError::BadTools { why } = refusal else { panic!("{refusal:?}") };
        assert!(why.contains("counted once for each"), "{why}");
    }
    let agent = Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("done"))]));
    let engine = on(&MemoryStore::new(), agent).start().await.expect("it starts");
    let uuid = of("^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$");
    engine.run(bringing(vec![uuid; 128])).await.expect("it is posted");
}

#[tokio::test]
async fn what_one_message_brings_is_bounded_in_all() {
    let large = json!({"description": "x".repeat(60_000)});
    let refusal = refused(bringing(vec![large; 5])).await;
    assert!(matches!(refusal, PostError::BadTools { .. }), "{refusal:?}");
}

#[tokio::test]
async fn schemas_as_front_ends_send_them_are_taken() {
    let uuid = "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$";
    let day = "^(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d{3}[1-9])-(?:0[1-9]|1[0-2])-(?:[0-2]\\d|3[01])$";
    let mail = "^(?!\\.)(?!.*\\.\\.)([a-z0-9_'+.-]*)[a-z0-9_+-]@([a-z0-9][a-z0-9-]*\\.)+[a-z]{2,}$";
    let tree = json!({"type": "object", "properties": {
        "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
        "id": {"type": "string", "pattern": uuid}, "day": {"type": "string", "pattern": day},
        "name": {"type": "string", "pattern": "^[^/\\x00]{1,255}$"},
        "mail": {"type": "string", "pattern": mail}}});
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:tree",
        "$ref": "#/$defs/tree", "$defs": {"tree": tree}});
    let leaf = json!({"id": "0190c0de-0000-7000-8000-00000000000a", "day": "2026-11-16", "mail": "ann.lee@example.com"});
    let value = (0..14).fold(leaf, |inner, _| json!({"left": inner, "children": [{}, {"name": "b"}]}));
    let agent = Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text(value.to_string()))]));
    let engine = on(&MemoryStore::new(), agent).start().await.expect("it starts");
    let message = Message { tools: bringing([schema.clone()]).tools, ..wanting(schema) };
    let finished = engine.run(message).await.expect("it is posted");
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
}

/// The tool is at work, so its call is held all the same; no answer is checked against a schema that cannot be used.
#[test]
fn a_question_whose_schema_cannot_be_used_is_asked_without_it_and_says_so() {
    let (shown, read) = within_patience(async || {
        let (harness, model, sent) = (Harness::new(), asking(&[("a", "pick", json!({}))]), Sent::default());
        let tool = sent.tool(ToolDefinition::new("pick", "Asks back").read(), |_| {
            Outcome::Answered(ToolAnswer::Pending(SuspendRequest {
                kind: AskKind::Question,
                question: Some("which one?".into()),
                schema: Some(Arc::new(doubling(50))),
                mode: ResumeMode::UseDecisionAsToolResult,
                resume_state: None,
                expires_in_ms: None,
                on_expiry: OnExpiry::Deny,
            }))
        });
        let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        let shown = harness.pending().await.remove(0).opened;
        accepted(engine.decide(Decide::result(&run, &call("a"), "ann", json!({"any": 1}))).await);
        remaining_events(&mut watched).await;
        (shown, model.last_read())
    });
    let question = shown.as_ref().unwrap().question.clone().expect("a question");
    assert!(question.starts_with("which one?") && question.contains("unfolds"), "{question}");
    assert_eq!(shown.as_ref().unwrap().schema, None);
    assert!(read.contains(&"tool a: {\"any\":1}".to_owned()), "{read:?}");
}
