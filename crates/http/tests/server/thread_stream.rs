//! The stream of a thread: all of its runs, in one order, for clients that connect, reconnect and fall behind.

use std::time::Duration;

use holdpoint_http::{AgentScope, Auth, Key, Limits, Role, Roles};
use machine::id::AgentName;
use models::scripted::Reply;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::{Client, EventStream, Frame, JSON};
use crate::test_server::{StoreKind, TestPlan, TestServer, on_all_stores, token, write_call};

const ALL: &[Role] = &[Role::Run, Role::Approve, Role::Admin];
const EVENTS: &str = "/v1/threads/t/events";

on_all_stores! {
    a_thread_is_streamed_run_after_run_and_the_stream_stays_open;
    every_event_is_a_position_to_continue_from;
    queued_and_superseded_runs_are_streamed_in_their_order;
    the_present_is_what_comes_after_the_newest_event;
    a_deleted_thread_closes_its_stream;
    messages_are_listed_newest_first;
}

async fn thread(client: &Client) {
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
}

async fn post(client: &Client, body: Value) -> String {
    client.post("/v1/threads/t/messages?wait=25s", body).await.ok(202)["run_id"].as_str().unwrap().to_owned()
}

fn message(on_busy: Option<&str>) -> Value {
    match on_busy {
        Some(on_busy) => json!({"agent": "assistant", "text": "go", "on_busy": on_busy}),
        None => json!({"agent": "assistant", "text": "go"}),
    }
}

/// The next stored events up to one of this type of this run.
async fn until(stream: &mut EventStream, run: &str, kind: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = stream.next_stored().await.expect("the stream stays open");
        let is_last = frame.event == kind && frame.data["run_id"] == run;
        frames.push(frame);
        if is_last {
            return frames;
        }
    }
}

fn data(frames: &[Frame]) -> Vec<Value> {
    frames.iter().map(|frame| frame.data.clone()).collect()
}

/// The logs of these runs, one after the other.
async fn logs(client: &Client, runs: &[&str]) -> Vec<Value> {
    let mut events = Vec::new();
    for run in runs {
        events.extend(client.log(run).await);
    }
    events
}

/// What the events add to the thread.
fn messages_in(frames: &[Frame]) -> Vec<Value> {
    let added = frames.iter().filter(|frame| frame.event == "message.added");
    added.map(|frame| frame.data["payload"]["message"].clone()).collect()
}

fn texts(count: usize) -> Vec<Reply> {
    (0..count).map(|number| Reply::text(format!("Answer {number}."))).collect()
}

async fn a_thread_is_streamed_run_after_run_and_the_stream_stays_open(store_kind: StoreKind) {
    let slow = Reply::text("a long answer").delta_chars(std::num::NonZeroUsize::MIN);
    let slow = slow.after(Duration::from_millis(5));
    let test_server = TestPlan::new(store_kind, [slow]).build().await;
    let client = &test_server.client;
    thread(client).await;
    let mut live = client.stream(EVENTS, &[]).await;
    assert_eq!(live.headers["content-type"], "text/event-stream");
    assert_eq!(live.headers["cache-control"], "no-cache");
    assert_eq!(live.headers["x-accel-buffering"], "no");
    let mut runs = Vec::new();
    let (mut seen, mut deltas) = (Vec::new(), 0);
    for _ in 0..3 {
        let posted = client.post("/v1/threads/t/messages", message(None)).await.ok(202);
        let run = posted["run_id"].as_str().unwrap().to_owned();
        loop {
            let frame = live.next().await.expect("the stream stays open");
            assert_eq!(frame.data["run_id"], run.as_str());
            if frame.id.is_none() {
                deltas += usize::from(frame.event == "text.delta");
                continue;
            }
            let is_last = frame.event == "run.completed";
            seen.push(frame);
            if is_last {
                break;
            }
        }
        runs.push(run);
    }
    assert!(deltas > 0, "live updates of the executing run are sent");
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    assert_eq!(data(&seen), logs(client, &runs).await);
    for frame in &seen {
        let id = format!("{}:{}", frame.data["run_id"].as_str().unwrap(), frame.data["seq"]);
        assert_eq!(frame.id.as_ref(), Some(&id));
        assert_eq!(frame.data["type"], json!(frame.event));
    }
    let listed = client.get("/v1/threads/t/messages").await.ok(200)["messages"].clone();
    assert_eq!(json!(messages_in(&seen)), listed, "a view built from the stream is the list");
    let again = until(&mut client.stream(EVENTS, &[]).await, runs[2], "run.completed").await;
    assert_eq!(again, seen, "a replay has the same order");
}

async fn every_event_is_a_position_to_continue_from(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, texts(1)).build().await;
    let client = &test_server.client;
    thread(client).await;
    let mut last = String::new();
    for _ in 0..3 {
        last = post(client, message(None)).await;
    }
    let all = until(&mut client.stream(EVENTS, &[]).await, &last, "run.completed").await;
    for (place, frame) in all.iter().enumerate() {
        let id = frame.id.as_deref().unwrap();
        let mut stream = client.stream(&format!("{EVENTS}?from=now"), &[("last-event-id", id)]).await;
        if place + 1 < all.len() {
            let rest = until(&mut stream, &last, "run.completed").await;
            assert_eq!(rest, all[place + 1..], "after {id}");
        } else {
            let next = post(client, message(None)).await;
            let rest = until(&mut stream, &next, "run.completed").await;
            assert_eq!(data(&rest), client.log(&next).await, "only what comes after the end");
        }
    }
    client.post("/v1/threads", json!({"id": "other"})).await.ok(201);
    let posted = client.post("/v1/threads/other/messages?wait=25s", message(None)).await.ok(202);
    let foreign = format!("{}:1", posted["run_id"].as_str().unwrap());
    let beyond = format!("{last}:9999");
    for unknown in
        ["", "x", "7", "run_1:1", ":", &foreign, &beyond, &format!("{last}:-1"), &format!("{last}:")]
    {
        let mut stream = client.stream(EVENTS, &[("last-event-id", unknown)]).await;
        let first = stream.next_stored().await.expect("the stream stays open");
        assert_eq!(first, all[0], "`{unknown}` is no event of this thread");
    }
}

async fn queued_and_superseded_runs_are_streamed_in_their_order(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [write_call(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    thread(client).await;
    let mut live = client.stream(EVENTS, &[]).await;
    let held = post(client, message(None)).await;
    let mut seen = until(&mut live, &held, "run.waiting").await;
    let queue = async |on_busy: &str| {
        let posted = client.post("/v1/threads/t/messages", message(Some(on_busy))).await.ok(202);
        posted["run_id"].as_str().unwrap().to_owned()
    };
    let queued = queue("enqueue").await;
    let interrupted = queue("enqueue").await;
    client.post_nothing(&format!("/v1/runs/{interrupted}/interrupt")).await.ok(202);
    client.run_reaches(&interrupted, "interrupted").await;
    let last = queue("interrupt").await;
    seen.extend(until(&mut live, &last, "run.waiting").await);
    let runs = [&*held, &*queued, &*interrupted, &*last];
    assert_eq!(data(&seen), logs(client, &runs).await, "run after run, whichever event was stored first");
    let listed = client.get("/v1/threads/t/messages").await.ok(200)["messages"].clone();
    assert_eq!(json!(messages_in(&seen)), listed);
    // A client that connects in the middle gets the same order as the one that was there all the time.
    for place in [0, seen.len() / 2, seen.len() - 2] {
        let id = seen[place].id.clone().unwrap();
        let rest =
            until(&mut client.stream(EVENTS, &[("last-event-id", &id)]).await, &last, "run.waiting").await;
        assert_eq!(rest, seen[place + 1..], "after {id}");
    }
}

async fn the_present_is_what_comes_after_the_newest_event(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [write_call(), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    thread(client).await;
    let now = format!("{EVENTS}?from=now");
    let mut empty = client.stream(&now, &[]).await;
    assert_eq!(empty.next_block().await.as_deref(), Some("id: 0"));
    let held = post(client, message(None)).await;
    let before = until(&mut empty, &held, "run.waiting").await;
    assert_eq!(data(&before), client.log(&held).await);
    let mut waiting = client.stream(&now, &[]).await;
    let id = before.last().unwrap().id.clone().unwrap();
    assert_eq!(waiting.next_block().await, Some(format!("id: {id}")), "a client continues here");
    let approval = client.get(&format!("/v1/runs/{held}")).await.ok(200)["pending"][0]["approval_id"].clone();
    client.post_nothing(&format!("/v1/approvals/{}/approve", approval.as_str().unwrap())).await.ok(200);
    let rest = until(&mut waiting, &held, "run.completed").await;
    assert_eq!(data(&rest), client.log(&held).await[before.len()..]);
    let mut ended = client.stream(&now, &[]).await;
    let id = rest.last().unwrap().id.clone().unwrap();
    assert_eq!(ended.next_block().await, Some(format!("id: {id}")));
    let next = post(client, message(None)).await;
    let frames = until(&mut ended, &next, "run.waiting").await;
    assert_eq!(data(&frames), client.log(&next).await);
    for bad in ["from=then", "from=", "from=now&from=now", "after=1"] {
        let refused = client.get(&format!("{EVENTS}?{bad}")).await;
        let details = refused.refused(400, "BAD_REQUEST");
        assert!(["from", "after"].contains(&details["field"].as_str().unwrap()), "{details}");
    }
}

async fn a_deleted_thread_closes_its_stream(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, texts(1)).build().await;
    let client = &test_server.client;
    client.get(EVENTS).await.refused(404, "THREAD_NOT_FOUND");
    thread(client).await;
    let mut empty = client.stream(EVENTS, &[]).await;
    let run = post(client, message(None)).await;
    until(&mut empty, &run, "run.completed").await;
    assert_eq!(client.delete("/v1/threads/t").await.status, 204);
    assert_eq!(empty.rest().await, []);
    thread(client).await;
    let waiting = client.stream(EVENTS, &[]).await;
    assert_eq!(client.delete("/v1/threads/t").await.status, 204);
    assert_eq!(waiting.rest().await, [], "a thread without runs");
}

async fn messages_are_listed_newest_first(store_kind: StoreKind) {
    let echoes =
        (0..6).map(|step| Reply::call(&format!("e{step}"), "echo", json!({"text": step.to_string()})));
    let test_server = TestPlan::new(store_kind, echoes.chain(texts(1))).build().await;
    let client = &test_server.client;
    thread(client).await;
    for _ in 0..2 {
        post(client, message(None)).await;
    }
    let path = "/v1/threads/t/messages";
    let oldest = client.get(&format!("{path}?order=asc")).await.ok(200);
    assert_eq!(oldest, client.get(path).await.ok(200), "oldest first is the default");
    let mut expected = oldest["messages"].as_array().unwrap().clone();
    expected.reverse();
    assert_eq!(client.get(&format!("{path}?order=desc")).await.ok(200)["messages"], json!(expected));
    let first = client.get(&format!("{path}?order=desc&limit=5")).await.ok(200);
    assert_eq!(first["messages"], json!(expected[..5]));
    post(client, message(None)).await;
    let (mut found, mut cursor) =
        (first["messages"].as_array().unwrap().clone(), first["next_cursor"].clone());
    while let Some(text) = cursor.as_str() {
        let page = client.get(&format!("{path}?order=desc&limit=5&cursor={text}")).await.ok(200);
        found.extend(page["messages"].as_array().unwrap().iter().cloned());
        cursor = page["next_cursor"].clone();
    }
    assert_eq!(found, expected, "messages that joined meanwhile move no other");
    let details = client.get(&format!("{path}?order=newest")).await.refused(400, "BAD_REQUEST");
    assert_eq!(details["field"], "order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_messages_are_paged_newest_first_too() {
    let long = "x".repeat(1_500_000);
    let test_server = TestPlan::new(StoreKind::Sqlite, [Reply::text(&*long)]).build().await;
    let client = &test_server.client;
    thread(client).await;
    for _ in 0..4 {
        post(client, message(None)).await;
    }
    let all = async |order: &str| {
        let (mut ids, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = client.get(&format!("/v1/threads/t/messages?order={order}{cursor}")).await.ok(200);
            ids.extend(page["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()));
            pages += 1;
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (ids, pages),
            }
        }
    };
    let ((mut oldest, _), (newest, pages)) = (all("asc").await, all("desc").await);
    oldest.reverse();
    assert_eq!((newest.len(), newest), (8, oldest));
    assert!(pages > 1, "they do not fit on one page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_sees_the_streams_of_its_tenant_and_its_agents() {
    let key = |name: &str, tenant: &str, roles: &[Role], agents: AgentScope| Key {
        name: name.to_owned(),
        sha256: Sha256::digest(token(name)).into(),
        tenant: tenant.into(),
        roles: Roles::from_list(roles),
        agents,
        acts_for: false,
    };
    let only = || AgentScope::Only([AgentName::from("assistant")].into());
    let mut plan = TestPlan::new(StoreKind::Memory, texts(1));
    plan.others = &["porter"];
    plan.auth = Auth::Keys(vec![
        key("ann", "acme", ALL, AgentScope::All),
        key("bound", "acme", &[Role::Run], only()),
        key("approver", "acme", &[Role::Approve], AgentScope::All),
        key("operator", "acme", &[Role::Operator], AgentScope::All),
        key("eve", "other", ALL, AgentScope::All),
    ]);
    let test_server: TestServer = plan.build().await;
    let ann = test_server.as_key("ann");
    thread(&ann).await;
    let run = post(&ann, message(None)).await;
    test_server.as_key("eve").get(EVENTS).await.refused(404, "THREAD_NOT_FOUND");
    test_server.as_key("operator").get(EVENTS).await.refused(403, "FORBIDDEN");
    test_server.client.get(EVENTS).await.refused(401, "UNAUTHORIZED");
    until(&mut test_server.as_key("approver").stream(EVENTS, &[]).await, &run, "run.completed").await;
    let bound = test_server.as_key("bound");
    let mut stream = bound.stream(EVENTS, &[]).await;
    until(&mut stream, &run, "run.completed").await;
    post(&ann, json!({"agent": "porter", "text": "go"})).await;
    assert_eq!(
        stream.rest().await,
        [],
        "a run of another agent ends the stream of a key that may not see it"
    );
    bound.get(EVENTS).await.refused(404, "THREAD_NOT_FOUND");
    // Another tenant's thread of the same name is another thread.
    let eve = test_server.as_key("eve");
    thread(&eve).await;
    let mut theirs = eve.stream(EVENTS, &[]).await;
    let run = post(&eve, message(None)).await;
    let frames = until(&mut theirs, &run, "run.completed").await;
    assert!(frames.iter().all(|frame| frame.data["run_id"] == run.as_str()), "{frames:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_thread_counts_sends_signs_of_life_and_ends_with_the_server() {
    let mut plan = TestPlan::new(StoreKind::Memory, texts(1));
    plan.limits = Limits {
        keep_alive_interval: Duration::from_millis(20),
        streams_per_tenant_max: 1,
        ..Limits::default()
    };
    let test_server = plan.build().await;
    let client = &test_server.client;
    thread(client).await;
    let mut stream = client.stream(EVENTS, &[]).await;
    for _ in 0..3 {
        assert!(stream.next_block().await.expect("it stays open").starts_with(':'));
    }
    client.get(EVENTS).await.refused(429, "RATE_LIMITED");
    test_server.draining.cancel();
    assert_eq!(stream.rest().await, []);
    client.send(hyper::Method::GET, EVENTS, &[JSON], None).await.refused(503, "DRAINING");
}
