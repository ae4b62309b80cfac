//! Streams: replay, reconnect, deltas, signs of life, and approvals as they change.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use holdpoint_http::Limits;
use serde_json::{Value, json};

use crate::client::{Client, Frame, kinds};
use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores, write_call};
use models::scripted::Reply;

on_all_stores! {
    d30_d32_d35_a_stream_sends_the_log_and_closes_after_the_terminal_event;
    c90_d35_a_client_that_reconnects_gets_exactly_the_rest;
    a_long_log_can_be_read_from_any_event;
    an_eager_log_can_be_read_from_any_event;
    d36_a_stream_stays_open_while_the_run_waits;
    d23_d18_the_stream_and_the_run_agree;
    deltas_have_no_id_and_are_not_in_the_log;
    arguments_on_their_way_name_no_call_of_an_earlier_run;
    a_stream_has_its_headers_and_keep_alive_comments;
    approvals_are_streamed_the_pending_ones_first;
    streams_are_closed_when_the_server_drains;
}

#[tokio::test]
async fn c99_a_stream_of_the_ai_sdk_has_its_header_and_ends_with_done() {
    let test_server = TestPlan::new(StoreKind::Memory, [Reply::text("Hello.")]).build().await;
    let part = json!({"type": "text", "text": "hi"});
    let body = json!({"id": "chat", "messages": [{"id": "u1", "role": "user", "parts": [part]}]});
    let answer = test_server.client.post("/v1/ai-sdk/assistant", body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["x-vercel-ai-ui-message-stream"], "v1");
    assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
}

fn data(frames: &[Frame]) -> Vec<Value> {
    frames.iter().map(|frame| frame.data.clone()).collect()
}

async fn d30_d32_d35_a_stream_sends_the_log_and_closes_after_the_terminal_event(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let log = client.log(&run).await;
    let frames = client.stream(&format!("/v1/runs/{run}/events"), &[]).await.rest().await;
    assert_eq!(data(&frames), log);
    for (place, frame) in frames.iter().enumerate() {
        assert_eq!(frame.id.as_deref(), Some((place + 1).to_string().as_str()));
        assert_eq!(frame.data["type"], json!(frame.event));
        assert_eq!(frame.data["seq"], json!(place + 1));
    }
    let ends = ["run.completed", "run.failed", "run.interrupted"];
    assert_eq!(kinds(&log).iter().filter(|kind| ends.contains(kind)).count(), 1);
    assert_eq!(kinds(&log).last(), Some(&"run.completed"));
}

async fn c90_d35_a_client_that_reconnects_gets_exactly_the_rest(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let log = client.log(&run).await;
    let path = format!("/v1/runs/{run}/events");
    for seen in 1..log.len() {
        let id = seen.to_string();
        let by_header = client.stream(&path, &[("last-event-id", &id)]).await.rest().await;
        assert_eq!(data(&by_header), log[seen..], "behind {seen}");
        let by_query = client.stream(&format!("{path}?after={seen}"), &[]).await.rest().await;
        assert_eq!(by_query, by_header);
    }
    let wins = client.stream(&format!("{path}?after=1"), &[("last-event-id", "3")]).await.rest().await;
    assert_eq!(data(&wins), log[3..], "the header counts more");
    for unknown in ["x", "-1", "9999", ""] {
        let all = client.stream(&path, &[("last-event-id", unknown)]).await.rest().await;
        assert_eq!(data(&all), log, "`{unknown}` is no number of this run");
    }
    let last = log.len().to_string();
    let headers = [("accept", "text/event-stream"), ("last-event-id", last.as_str())];
    let nothing = client.send(hyper::Method::GET, &path, &headers, None).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""), "nothing is left");
}

/// A client that begins after any event of an ended run gets the same rest as one that began at the first.
async fn check_log_from_any_event(client: &Client, run: &str, step: usize) {
    let path = format!("/v1/runs/{run}/events");
    let log = data(&client.stream(&path, &[]).await.rest().await);
    for seen in (1..log.len()).step_by(step) {
        let rest = client.stream(&format!("{path}?after={seen}"), &[]).await.rest().await;
        assert_eq!(data(&rest), log[seen..], "behind {seen}");
        let page = client.get(&format!("{path}?after={seen}&limit=7")).await.ok(200);
        let end = log.len().min(seen + 7);
        assert_eq!(page["events"], json!(log[seen..end]), "a page behind {seen}");
        let next = if end < log.len() { json!(end) } else { json!(null) };
        assert_eq!((&page["next_after"], &page["last_seq"]), (&next, &json!(log.len())));
    }
}

async fn a_long_log_can_be_read_from_any_event(store_kind: StoreKind) {
    let echoes =
        (0..60).map(|step| Reply::call(&format!("e{step}"), "echo", json!({"text": step.to_string()})));
    let mut plan = TestPlan::new(store_kind, echoes.chain([Reply::text("Done.")]));
    plan.change = |agent| agent.stop_when([]);
    let test_server = plan.build().await;
    let run = test_server.client.begin_run("say a lot").await;
    test_server.client.run_reaches(&run, "completed").await;
    let listed = test_server.client.get(&format!("/v1/runs/{run}/events?limit=1000")).await.ok(200);
    assert!(listed["events"].as_array().unwrap().len() > 400, "more than is read at once");
    check_log_from_any_event(&test_server.client, &run, 37).await;
    let thread = listed["events"][0]["thread_id"].as_str().unwrap();
    let messages = test_server.client.get(&format!("/v1/threads/{thread}/messages?limit=1000")).await.ok(200);
    let tool = |message: &&Value| message["role"] == "tool";
    let said: Vec<&Value> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(tool)
        .map(|message| &message["content"])
        .collect();
    assert_eq!(
        said,
        (0..60).map(|step| json!(step.to_string())).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
}

async fn an_eager_log_can_be_read_from_any_event(store_kind: StoreKind) {
    let calls = Reply::call("c", "count", json!({})).and_call("e", "echo", json!({"text": "at once"}));
    let test_server =
        TestPlan::new(store_kind, [calls, Reply::text("Meanwhile."), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let body = json!({"agent": "assistant", "text": "go", "policy": {"continuation": "eager"}});
    let run =
        client.post("/v1/threads/t/messages", body).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    let held = client.run_reaches(&run, "waiting_approval").await;
    let approval = held["pending"][0]["approval_id"].as_str().unwrap();
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let log = client.log(&run).await;
    let notes = log.iter().filter(|event| event["payload"]["message"]["role"] == "note");
    let said: Vec<&str> =
        notes.map(|event| event["payload"]["message"]["content"].as_str().unwrap()).collect();
    assert!(said.len() == 1 && said[0].contains("counted"), "{said:?}");
    check_log_from_any_event(client, &run, 1).await;
}

async fn d36_a_stream_stays_open_while_the_run_waits(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let mut stream = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|kind| kind != "run.waiting") {
        seen.push(stream.next_stored().await.expect("it stays open").event);
    }
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    let rest = stream.rest().await;
    assert_eq!(rest.first().map(|frame| frame.event.as_str()), Some("tool.approved"));
    assert_eq!(rest.last().map(|frame| frame.event.as_str()), Some("run.completed"));
}

async fn d23_d18_the_stream_and_the_run_agree(store_kind: StoreKind) {
    let replies = [write_call(), Reply::text("Done.").usage(7, 3)];
    let test_server = TestPlan::new(store_kind, replies).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    let ended = client.run_reaches(&run, "completed").await;
    let log = client.log(&run).await;
    let terminal = log.last().unwrap();
    for field in ["status", "termination", "usage", "error"] {
        assert_eq!(terminal["payload"][field], ended[field], "{field}");
    }
    assert_eq!(ended["usage"], json!({"input_tokens": 7, "output_tokens": 3}));
    let same = |event: &Value| event["run_id"] == json!(run) && event["thread_id"] == ended["thread_id"];
    assert!(log.iter().all(same));
}

/// A first step that continues when a client watches.
fn blocking() -> Reply {
    Reply::call("gate", "block", json!({}))
}

/// Everything that a stream shows of a run that begins with [`blocking`]; whatever follows is said to this reader.
async fn frames_from_the_gate_on(test_server: &TestServer, run: &str) -> Vec<Frame> {
    let mut stream = test_server.client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Frame| frame.event != "tool.execution_started") {
        frames.push(stream.next().await.expect("the call begins"));
    }
    test_server.gate.notify_one();
    frames.extend(stream.rest().await);
    frames
}

async fn deltas_have_no_id_and_are_not_in_the_log(store_kind: StoreKind) {
    let slow = Reply::text("a long answer").delta_chars(NonZeroUsize::MIN).after(Duration::from_millis(10));
    let test_server = TestPlan::new(store_kind, [blocking(), slow]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("hello").await;
    let frames = frames_from_the_gate_on(&test_server, &run).await;
    let deltas: Vec<&Frame> = frames.iter().filter(|frame| frame.event == "text.delta").collect();
    assert!(!deltas.is_empty(), "{frames:?}");
    for delta in &deltas {
        assert_eq!((delta.id.as_ref(), delta.data.get("seq")), (None, None));
        // It names the step of its answer, and a time between the events around it.
        let ts = delta.data["ts"].as_str().expect("a time");
        let started = frames.iter().rfind(|frame| frame.event == "step.started").expect("a step");
        let ended = frames.last().expect("an end");
        assert_eq!(delta.data["step"], started.data["step"]);
        assert!(
            started.data["ts"].as_str() <= Some(ts) && Some(ts) <= ended.data["ts"].as_str(),
            "{delta:?}"
        );
        let offset = usize::try_from(delta.data["payload"]["offset"].as_u64().unwrap()).unwrap();
        let text = delta.data["payload"]["text"].as_str().unwrap();
        assert!("a long answer"[offset..].starts_with(text), "{delta:?}");
    }
    let stored: Vec<Value> =
        frames.iter().filter(|frame| frame.id.is_some()).map(|frame| frame.data.clone()).collect();
    assert_eq!(stored, client.log(&run).await);
    assert_eq!(
        frames.last().map(|frame| frame.event.as_str()),
        Some("run.completed"),
        "nothing after the end"
    );
}

async fn arguments_on_their_way_name_no_call_of_an_earlier_run(store_kind: StoreKind) {
    let asks = Reply::call("call_0", "echo", json!({"text": "a long argument"}));
    let asks = asks.delta_chars(NonZeroUsize::MIN).after(Duration::from_millis(5));
    let test_server = TestPlan::new(store_kind, [blocking(), asks, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    for _ in 0..2 {
        let message = json!({"agent": "assistant", "text": "go"});
        let posted = client.post("/v1/threads/t/messages", message).await.ok(202);
        let frames = frames_from_the_gate_on(&test_server, posted["run_id"].as_str().unwrap()).await;
        let of = |name: &str| -> Vec<&Value> {
            frames.iter().filter(|frame| frame.event == name).map(|frame| &frame.data["payload"]).collect()
        };
        let (deltas, mut requested) = (of("tool.arguments_delta"), of("tool.requested"));
        requested.retain(|call| call["tool"] == "echo");
        assert!(!deltas.is_empty() && requested.len() == 1, "{frames:?}");
        for delta in deltas {
            assert!(delta.get("call_id").is_none_or(|id| *id == requested[0]["call_id"]), "{delta}");
        }
    }
}

async fn a_stream_has_its_headers_and_keep_alive_comments(store_kind: StoreKind) {
    let mut plan = TestPlan::one_write(store_kind);
    plan.limits = Limits { keep_alive_interval: Duration::from_millis(20), ..Limits::default() };
    let test_server = plan.build().await;
    let (run, _) = test_server.client.begin_held_run("write it").await;
    let mut stream = test_server.client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.headers["cache-control"], "no-cache");
    assert_eq!(stream.headers["x-accel-buffering"], "no");
    let mut signs = 0;
    while signs < 3 {
        let block = stream.next_block().await.expect("it stays open");
        signs += u32::from(block.starts_with(':'));
    }
}

async fn approvals_are_streamed_the_pending_ones_first(store_kind: StoreKind) {
    let calls = Reply::call("a", "count", json!({"by": 1})).and_call("b", "count", json!({"by": 2}));
    let test_server = TestPlan::new(store_kind, [calls, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let two = client.begin_run("count").await;
    let held = client.run_until(&two, |seen| seen["pending"].as_array().unwrap().len() == 2).await;
    let id = |place: usize| held["pending"][place]["approval_id"].as_str().unwrap().to_owned();
    let mut stream = client.stream("/v1/approvals/stream", &[]).await;
    let mut next_change = async || {
        let frame = stream.next().await.expect("it stays open");
        assert_eq!((frame.event.as_str(), frame.id), ("approval", None));
        let field = |name: &str| frame.data[name].as_str().unwrap().to_owned();
        (field("id"), field("status"))
    };
    let is = |id: &str, status: &str| (id.to_owned(), status.to_owned());
    let pending = BTreeSet::from([next_change().await, next_change().await]);
    assert_eq!(pending, BTreeSet::from([is(&id(0), "pending"), is(&id(1), "pending")]));
    client.post_nothing(&format!("/v1/approvals/{}/approve", id(0))).await.ok(200);
    assert_eq!(next_change().await, is(&id(0), "approved"));
    let (_, later) = client.begin_held_run("count").await;
    let opened = BTreeSet::from([next_change().await, next_change().await]);
    assert!(opened.contains(&is(&later, "pending")), "{opened:?}");
    assert!(
        opened.iter().all(|(sent, _)| *sent != id(1)),
        "what has not changed is not sent again: {opened:?}"
    );
    client.post_nothing(&format!("/v1/runs/{two}/interrupt")).await.ok(202);
    assert_eq!(next_change().await, is(&id(1), "rejected"));
}

async fn streams_are_closed_when_the_server_drains(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let mut events = client.stream(&format!("/v1/runs/{run}/events"), &[]).await;
    while events.next_stored().await.expect("it stays open").event != "run.waiting" {}
    let mut approvals = client.stream("/v1/approvals/stream", &[]).await;
    assert_eq!(approvals.next().await.expect("it stays open").data["id"], json!(approval));
    client.get("/readyz").await.ok(200);
    test_server.draining.cancel();
    assert_eq!(events.rest().await, []);
    assert_eq!(approvals.rest().await, []);
    client.get("/readyz").await.refused(503, "DRAINING");
    client.get("/healthz").await.ok(200);
    client.get(&format!("/v1/runs/{run}")).await.ok(200);
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.refused(503, "DRAINING");
    client.post("/v1/threads", json!({})).await.refused(503, "DRAINING");
    assert_eq!(test_server.note(), None);
}
