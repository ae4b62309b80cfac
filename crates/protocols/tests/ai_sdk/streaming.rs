//! Text and reasoning: every character reaches the client exactly once, however the deltas arrive.

use protocols::ai_sdk::{ChunkEncoder, UiMessage, UiPart};
use protocols::feed::{Body, CompletedReason};

use crate::chat_client::{client_tools, fold, fresh, lines, stream};
use crate::run_script::RunScript;

fn texts(message: &UiMessage) -> Vec<(&str, &str, bool)> {
    let mut texts = Vec::new();
    for part in &message.parts {
        match part {
            UiPart::Text { text, discarded, .. } => texts.push(("text", text.as_str(), *discarded)),
            UiPart::Reasoning { text, discarded, .. } => texts.push(("reasoning", text.as_str(), *discarded)),
            _ => {}
        }
    }
    texts
}

fn end(script: &mut RunScript) -> UiMessage {
    script.step_ended().completed(CompletedReason::NaturalEnd);
    fold(&fresh(script))
}

#[test]
fn deltas_are_passed_on_and_the_whole_answer_adds_nothing() {
    let mut script = RunScript::begun();
    script.reasoning_delta("I ").reasoning_delta("think.").delta("Grüße, ").delta("Welt");
    script.answer_with_reasoning(Some("I think."), "Grüße, Welt", &[]);
    script.step_ended().completed(CompletedReason::NaturalEnd);
    let sent = lines(&fresh(&script));
    let expected = [
        r#"{"type":"start-step"}"#,
        r#"{"type":"reasoning-start","id":"rsn-1.1"}"#,
        r#"{"type":"reasoning-delta","id":"rsn-1.1","delta":"I "}"#,
        r#"{"type":"reasoning-delta","id":"rsn-1.1","delta":"think."}"#,
        r#"{"type":"reasoning-end","id":"rsn-1.1"}"#,
        r#"{"type":"text-start","id":"txt-1.2"}"#,
        r#"{"type":"text-delta","id":"txt-1.2","delta":"Grüße, "}"#,
        r#"{"type":"text-delta","id":"txt-1.2","delta":"Welt"}"#,
        r#"{"type":"text-end","id":"txt-1.2"}"#,
        r#"{"type":"finish-step"}"#,
    ];
    assert_eq!(sent[1..=10], expected);
}

#[test]
fn an_answer_that_was_never_streamed_is_sent_whole() {
    let mut script = RunScript::begun();
    script.answer_with_reasoning(Some("hm"), "Hello.", &[]);
    assert_eq!(texts(&end(&mut script)), [("reasoning", "hm", false), ("text", "Hello.", false)]);
}

#[test]
fn an_empty_answer_has_no_part() {
    let mut script = RunScript::begun();
    script.answer_with_reasoning(Some(""), "", &[]);
    assert!(texts(&end(&mut script)).is_empty());
}

#[test]
fn repeated_text_is_trimmed() {
    let mut script = RunScript::begun();
    script.delta_at(0, "äöü").delta_at(0, "äö").delta_at(2, "üß").delta_at(3, "ß!").answer("äöüß!", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "äöüß!", false)]);
}

#[test]
fn a_gap_is_filled_by_the_whole_answer() {
    let mut script = RunScript::begun();
    script.delta_at(0, "Hel").delta_at(7, "there").delta_at(12, "!").answer("Hello, there!", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "Hello, there!", false)]);
}

#[test]
fn a_gap_that_a_later_delta_covers_is_streamed() {
    let mut script = RunScript::begun();
    script.delta_at(0, "Hel").delta_at(7, "there").delta_at(0, "Hello, there").answer("Hello, there!", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "Hello, there!", false)]);
}

#[test]
fn a_restarted_answer_begins_a_part_of_its_own() {
    let mut script = RunScript::begun();
    script.delta("The capital is Lyo").reset().delta("Paris ").delta("is.").answer("Paris is.", &[]);
    let message = end(&mut script);
    assert_eq!(texts(&message), [("text", "The capital is Lyo", true), ("text", "Paris is.", false)]);
    let json = serde_json::to_value(&message).unwrap();
    assert_eq!(json.pointer("/parts/1/providerMetadata/holdpoint/discarded"), Some(&true.into()));
    assert_eq!(json.pointer("/parts/2/providerMetadata"), None);
}

#[test]
fn a_restart_before_anything_was_visible_leaves_no_trace() {
    let mut script = RunScript::begun();
    script.reset().delta("Hello.").answer("Hello.", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "Hello.", false)]);
}

#[test]
fn a_restart_that_was_not_announced_is_noticed_by_its_attempt() {
    let mut script = RunScript::begun();
    let message_id = script.message_id();
    let delta = |attempt, offset, text: &str| {
        let (message_id, text) = (message_id.clone(), text.to_owned());
        Body::TextDelta { message_id, attempt, offset, text }
    };
    script.live(delta(1, 0, "Old")).live(delta(2, 0, "New")).live(delta(1, 3, " text"));
    script.live(delta(2, 3, " text")).answer("New text", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "Old", true), ("text", "New text", false)]);
}

#[test]
fn reasoning_after_text_is_a_part_of_its_own() {
    let mut script = RunScript::begun();
    script.reasoning_delta("First. ").delta("Text ").reasoning_delta("Second.").delta("ends.");
    script.answer_with_reasoning(Some("First. Second."), "Text ends.", &[]);
    let expected =
        [("reasoning", "First. ", false), ("text", "Text ends.", false), ("reasoning", "Second.", false)];
    assert_eq!(texts(&end(&mut script)), expected);
}

#[test]
fn deltas_of_another_answer_are_ignored() {
    let mut script = RunScript::begun();
    script.answer("One.", &[]).delta_at(4, " late").step_ended().step();
    script.live(Body::TextDelta {
        message_id: "msg_run_1_1".into(),
        attempt: 1,
        offset: 0,
        text: "stale".into(),
    });
    script.delta("Two.").answer("Two.", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "One.", false), ("text", "Two.", false)]);
}

#[test]
fn text_that_differs_from_the_stored_answer_is_given_up() {
    let mut script = RunScript::begun();
    script.delta("secret").answer("[masked]", &[]);
    assert_eq!(texts(&end(&mut script)), [("text", "secret", true), ("text", "[masked]", false)]);
}

#[test]
fn a_large_result_is_passed_on_as_it_is_stored() {
    let call = crate::run_script::call("a", "read");
    let text = format!(r#"{{"b":1.50,"a":"{}"}}"#, "x".repeat(64 * 1024));
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&call)).executing(&call).succeeded(&call, &text);
    let sent = lines(&stream(ChunkEncoder::new(client_tools()), &script.items, script.items.len()));
    let expected =
        format!(r#"{{"type":"tool-output-available","toolCallId":"a","output":{text},"dynamic":true}}"#);
    assert!(sent.contains(&expected));
}
