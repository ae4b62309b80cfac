//! Runs that never wait: plain and streamed answers, tools, errors, resets, interrupts, state and subagents.

use protocols::ag_ui::{AgUiDialect, AgUiMessage};
use protocols::feed::{Body, CompletedReason, RunEnd, SuspensionKind, Usage, WaitingOn};
use serde_json::{Value, json};

use crate::client::Client;
use crate::feed_story::{DIALECTS, Story, Stream, call, play, segment, transfer};

fn asked(question: &str) -> Client {
    Client::with_user_message("u1", question)
}

/// Plays a run from its beginning in one segment.
fn play_whole(client: &mut Client, dialect: AgUiDialect, story: &Story) -> Stream {
    let segment = segment(client, dialect, "r1", 0);
    play(client, segment, &story.items)
}

#[test]
fn plain_answer_is_one_text_message_in_one_step() {
    for dialect in DIALECTS {
        let mut story = Story::begin("What is the capital of France?");
        story.final_answer("Paris.");
        let mut client = asked("What is the capital of France?");
        let stream = play_whole(&mut client, dialect, &story);
        let types = [
            "RUN_STARTED",
            "CUSTOM",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED",
        ];
        assert_eq!(stream.types(), types);
        assert_eq!(stream.events[1]["value"], json!({"runId": "run_1"}));
        assert_eq!(
            client.messages[1],
            json!({"id": "msg_run_1_1", "role": "assistant", "content": "Paris."})
        );
        assert_eq!(client.messages.len(), 2);
    }
}

#[test]
fn wire_form_differs_between_the_dialects_at_the_start_and_at_the_end_alone() {
    let mut story = Story::begin("Hi");
    story.final_answer("Hello.");
    let of = |dialect| play_whole(&mut asked("Hi"), dialect, &story).events;
    let (new, old) = (of(AgUiDialect::V1_0), of(AgUiDialect::Before));
    assert_eq!(
        new[0],
        json!({"type": "RUN_STARTED", "threadId": "thr_1", "runId": "r1", "protocolVersion": "1.0"})
    );
    assert_eq!(old[0], json!({"type": "RUN_STARTED", "threadId": "thr_1", "runId": "r1"}));
    let finished = json!({
        "type": "RUN_FINISHED", "threadId": "thr_1", "runId": "r1", "timestamp": 1_006,
        "outcome": {"type": "success"}, "usage": [{"inputTokens": 60, "outputTokens": 27}],
    });
    assert_eq!(new.last(), Some(&finished));
    let finished = json!({"type": "RUN_FINISHED", "threadId": "thr_1", "runId": "r1", "timestamp": 1_006});
    assert_eq!(old.last(), Some(&finished));
    assert_eq!(new[1..new.len() - 1], old[1..old.len() - 1]);
}

#[test]
fn streamed_deltas_are_trimmed_and_the_rest_is_completed_once() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Hi");
        story.start_step().reasoning_delta(1, 0, "Think").reasoning_delta(1, 3, "nking.");
        story.text_delta(1, 0, "Grüß ").text_delta(1, 0, "Grüß di").text_delta(1, 3, "ß dich");
        // A delta beyond a gap, and one of an earlier attempt.
        story.text_delta(1, 40, "lost").text_delta(0, 0, "old");
        story.answer_with_reasoning("Grüß dich, Welt", Some("Thinking. Done."), &[]).end_step().complete();
        let mut client = asked("Hi");
        let stream = play_whole(&mut client, dialect, &story);
        let deltas: Vec<_> =
            stream.all("TEXT_MESSAGE_CONTENT").iter().map(|event| event["delta"].clone()).collect();
        assert_eq!(deltas, ["Grüß ", "di", "ch", ", Welt"]);
        assert_eq!(stream.all("TEXT_MESSAGE_START").len(), 1);
        let thoughts =
            json!({"id": "msg_run_1_1_reasoning", "role": "reasoning", "content": "Thinking. Done."});
        assert_eq!(client.messages[1], thoughts);
        assert_eq!(client.messages[2]["content"], "Grüß dich, Welt");
        assert!(stream.all("MESSAGES_SNAPSHOT").is_empty());
    }
}

#[test]
fn reasoning_ends_for_the_client_when_the_text_begins() {
    let mut story = Story::begin("Hi");
    story.start_step().reasoning_delta(1, 0, "Hm").text_delta(1, 0, "Yes");
    story.answer_with_reasoning("Yes", Some("Hm"), &[]).end_step().complete();
    let stream = play_whole(&mut asked("Hi"), AgUiDialect::V1_0, &story);
    let types = [
        "STEP_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
    ];
    assert_eq!(stream.types()[2..12], types);
}

#[test]
fn reasoning_that_the_log_does_not_keep_stays_at_the_client() {
    let mut story = Story::begin("Hi");
    story.start_step().reasoning_delta(1, 0, "Secret").answer("Yes", &[]).end_step().complete();
    let mut client = asked("Hi");
    play_whole(&mut client, AgUiDialect::V1_0, &story);
    assert_eq!(client.messages[1]["content"], "Secret");
    assert_eq!(client.messages[2]["content"], "Yes");
}

#[test]
fn tool_call_and_its_result_belong_to_the_assistant_message() {
    for dialect in DIALECTS {
        let echo = call("call_1", "echo", json!({"text": "ping"}));
        let mut story = Story::begin("Say ping");
        story.start_step().answer("I will.", std::slice::from_ref(&echo)).execute(&echo);
        story.live(Body::ToolLog { call_id: "call_1".into(), tool: "echo".into(), text: "echoing".into() });
        let progress = json!({"percent": 50});
        story.live(Body::ToolProgress { call_id: "call_1".into(), tool: "echo".into(), progress });
        story.succeed(&echo, r#"{"said":"ping"}"#).tool_message(&echo, r#"{"said":"ping"}"#).end_step();
        story.final_answer("Ping.");
        let mut client = asked("Say ping");
        let stream = play_whole(&mut client, dialect, &story);
        let calls = json!([{
            "id": "call_1", "type": "function",
            "function": {"name": "echo", "arguments": "{\"text\":\"ping\"}"},
        }]);
        let expected = json!([
            {"id": "u1", "role": "user", "content": "Say ping"},
            {"id": "msg_run_1_1", "role": "assistant", "content": "I will.", "toolCalls": calls},
            {"id": "msg_call_1", "role": "tool", "toolCallId": "call_1", "content": "{\"said\":\"ping\"}"},
            {"id": "msg_run_1_2", "role": "assistant", "content": "Ping."},
        ]);
        assert_eq!(Value::from(client.messages), expected);
        let custom: Vec<_> = stream.all("CUSTOM").iter().map(|event| event["name"].clone()).collect();
        assert_eq!(custom, ["holdpoint.run", "holdpoint.tool_log", "holdpoint.tool_progress"]);
        assert_eq!(
            Value::from(stream.encoder.messages().iter().map(|m| json!(m)).collect::<Vec<_>>()),
            expected
        );
    }
}

#[test]
fn tool_error_is_the_result_of_the_call_and_the_run_continues() {
    for dialect in DIALECTS {
        let boom = call("call_1", "boom", json!({}));
        let mut story = Story::begin("Try");
        story.start_step().answer("", std::slice::from_ref(&boom)).execute(&boom).fail(&boom, "it broke");
        story.tool_message(&boom, "Error: it broke").end_step().final_answer("It broke.");
        let mut client = asked("Try");
        let stream = play_whole(&mut client, dialect, &story);
        assert_eq!(stream.all("TOOL_CALL_RESULT")[0]["content"], "Error: it broke");
        assert_eq!(client.messages[1]["role"], "assistant");
        assert_eq!(client.messages[1].get("content"), None);
        assert_eq!(client.messages[3]["content"], "It broke.");
        assert!(stream.all("MESSAGES_SNAPSHOT").is_empty());
    }
}

#[test]
fn arguments_that_a_hook_changed_are_the_ones_that_the_client_sees() {
    let mut story = Story::begin("Say ping");
    let (asked_for, gated) =
        (call("call_1", "echo", json!({"text": "ping"})), call("call_1", "echo", json!({"text": "PING"})));
    let answer = Body::AssistantMessage {
        id: "msg_run_1_1".into(),
        text: String::new(),
        reasoning: None,
        calls: vec![asked_for],
    };
    story.start_step().event(answer).event(Body::CallRequested { call: gated.clone() });
    story.succeed(&gated, r#""PING""#).tool_message(&gated, "PING").end_step().final_answer("PING");
    let mut client = asked("Say ping");
    play_whole(&mut client, AgUiDialect::V1_0, &story);
    assert_eq!(client.messages[1]["toolCalls"][0]["function"]["arguments"], r#"{"text":"PING"}"#);
}

#[test]
fn result_that_the_model_reads_shortened_is_corrected_by_a_snapshot() {
    for dialect in DIALECTS {
        let echo = call("call_1", "echo", json!({}));
        let mut story = Story::begin("Go");
        story.start_step().answer("", std::slice::from_ref(&echo)).succeed(&echo, r#""a very long text""#);
        story.tool_message(&echo, "a very [5 of 16 characters left out]").end_step().final_answer("Done.");
        let mut client = asked("Go");
        let stream = play_whole(&mut client, dialect, &story);
        assert_eq!(stream.types()[stream.events.len() - 2..], ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
        assert_eq!(client.messages[2]["content"], "a very [5 of 16 characters left out]");
    }
}

#[test]
fn warning_and_doubt_are_part_of_the_text_as_the_model_reads_it() {
    let write = call("call_1", "write", json!({}));
    let other = call("call_2", "write", json!({}));
    let mut story = Story::begin("Go");
    story.start_step().answer("", &[write.clone(), other.clone()]);
    let (call_id, tool) = (write.call_id.clone(), write.tool.clone());
    let warning = Some("disk is nearly full".to_owned());
    story.event(Body::Succeeded { call_id, tool, result: crate::feed_story::raw("true"), warning });
    let (call_id, tool) = (other.call_id.clone(), other.tool.clone());
    story.event(Body::Failed { call_id, tool, message: "lost".into(), outcome_unknown: true });
    story.tool_message(&write, "true\nWarning: disk is nearly full");
    story.tool_message(&other, "Error: lost; an earlier attempt may have taken effect").end_step();
    story.final_answer("Hm.");
    let stream = play_whole(&mut asked("Go"), AgUiDialect::V1_0, &story);
    assert!(stream.all("MESSAGES_SNAPSHOT").is_empty(), "{:#?}", stream.events);
}

#[test]
fn model_error_ends_the_stream_with_an_error_and_takes_the_partial_answer_back() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Hi");
        story.start_step().text_delta(1, 0, "Hel");
        let end =
            RunEnd::Failed { code: "MODEL_ERROR".into(), message: "500 overloaded".into(), blocked: false };
        story.end(end);
        let mut client = asked("Hi");
        let stream = play_whole(&mut client, dialect, &story);
        let types = ["TEXT_MESSAGE_END", "STEP_FINISHED", "MESSAGES_SNAPSHOT", "RUN_ERROR"];
        assert_eq!(stream.types()[stream.events.len() - 4..], types);
        assert_eq!(stream.last()["message"], "500 overloaded");
        assert_eq!(stream.last()["code"], "MODEL_ERROR");
        assert_eq!(client.conversation(), [json!({"id": "u1", "role": "user", "content": "Hi"})]);
    }
}

#[test]
fn interrupted_run_is_cancelled_or_an_error_for_older_clients() {
    for dialect in DIALECTS {
        let echo = call("call_1", "echo", json!({}));
        let mut story = Story::begin("Hi");
        story.start_step().answer("", std::slice::from_ref(&echo)).execute(&echo);
        story.event(Body::RunInterrupting).cancel(&echo, "interrupted");
        story.tool_message(&echo, "Cancelled: interrupted").end_step();
        story.end(RunEnd::Interrupted { code: None, by: Some("ana".into()) });
        let mut client = asked("Hi");
        let stream = play_whole(&mut client, dialect, &story);
        match dialect {
            AgUiDialect::V1_0 => {
                assert_eq!(stream.last()["outcome"], json!({"type": "cancelled"}));
                let why = json!({"reason": "cancelled", "by": "ana"});
                assert_eq!(stream.last()["metadata"]["holdpoint"], why);
            }
            AgUiDialect::Before => {
                assert_eq!(stream.last()["type"], "RUN_ERROR");
                assert_eq!(stream.last()["code"], "STOPPED");
            }
        }
        assert_eq!(client.messages[2]["content"], "Cancelled: interrupted");
    }
}

#[test]
fn queued_run_that_is_interrupted_has_a_legal_stream() {
    for dialect in DIALECTS {
        let mut story = Story::default();
        story.event(Body::RunQueued).event(Body::RunInterrupting);
        story.end(RunEnd::Interrupted { code: Some("superseded".into()), by: None });
        play_whole(&mut asked("Hi"), dialect, &story);
    }
}

#[test]
fn blocked_and_stopped_runs_finish_and_say_why() {
    let stopped = |code: &str| RunEnd::Completed {
        reason: CompletedReason::Stopped,
        code: Some(code.into()),
        detail: Some("25 of 25 rounds".into()),
    };
    let blocked = RunEnd::Failed { code: "BLOCKED".into(), message: "not on Sundays".into(), blocked: true };
    let cases =
        [(stopped("max_rounds"), "cancelled"), (blocked, "cancelled"), (stopped("stop_on_tool"), "success")];
    for (end, outcome) in cases {
        for dialect in DIALECTS {
            let mut story = Story::begin("Hi");
            story.start_step().answer("Hm", &[]).end_step().end(end.clone());
            let stream = play_whole(&mut asked("Hi"), dialect, &story);
            assert_eq!(stream.last()["type"], "RUN_FINISHED");
            assert!(stream.last()["metadata"]["holdpoint"]["reason"].is_string());
            match dialect {
                AgUiDialect::V1_0 => assert_eq!(stream.last()["outcome"]["type"], outcome),
                AgUiDialect::Before => assert_eq!(stream.last().get("outcome"), None),
            }
        }
    }
}

#[test]
fn reset_of_a_visible_answer_removes_it_and_streams_the_next_attempt() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Hi");
        story.start_step().reasoning_delta(1, 0, "Wrong").text_delta(1, 0, "Good mor");
        story.event(Body::ModelRetrying { attempt: 2 }).reset(2).text_delta(1, 8, "ning");
        story
            .text_delta(2, 0, "Good")
            .text_delta(1, 4, " mor")
            .text_delta(2, 4, " day")
            .answer("Good day.", &[])
            .end_step()
            .complete();
        let mut client = asked("Hi");
        let stream = play_whole(&mut client, dialect, &story);
        let deltas: Vec<_> =
            stream.all("TEXT_MESSAGE_CONTENT").iter().map(|event| event["delta"].clone()).collect();
        assert_eq!(deltas, ["Good mor", "Good", " day", "."]);
        let snapshot = stream.all("MESSAGES_SNAPSHOT")[0];
        assert!(
            snapshot["messages"].as_array().unwrap().iter().all(|message| message["role"] != "assistant")
        );
        assert_eq!(client.conversation()[1]["content"], "Good day.");
        assert_eq!(client.conversation().len(), 2);
        let reasoning = client.messages.iter().find(|message| message["role"] == "reasoning");
        assert!(reasoning.is_none_or(|reasoning| reasoning["content"] == ""), "{reasoning:?}");
    }
}

#[test]
fn reset_without_its_frame_is_noticed_by_the_next_attempt() {
    let mut story = Story::begin("Hi");
    story.start_step().text_delta(1, 0, "Good mor").text_delta(2, 0, "Hello").answer("Hello.", &[]);
    story.end_step().complete();
    let mut client = asked("Hi");
    play_whole(&mut client, AgUiDialect::V1_0, &story);
    assert_eq!(client.messages[1]["content"], "Hello.");
}

#[test]
fn answer_that_does_not_begin_with_what_was_streamed_is_corrected_at_once() {
    for dialect in DIALECTS {
        let echo = call("call_1", "echo", json!({}));
        let mut story = Story::begin("Hi");
        story.start_step().text_delta(1, 0, "Good mor").answer("Hello.", std::slice::from_ref(&echo));
        story.succeed(&echo, "1").tool_message(&echo, "1").end_step().final_answer("Done.");
        let mut client = asked("Hi");
        play_whole(&mut client, dialect, &story);
        assert_eq!(client.messages[1]["content"], "Hello.");
        assert_eq!(client.messages[1]["toolCalls"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn state_of_plugins_is_a_delta_on_the_state_that_the_client_has() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Hi");
        let patch = |key: &str, value: i64| json!([{"op": "add", "path": format!("/{key}"), "value": value}]);
        story.event(Body::StateChanged { patch: patch("thread:counter.visits", 1) });
        story.event(Body::StateChanged { patch: json!([{"op": "replace", "path": "/absent", "value": 1}]) });
        story.event(Body::StateChanged { patch: patch("a~1b.c~0d", 2) }).final_answer("Hello.");
        let mut client = asked("Hi");
        client.state = json!({"theme": "dark"});
        let stream = play_whole(&mut client, dialect, &story);
        assert_eq!(stream.all("STATE_DELTA").len(), 2);
        assert!(stream.all("STATE_SNAPSHOT").is_empty());
        assert_eq!(client.state, json!({"theme": "dark", "thread:counter.visits": 1, "a/b.c~d": 2}));
        assert_eq!(*stream.encoder.state(), client.state);
    }
}

#[test]
fn stored_state_that_the_client_lacks_is_sent_first_and_keeps_the_clients_keys() {
    let mut story = Story::begin("Hi");
    story.final_answer("Hello.");
    let mut client = asked("Hi");
    client.state = json!({"theme": "dark"});
    let mut segment = segment(&client, AgUiDialect::V1_0, "r1", 0);
    segment.stored_state.insert("counter.visits".into(), json!(7));
    let stream = play(&mut client, segment, &story.items);
    assert_eq!(stream.types()[1], "STATE_SNAPSHOT");
    assert_eq!(client.state, json!({"theme": "dark", "counter.visits": 7}));
}

#[test]
fn history_that_the_client_lacks_is_restated_with_its_own_message() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Second");
        story.items[2].body = Body::UserMessage { id: "u2".into(), content: json!("Second") };
        story.final_answer("Two.");
        let mut client = Client::with_user_message("u2", "Second");
        let mut segment = segment(&client, dialect, "r1", 0);
        segment.earlier = vec![
            AgUiMessage::User { id: "u1".into(), content: json!("First") },
            AgUiMessage::Assistant { id: "a1".into(), content: Some("One.".into()), tool_calls: Vec::new() },
        ];
        let stream = play(&mut client, segment, &story.items);
        assert_eq!(stream.all("MESSAGES_SNAPSHOT").len(), 1);
        let ids: Vec<_> = stream.all("MESSAGES_SNAPSHOT")[0]["messages"].as_array().unwrap().iter().collect();
        assert_eq!(ids.iter().map(|message| &message["id"]).collect::<Vec<_>>(), ["u1", "a1", "u2"]);
    }
}

#[test]
fn note_is_a_custom_event_and_no_message() {
    let mut story = Story::begin("Hi");
    story.event(Body::Note { id: "n1".into(), call_id: Some("c".into()), text: "late".into() });
    story.final_answer("Hello.");
    let mut client = asked("Hi");
    let stream = play_whole(&mut client, AgUiDialect::Before, &story);
    let note = json!({"id": "n1", "text": "late", "toolCallId": "c"});
    assert_eq!(stream.all("CUSTOM")[1]["value"], note);
    assert_eq!(client.messages.len(), 2);
}

#[test]
fn subagent_is_announced_while_the_run_waits_for_it() {
    for dialect in DIALECTS {
        let ask = call("call_1", "researcher", json!({"question": "How many?"}));
        let mut story = Story::begin("How many?");
        let child = || "run_child".to_owned();
        story.start_step().answer("Let me ask.", std::slice::from_ref(&ask)).execute(&ask);
        story.event(Body::ChildStarted { call_id: "call_1".into(), run_id: child() });
        story.suspend(&ask, "sus_1", SuspensionKind::ChildRun { run_id: child() }).wait(WaitingOn::Tool);
        let before = story.items.len();
        story.event(Body::ChildEnded { call_id: "call_1".into(), run_id: child() });
        story.resume_call(&ask, "sus_1").resume().succeed(&ask, r#""2 million""#);
        story.tool_message(&ask, "2 million").end_step().final_answer("2 million.");
        let mut client = asked("How many?");
        let mut stream = Stream::open(segment(&client, dialect, "r1", 0));
        stream.push_all(&story.items[..before]);
        assert!(!stream.encoder.is_done(), "only the child has to act");
        stream.push_all(&story.items[before..]).assert_done();
        client.apply_all(&stream.events);
        let announced = stream.all("SUBAGENT_STARTED");
        match dialect {
            AgUiDialect::V1_0 => {
                let started = json!({
                    "type": "SUBAGENT_STARTED", "subagentRunId": "run_child", "name": "researcher",
                    "parentToolCallId": "call_1", "parentMessageId": "msg_run_1_1", "timestamp": 1_007,
                });
                assert_eq!(announced, [&started]);
                assert_eq!(stream.all("SUBAGENT_FINISHED").len(), 1);
            }
            AgUiDialect::Before => assert!(announced.is_empty()),
        }
        assert_eq!(client.messages[2]["content"], "2 million");
    }
}

#[test]
fn failed_and_cancelled_subagents_end_with_an_error_of_their_own() {
    for fails in [true, false] {
        let ask = call("call_1", "researcher", json!({}));
        let mut story = Story::begin("How many?");
        story.start_step().answer("", std::slice::from_ref(&ask));
        story.event(Body::ChildStarted { call_id: "call_1".into(), run_id: "run_child".into() });
        if fails {
            story.fail(&ask, "no idea")
        } else {
            story.cancel(&ask, "child_interrupted")
        };
        story.end_step().final_answer("Sorry.");
        let stream = play_whole(&mut asked("How many?"), AgUiDialect::V1_0, &story);
        let error = stream.all("SUBAGENT_ERROR")[0];
        assert_eq!(error.get("code"), (!fails).then(|| json!("cancelled")).as_ref());
    }
}

#[test]
fn failure_of_the_server_is_the_last_event_at_any_time() {
    let mut story = Story::begin("Hi");
    story.start_step().text_delta(1, 0, "Hel");
    for count in 0..=story.items.len() {
        let mut stream = Stream::open(segment(&asked("Hi"), AgUiDialect::V1_0, "r1", 0));
        stream.push_all(&story.items[..count]);
        let events = stream.encoder.abort("STORE_UNAVAILABLE", "the store does not answer");
        stream.receive(events);
        stream.assert_done();
        assert!(stream.encoder.abort("AGAIN", "").is_empty());
        let end =
            Body::RunEnded { end: RunEnd::Interrupted { code: None, by: None }, usage: Usage::default() };
        story.event(end);
        assert!(stream.encoder.push(story.items.last().unwrap()).is_empty());
        story.items.pop();
    }
}

#[test]
fn repeated_items_and_items_of_other_runs_are_skipped() {
    let mut story = Story::begin("Hi");
    story.final_answer("Hello.");
    let mut other = story.items[3].clone();
    other.run_id = "run_2".into();
    other.seq = Some(99);
    other.body = Body::CallRequested { call: transfer("call_9", "eve") };
    let mut items = story.items.clone();
    items.insert(3, other);
    items.splice(5..5, story.items[..4].to_vec());
    let stream = play(&mut asked("Hi"), segment(&asked("Hi"), AgUiDialect::V1_0, "r1", 0), &items);
    let whole = play_whole(&mut asked("Hi"), AgUiDialect::V1_0, &story);
    assert_eq!(stream.events, whole.events);
}
