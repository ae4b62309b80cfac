//! Lists and whole runs: however much there is, the size of a response is bounded.

use std::collections::BTreeSet;

use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::Client;
use crate::probe_store::StoreProbe;
use crate::test_server::{StoreKind, TestPlan, on_all_stores};

on_all_stores! {
    a_page_of_messages_is_limited_in_bytes;
    a_page_of_approvals_is_limited_in_bytes;
    a_run_that_is_too_large_is_not_shown_as_a_whole;
    looking_at_decided_approvals_reads_one_event_for_each;
    the_arguments_of_a_question_are_read_from_the_log;
}

const MANY_BYTES: usize = 600 * 1024;
/// As much as a page has, and one item more.
const PAGE_BYTES: usize = 4 * 1024 * 1024 + 2 * MANY_BYTES;

/// Every page of a list, with nothing left out and nothing twice.
async fn all_pages(client: &Client, path: &str, list: &str, limit: usize) -> (usize, Vec<Value>) {
    let (mut pages, mut items, mut cursor) = (0, Vec::new(), String::new());
    loop {
        let answer = client.get(&format!("{path}limit={limit}{cursor}")).await;
        assert!(answer.text.len() < PAGE_BYTES, "{} bytes", answer.text.len());
        let page = answer.ok(200);
        pages += 1;
        items.extend(page[list].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let ids: BTreeSet<&str> = items.iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), items.len(), "nothing twice");
    (pages, items)
}

async fn a_page_of_messages_is_limited_in_bytes(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    for number in 0..20 {
        let text = format!("{number} {}", "x".repeat(MANY_BYTES));
        let body = json!({"agent": "assistant", "text": text});
        let posted = client.post("/v1/threads/t/messages", body).await.ok(202);
        client.run_reaches(posted["run_id"].as_str().unwrap(), "completed").await;
    }
    let (pages, messages) = all_pages(client, "/v1/threads/t/messages?", "messages", 1000).await;
    assert!((3..=6).contains(&pages), "{pages} pages");
    let said = |message: &Value| message["content"].as_str().unwrap().split(' ').next().unwrap().to_owned();
    let texts: Vec<String> = messages.iter().filter(|message| message["role"] == "user").map(said).collect();
    assert_eq!(texts, (0..20).map(|number| number.to_string()).collect::<Vec<_>>(), "in their order");
    assert_eq!(messages.len(), 40);
    assert!(StoreProbe::count(&test_server.probe.rows_max) <= 16, "only a few are read at once");
    let (pages, messages) = all_pages(client, "/v1/threads/t/messages?", "messages", 3).await;
    assert_eq!((pages, messages.len()), (14, 40), "a client that asks for fewer gets fewer");
}

async fn a_page_of_approvals_is_limited_in_bytes(store_kind: StoreKind) {
    let arguments = json!({"path": "note.txt", "text": "x".repeat(MANY_BYTES)});
    let replies = [Reply::call("c", "write_file", arguments), Reply::text("Done.")];
    let test_server = TestPlan::new(store_kind, replies).build().await;
    let client = &test_server.client;
    for _ in 0..20 {
        client.begin_held_run("write it").await;
    }
    let (pages, approvals) = all_pages(client, "/v1/approvals?", "approvals", 1000).await;
    assert!((3..=6).contains(&pages), "{pages} pages");
    assert_eq!(approvals.len(), 20);
    assert!(StoreProbe::count(&test_server.probe.rows_max) <= 16, "only a few are read at once");
}

async fn a_run_that_is_too_large_is_not_shown_as_a_whole(store_kind: StoreKind) {
    let say = |bytes: usize| Reply::call("c", "echo", json!({"text": "x".repeat(bytes)}));
    for (bytes, fits) in [(1_000, true), (300_000, false)] {
        let mut plan = TestPlan::new(store_kind, [say(bytes), Reply::text("Done.")]);
        plan.limits.whole_run_bytes_max = 100_000;
        let test_server = plan.build().await;
        let client = &test_server.client;
        let run = client.begin_run("say it").await;
        client.run_reaches(&run, "completed").await;
        for part in ["calls", "state", "transcript"] {
            let answer = client.get(&format!("/v1/runs/{run}/{part}")).await;
            if fits {
                answer.ok(200);
                continue;
            }
            let details = answer.refused(413, "TOO_LARGE");
            assert_eq!(details["bytes_max"], 100_000);
            assert_eq!(details["instead"], json!(format!("/v1/runs/{run}/events")));
        }
        let path = format!("/v1/runs/{run}/events?limit=1000");
        assert!(client.get(&path).await.ok(200)["next_after"].is_null(), "its events are shown");
    }
}

/// A run that is held again and again, and approved each time.
async fn looking_at_decided_approvals_reads_one_event_for_each(store_kind: StoreKind) {
    const COUNT: usize = 20;
    let calls = (0..COUNT).map(|number| Reply::call(&format!("c{number}"), "count", json!({"by": number})));
    let test_server = TestPlan::new(store_kind, calls.chain([Reply::text("Done.")])).build().await;
    let client = &test_server.client;
    let run = client.begin_run("count").await;
    for number in 0..COUNT {
        let held =
            client.run_until(&run, |seen| seen["pending"][0]["call_id"] == json!(format!("c{number}"))).await;
        let path = format!("/v1/approvals/{}/approve", held["pending"][0]["approval_id"].as_str().unwrap());
        let edited = if number % 2 == 0 { json!({}) } else { json!({"arguments": {"by": 1_000 + number}}) };
        client.post(&path, edited).await.ok(200);
    }
    client.run_reaches(&run, "completed").await;
    let before = StoreProbe::count(&test_server.probe.events_read);
    let path = format!("/v1/approvals?status=approved&run_id={run}&limit=1000");
    let listed = client.get(&path).await.ok(200);
    let read = StoreProbe::count(&test_server.probe.events_read) - before;
    // With room for a stream that is on its way out. A log of this run has some ten events for each.
    assert!(read <= 2 * COUNT, "{read} events were read");
    let approvals = listed["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), COUNT);
    for approval in approvals {
        // Some are opened in the same millisecond, and in any order then.
        let call = approval["call_id"].as_str().unwrap();
        let number: usize = call.trim_start_matches('c').parse().unwrap();
        let is_edited = number % 2 == 1;
        let by = if is_edited { 1_000 + number } else { number };
        assert_eq!(approval["arguments"], json!({"by": by}), "{approval}");
        assert_eq!(approval["original_arguments"].is_object(), is_edited);
    }
}

async fn the_arguments_of_a_question_are_read_from_the_log(store_kind: StoreKind) {
    let ask = |number: usize| {
        Reply::call(&format!("q{number}"), "ask_user", json!({"question": number.to_string()}))
    };
    let test_server = TestPlan::new(store_kind, [ask(0), ask(1), ask(2), Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let run = client.begin_run("ask").await;
    for number in 0..3 {
        let held =
            client.run_until(&run, |seen| seen["pending"][0]["call_id"] == json!(format!("q{number}"))).await;
        let path = format!("/v1/approvals/{}/answer", held["pending"][0]["approval_id"].as_str().unwrap());
        client.post(&path, json!({"result": "yes"})).await.ok(200);
    }
    client.run_reaches(&run, "completed").await;
    let listed = client.get(&format!("/v1/approvals?status=answered&run_id={run}")).await.ok(200);
    let question = |approval: &Value| approval["arguments"]["question"].as_str().unwrap().to_owned();
    let mut asked: Vec<String> = listed["approvals"].as_array().unwrap().iter().map(question).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["0", "1", "2"]);
}
