//! A long thread: the model is shown its newest turns, and a transcript shows what the model sees.

use engine::agent::{Agent, Trim};
use engine::model::ModelAnswer;
use engine::plugin::{Action, Phase};
use engine::posting::Message;
use engine::store::Tenant;
use machine::termination::Termination;
use serde_json::json;

use crate::plugged::FunctionPlugin;
use crate::stage::{Scripted, Stage, ask, asking, echo, read_by, shown};

#[tokio::test]
async fn the_model_is_shown_the_newest_turns_and_a_transcript_shows_the_same() {
    let stage = Stage::new();
    let model = Scripted::new([
        Ok(ask(&[("a", "echo", json!({"n": 1}))])),
        Ok(ask(&[("b", "echo", json!({"n": 2}))])),
        Ok(ModelAnswer::text("Done.")),
    ]);
    let trim = Trim { messages_max: Some(4), chars_max: None };
    let agent = Agent::new("assistant", model.clone()).instructions("Be brief.").tool(echo()).trim(trim);
    let engine = stage.start(agent).await;
    let said = |text: &str| Message::to("assistant", text).on_thread("t");
    engine.run(said("one")).await.expect("it runs");
    let first = read_by(&model.requests()[2]);
    assert_eq!(first[0], "user: one");
    assert_eq!(first[1], "notice: [2 earlier messages left out]", "{first:?}");
    assert_eq!(first[2], "assistant: [\"b\"]");

    let second = engine.run(said("two")).await.expect("it runs");
    let request = model.requests()[3].clone();
    assert_eq!(
        read_by(&request),
        [
            "notice: [3 earlier messages left out]",
            "assistant: [\"b\"]",
            "tool b: {\"n\":2}",
            "assistant: Done.[]",
            "user: two",
        ]
    );
    assert_eq!(&*request.instructions, "Be brief.", "instructions are never left out");
    let seen = engine.transcript(&Tenant::default(), &second.run).await.expect("it is there");
    let lines = shown(&seen);
    assert_eq!(lines[0], "user: two", "{lines:?}");
    assert!(lines[1].starts_with("notice: [") && lines.len() <= 5, "{lines:?}");
    // The log has all of it.
    let names = stage.names(&second.run).await;
    assert_eq!(names.iter().filter(|name| *name == "message.added").count(), 6);
}

/// What the walk back from a run reads at most.
const RUNS_MAX: usize = 10_000;

#[tokio::test]
async fn a_run_behind_more_runs_than_are_read_is_shown_the_newest() {
    let stage = Stage::new();
    let model = Scripted::new([Ok(ModelAnswer::text("Done."))]);
    let ends = FunctionPlugin::answering(Phase::RunStart, vec![Action::End]);
    let engine = stage
        .engine()
        .agent(Agent::new("quick", asking(&[])).plugin(ends))
        .agent(Agent::new("assistant", model.clone()))
        .start()
        .await
        .expect("it starts");
    for number in 0..=RUNS_MAX {
        let said = Message::to("quick", number.to_string()).on_thread("t");
        engine.run(said).await.expect("it ends");
    }
    let last = engine.run(Message::to("assistant", "last").on_thread("t")).await.expect("it runs");
    assert_eq!(stage.ended(&last.run).await, Some(Termination::NaturalEnd));
    let read = model.last_read();
    assert_eq!(read[0], "notice: [messages before the last 10000 runs left out]");
    // The first of them is left out.
    assert_eq!(read[1], "user: 1");
    assert_eq!((read.len(), read.last().map(String::as_str)), (RUNS_MAX + 2, Some("user: last")));
}
