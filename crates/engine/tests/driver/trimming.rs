//! A long thread: the model is shown its newest turns, and a transcript shows what the model sees.

use engine::agent::{Agent, Trim};
use engine::model::ModelAnswer;
use engine::posting::Message;
use engine::store::Tenant;
use serde_json::json;

use crate::stage::{Scripted, Stage, ask, echo, read_by, shown};

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
