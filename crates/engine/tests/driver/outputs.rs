//! Runs that have to end with JSON that fits a schema, of the agent or of the message, also over a crash.

use std::sync::Arc;

use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{ModelAnswer, ModelRequest};
use engine::posting::{Message, PostError};
use engine::store::Tenant;
use engine::{Engine, RunOutcome, RunReport};
use machine::event::{Fact, Message as Said};
use machine::termination::{ErrorCode, Termination};
use serde_json::{Value, json};
use stores::memory::MemoryStore;

use crate::harness::{FunctionModel, Harness, Scripted, on, to_assistant, until_named};

fn schema() -> Value {
    json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}})
}

fn saying(texts: &[&str]) -> Scripted {
    Scripted::new(texts.iter().map(|text| Ok(ModelAnswer::text(*text))))
}

fn wanting(model: &Scripted) -> Agent {
    Agent::new("assistant", model.clone()).instructions("Be brief.").output_schema(schema())
}

async fn output(engine: &Engine, finished: &RunReport) -> Option<Value> {
    engine.output(&Tenant::default(), &finished.run).await.expect("the run is there")
}

#[tokio::test]
async fn an_answer_that_fits_is_the_output_of_the_run() {
    let model = saying(&["```json\n{\"total\": 12}\n```"]);
    let engine = on(&MemoryStore::new(), wanting(&model)).start().await.expect("it starts");
    let finished = engine.run(to_assistant()).await.expect("it is posted");
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(output(&engine, &finished).await, Some(json!({"total": 12})));
    let request: ModelRequest = model.requests().remove(0);
    assert_eq!(request.output_schema.as_deref(), Some(&schema()));
    let instructions = format!(
        "Be brief.\n\nYour last answer must be JSON that fits this JSON Schema, and nothing else: {}",
        schema()
    );
    assert_eq!(&*request.instructions, instructions);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_corrected_once_and_the_log_shows_it() {
    let harness = Harness::new();
    let model = saying(&["{\"total\": \"twelve\"}", "{\"total\": 12}"]);
    let engine = harness.start(wanting(&model)).await;
    let finished = engine.run(to_assistant()).await.expect("it is posted");
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(output(&engine, &finished).await, Some(json!({"total": 12})));
    let correction = model.last_read().pop().expect("a message");
    assert!(
        correction.starts_with("notice: Your last answer is not the output that is wanted: /total:"),
        "{correction}"
    );
    let corrections = harness.log(&finished.run).await.into_iter().filter_map(|event| match event.fact {
        Fact::MessageAdded(Said::Correction { why, .. }) => Some(why),
        _ => None,
    });
    assert_eq!(corrections.count(), 1);
}

#[tokio::test]
async fn a_run_whose_model_never_gets_it_right_fails_and_says_what_did_not_fit() {
    let model = saying(&["Twelve.", "{\"sum\": 12}", "{\"total\": 12}"]);
    let engine = on(&MemoryStore::new(), wanting(&model)).start().await.expect("it starts");
    let finished = engine.run(to_assistant()).await.expect("it is posted");
    let RunOutcome::Ended(Termination::Error(error)) = &finished.outcome else { panic!("{finished:?}") };
    assert_eq!((error.code, model.requests().len()), (ErrorCode::Output, 2));
    assert!(error.text.contains("\"total\" is a required property"), "{}", error.text);
    assert_eq!(output(&engine, &finished).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_a_message_wants_counts_more_than_what_its_agent_wants_and_survives_a_crash() {
    let harness = Harness::new();
    let bell = Arc::new(tokio::sync::Notify::new());
    let waiting = bell.clone();
    // The second answer never comes in the first life.
    let first = FunctionModel(move |request: ModelRequest, _: Deltas| {
        let bell = waiting.clone();
        async move {
            if request.step > 1 {
                bell.notified().await;
            }
            Ok(ModelAnswer::text("{\"total\": 12}"))
        }
    });
    let engine = harness.start(Agent::new("assistant", first).output_schema(schema())).await;
    let other = json!({"type": "object", "required": ["name"]});
    let message = Message { output_schema: Some(Arc::new(other)), ..to_assistant() };
    let (posted, mut watched) = engine.stream(message).await.expect("it is posted");
    // The correction is stored, and the model is asked again.
    until_named(&mut watched, "step.ended").await;
    until_named(&mut watched, "step.started").await;
    engine.abort();

    let harness = harness.reopen();
    let second = saying(&["{\"total\": 12}", "{\"name\": \"ann\"}"]);
    let engine = harness.start(wanting(&second)).await;
    let ended = engine.wait_until_ended(&Tenant::default(), &posted.run).await.expect("it ends");
    assert_eq!(ended.outcome, RunOutcome::Ended(Termination::NaturalEnd), "{:?}", second.last_read());
    assert_eq!(output(&engine, &ended).await, Some(json!({"name": "ann"})));
    assert_eq!(second.requests().len(), 1, "it is not corrected again");
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_starts_nothing() {
    let model = saying(&["{}"]);
    let engine = on(&MemoryStore::new(), wanting(&model)).start().await.expect("it starts");
    let deep = (0..100).fold(json!({}), |inner, _| json!({"properties": inner}));
    let large = json!({"description": "x".repeat(70_000)});
    for bad in [json!({"type": "objekt"}), deep, large] {
        let message = Message { output_schema: Some(Arc::new(bad)), ..to_assistant() };
        let refused = engine.run(message).await.expect_err("it is refused");
        assert!(matches!(refused, PostError::BadOutputSchema { .. }), "{refused:?}");
    }
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_run_of_which_no_output_is_wanted_has_none() {
    let model = saying(&["{\"total\": 12}"]);
    let engine =
        on(&MemoryStore::new(), Agent::new("assistant", model.clone())).start().await.expect("it starts");
    let finished = engine.run(to_assistant()).await.expect("it is posted");
    assert_eq!(output(&engine, &finished).await, None);
    assert_eq!(model.requests().remove(0).output_schema, None);
}
