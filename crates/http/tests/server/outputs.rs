//! Runs that end with an output: on the run, in its last event, in the transcript, and what is refused.

use engine::agent::{Agent, Trim};
use models::scripted::Reply;
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::test_server::{StoreKind, TestPlan, on_both_stores};

on_both_stores! {
    the_final_text_is_on_a_completed_run_and_in_no_list;
    the_output_is_on_the_run_and_in_its_last_event;
    a_run_without_the_output_that_was_wanted_fails_with_a_code_of_its_own;
    an_agent_wants_an_output_unless_the_message_wants_another;
    a_schema_that_is_none_is_refused_with_its_field;
    a_transcript_is_shortened_as_the_model_sees_it;
}

fn schema() -> Value {
    json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}})
}

async fn posted(client: &Client, body: Value) -> String {
    client.post("/v1/threads", json!({"id": "t"})).await;
    let answer = client.post("/v1/threads/t/messages", body).await.ok(202);
    answer["run_id"].as_str().expect("a run").to_owned()
}

fn message() -> Value {
    json!({"agent": "assistant", "text": "How much?", "output_schema": schema()})
}

async fn the_final_text_is_on_a_completed_run_and_in_no_list(store_kind: StoreKind) {
    let reads = Reply::call("r", "echo", json!({"text": "read"}));
    let test_server = TestPlan::new(store_kind, [reads, Reply::text("All read.")]).build().await;
    let client = &test_server.client;
    let read = client.begin_run("read").await;
    let ended = client.run_reaches(&read, "completed").await;
    assert_eq!(ended["text"], "All read.");
    let listed = client.get("/v1/runs").await.ok(200);
    assert_eq!(listed["runs"][0].get("text"), None, "a list does not read logs");
    // What the model said with its calls is not its answer.
    let writes =
        Reply::text("I will write it.").and_call("w", "write_file", json!({"path": "a", "text": "b"}));
    let test_server = TestPlan::new(store_kind, [writes]).build().await;
    let client = &test_server.client;
    let held = client.begin_run("write").await;
    let waiting = client.run_reaches(&held, "waiting_approval").await;
    assert_eq!(waiting.get("text"), None);
    let approval = waiting["pending"][0]["approval_id"].as_str().expect("a person is asked");
    client.post_nothing(&format!("/v1/approvals/{approval}/reject")).await.ok(200);
    let rejected = client.run_reaches(&held, "completed").await;
    assert_eq!((&rejected["termination"]["code"], rejected.get("text")), (&json!("rejected"), None));
}

async fn the_output_is_on_the_run_and_in_its_last_event(store_kind: StoreKind) {
    let test_server =
        TestPlan::new(store_kind, [Reply::text("Twelve."), Reply::text("{\"total\": 12}")]).build().await;
    let client = &test_server.client;
    let run = posted(client, message()).await;
    let ended = client.run_reaches(&run, "completed").await;
    assert_eq!((&ended["output"], &ended["step"]), (&json!({"total": 12}), &json!(2)));
    let log = client.log(&run).await;
    let last = log.last().expect("an end");
    assert_eq!((&last["type"], &last["payload"]["output"]), (&json!("run.completed"), &json!({"total": 12})));
    let notes: Vec<&Value> = log
        .iter()
        .map(|event| &event["payload"]["message"])
        .filter(|message| message["role"] == "note")
        .collect();
    let text = notes[0]["content"].as_str().expect("a text");
    assert!(text.starts_with("Your last answer is not the output that is wanted: it is not JSON"), "{text}");
    assert_eq!((notes.len(), &notes[0]["call_id"]), (1, &Value::Null));
    // A client that begins in the middle reads the same end.
    let seq = last["seq"].as_u64().expect("a number");
    let rest = client.get(&format!("/v1/runs/{run}/events?after={}", seq - 1)).await.ok(200);
    assert_eq!(rest["events"], json!([last]));
    // A list does not read logs.
    let listed = client.get("/v1/runs").await.ok(200);
    assert_eq!(listed["runs"][0].get("output"), None);
    let transcript = client.get(&format!("/v1/runs/{run}/transcript")).await.ok(200);
    assert_eq!(transcript["messages"][2], json!({"role": "note", "content": text}));
}

async fn a_run_without_the_output_that_was_wanted_fails_with_a_code_of_its_own(store_kind: StoreKind) {
    let test_server =
        TestPlan::new(store_kind, [Reply::text("Twelve."), Reply::text("{\"sum\": 12}")]).build().await;
    let run = posted(&test_server.client, message()).await;
    let failed = test_server.client.run_reaches(&run, "failed").await;
    assert_eq!(failed["error"]["code"], "OUTPUT_INVALID");
    let why = failed["error"]["message"].as_str().expect("a text");
    assert!(why.contains("\"total\" is a required property"), "{why}");
    assert_eq!((failed.get("output"), &failed["termination"]["reason"]), (None, &json!("error")));
}

fn wanting_a_name(agent: Agent) -> Agent {
    agent.output_schema(json!({"type": "object", "required": ["name"]}))
}

async fn an_agent_wants_an_output_unless_the_message_wants_another(store_kind: StoreKind) {
    let replies = [Reply::text("{\"name\": \"ann\"}"), Reply::text("{\"total\": 12}")];
    let test_server = TestPlan { change: wanting_a_name, ..TestPlan::new(store_kind, replies) }.build().await;
    let own = posted(&test_server.client, json!({"agent": "assistant", "text": "Who?"})).await;
    assert_eq!(test_server.client.run_reaches(&own, "completed").await["output"], json!({"name": "ann"}));
    let other = posted(&test_server.client, message()).await;
    assert_eq!(test_server.client.run_reaches(&other, "completed").await["output"], json!({"total": 12}));
}

async fn a_schema_that_is_none_is_refused_with_its_field(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("{}")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let large = json!({"description": "x".repeat(70_000)});
    let level = |number: u32| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        (format!("d{number}"), json!({"allOf": [next.clone(), next]}))
    };
    let levels: Map<String, Value> = (0..50).map(level).chain([("d50".into(), json!({}))]).collect();
    let doubling = json!({"$ref": "#/$defs/d0", "$defs": levels});
    let referring = json!({"pattern": "^(a+)\\1$"});
    let none = [json!("object"), json!(null), json!([]), json!({"type": "objekt"}), large];
    for bad in none.into_iter().chain([doubling, referring]) {
        let body = json!({"agent": "assistant", "text": "go", "output_schema": bad});
        let details = client.post("/v1/threads/t/messages", body).await.refused(400, "BAD_REQUEST");
        assert_eq!(details["field"], "output_schema", "{details}");
    }
    assert_eq!(client.get("/v1/runs").await.ok(200)["runs"], json!([]));
}

fn short_of_memory(agent: Agent) -> Agent {
    agent.trim(Trim { messages_max: Some(2), chars_max: None })
}

async fn a_transcript_is_shortened_as_the_model_sees_it(store_kind: StoreKind) {
    let test_server =
        TestPlan { change: short_of_memory, ..TestPlan::new(store_kind, [Reply::text("Yes.")]) }
            .build()
            .await;
    let client = &test_server.client;
    let mut run = String::new();
    for text in ["one", "two", "three"] {
        run = posted(client, json!({"agent": "assistant", "text": text})).await;
        client.run_reaches(&run, "completed").await;
    }
    let transcript = client.get(&format!("/v1/runs/{run}/transcript")).await.ok(200);
    let shown: Vec<(&Value, &Value)> = transcript["messages"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|message| (&message["role"], &message["content"]))
        .collect();
    let line = json!("[4 earlier messages left out]");
    let (note, user, assistant) = (json!("note"), json!("user"), json!("assistant"));
    let (three, yes) = (json!("three"), json!("Yes."));
    assert_eq!(shown, [(&note, &line), (&user, &three), (&assistant, &yes)]);
}
