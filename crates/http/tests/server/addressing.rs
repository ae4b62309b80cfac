//! What a request addresses: runs, calls, suspensions and threads by their ids, and nothing else.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::test_server::{StoreKind, TestPlan, on_all_stores, write_call};
use models::scripted::Reply;

on_all_stores! {
    a80_a_held_call_is_answered_by_its_id_its_opening_or_what_is_listed_as_pending;
    c79_an_empty_list_of_decisions_changes_nothing;
    c101_a_request_about_a_missing_or_ended_run_starts_nothing;
    c102_of_many_messages_at_once_one_starts_a_run_and_a_run_is_named_only_by_its_own_id;
    d10_an_approval_belongs_to_one_run_of_one_thread;
}

async fn runs(client: &Client) -> usize {
    client.get("/v1/runs").await.ok(200)["runs"].as_array().unwrap().len()
}

async fn a80_a_held_call_is_answered_by_its_id_its_opening_or_what_is_listed_as_pending(
    store_kind: StoreKind,
) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let opening = async |run: &str| {
        let calls = client.get(&format!("/v1/runs/{run}/calls")).await.ok(200);
        calls["calls"][0]["suspension"]["id"].as_str().unwrap().to_owned()
    };
    let decide = async |run: &str, entry: Value| {
        let body = json!({"decisions": [entry]});
        let answer = client.post(&format!("/v1/runs/{run}/decisions"), body).await.ok(200);
        answer["results"][0]["outcome"].as_str().unwrap().to_owned()
    };
    // By the call's id.
    let (by_call, _) = client.begin_held_run("write it").await;
    assert_eq!(decide(&by_call, json!({"call_id": "call_0", "action": "resume"})).await, "applied");
    // By the call's id and the name of what holds it; the name of another run's opening fits nothing.
    let (by_both, _) = client.begin_held_run("write it").await;
    let (by_opening, pending) = client.begin_held_run("write it").await;
    let entry = async |run: &str| json!({"call_id": "call_0", "action": "resume", "suspension_id": opening(run).await});
    assert_eq!(decide(&by_both, entry(&by_opening).await).await, "conflict");
    assert_eq!(decide(&by_both, entry(&by_both).await).await, "applied");
    // By the opening alone, which is what the run lists as pending.
    assert_eq!(opening(&by_opening).await, pending);
    client.post_nothing(&format!("/v1/approvals/{pending}/approve")).await.ok(200);
    for run in [by_call, by_both, by_opening] {
        let ended = client.run_reaches(&run, "completed").await;
        assert_eq!(ended["termination"], json!({"reason": "natural_end"}));
    }
}

async fn c79_an_empty_list_of_decisions_changes_nothing(store_kind: StoreKind) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    let before = (client.get(&format!("/v1/runs/{run}")).await.ok(200), client.log(&run).await);
    let answer = client.post(&format!("/v1/runs/{run}/decisions"), json!({"decisions": []})).await.ok(200);
    assert_eq!(answer["results"], json!([]));
    let after = (client.get(&format!("/v1/runs/{run}")).await.ok(200), client.log(&run).await);
    assert_eq!(after, before);
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let answer = client.post(&format!("/v1/runs/{run}/decisions"), json!({"decisions": []})).await.ok(200);
    assert_eq!(answer["results"], json!([]), "also after the end");
}

async fn c101_a_request_about_a_missing_or_ended_run_starts_nothing(store_kind: StoreKind) {
    let test_server = TestPlan::new(store_kind, [Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "idle"})).await.ok(201);
    // Nothing runs in this thread, and the other one does not exist.
    for thread in ["idle", "unknown"] {
        client.get(&format!("/v1/runs/{thread}/events")).await.refused(404, "RUN_NOT_FOUND");
    }
    let yes = json!({"decisions": [{"call_id": "call_0", "action": "resume"}]});
    client.post("/v1/runs/run_none/decisions", yes.clone()).await.refused(404, "RUN_NOT_FOUND");
    client.post_nothing("/v1/runs/run_none/interrupt").await.refused(404, "RUN_NOT_FOUND");
    client.post_nothing("/v1/approvals/apr_none/approve").await.refused(404, "APPROVAL_NOT_FOUND");
    assert_eq!(runs(client).await, 0);
    // A run that has ended does not begin again, and none begins in its place.
    let run = client.begin_run("hello").await;
    client.run_reaches(&run, "completed").await;
    let log = client.log(&run).await;
    let answer = client.post(&format!("/v1/runs/{run}/decisions"), yes).await.ok(200);
    assert_eq!(answer["results"][0]["outcome"], "not_found", "{answer}");
    let after = format!("/v1/runs/{run}/events?after={}", log.len());
    let reconnected = client.send(Method::GET, &after, &[("accept", "text/event-stream")], None).await;
    assert_eq!((reconnected.status, &*reconnected.text), (204, ""), "204 says that there is nothing more");
    assert_eq!((runs(client).await, client.log(&run).await), (1, log));
}

async fn c102_of_many_messages_at_once_one_starts_a_run_and_a_run_is_named_only_by_its_own_id(
    store_kind: StoreKind,
) {
    let test_server = TestPlan::one_write(store_kind).build().await;
    let client = &test_server.client;
    client.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let posting: Vec<_> = (0..16)
        .map(|number| {
            let client = client.clone();
            let body = json!({"agent": "assistant", "text": format!("write {number}")});
            tokio::spawn(async move { client.post("/v1/threads/t/messages", body).await })
        })
        .collect();
    let mut started = Vec::new();
    for one in posting {
        let answer = one.await.unwrap();
        match answer.status {
            202 => started.push(answer.json()["run_id"].as_str().unwrap().to_owned()),
            _ => {
                answer.refused(409, "ACTIVE_RUN_EXISTS");
            }
        }
    }
    assert_eq!((started.len(), runs(client).await), (1, 1));
    client.run_reaches(&started[0], "waiting_approval").await;
    // A thread's id names no run, although the thread has only this one.
    client.post_nothing("/v1/runs/t/interrupt").await.refused(404, "RUN_NOT_FOUND");
    let yes = json!({"decisions": [{"call_id": "call_0", "action": "resume"}]});
    client.post("/v1/runs/t/decisions", yes).await.refused(404, "RUN_NOT_FOUND");
    assert_eq!(client.get(&format!("/v1/runs/{}", started[0])).await.ok(200)["status"], "waiting_approval");
}

async fn d10_an_approval_belongs_to_one_run_of_one_thread(store_kind: StoreKind) {
    let second = Reply::call("call_0", "write_file", json!({"path": "note.txt", "text": "again"}));
    let test_server = TestPlan::new(store_kind, [write_call(), second, Reply::text("Done.")]).build().await;
    let client = &test_server.client;
    let mut all: Vec<(String, String, String)> = Vec::new();
    for thread in ["s", "t"] {
        client.post("/v1/threads", json!({"id": thread})).await.ok(201);
        let body = json!({"agent": "assistant", "text": "write it"});
        let posted = client.post(&format!("/v1/threads/{thread}/messages"), body).await.ok(202);
        let run = posted["run_id"].as_str().unwrap().to_owned();
        let seen = client.run_reaches(&run, "waiting_approval").await;
        all.push((thread.to_owned(), run, seen["pending"][0]["approval_id"].as_str().unwrap().to_owned()));
    }
    assert_ne!(all[0].2, all[1].2, "the same call of two runs has two approvals");
    for (thread, run, approval) in &all {
        let shown = client.get(&format!("/v1/approvals/{approval}")).await.ok(200);
        assert_eq!((&shown["thread_id"], &shown["run_id"]), (&json!(thread), &json!(run)));
        for list in [format!("thread_id={thread}"), format!("run_id={run}")] {
            let listed = client.get(&format!("/v1/approvals?{list}")).await.ok(200);
            assert_eq!(listed["approvals"], json!([shown]), "{list}");
        }
    }
    // What is decided of the one says nothing about the other, nor about the next of the same run.
    client.post_nothing(&format!("/v1/approvals/{}/approve", all[0].2)).await.ok(200);
    let next = |seen: &Value| {
        let asked = seen["pending"][0]["approval_id"].as_str();
        seen["status"] == "waiting_approval" && asked.is_some_and(|id| id != all[0].2)
    };
    let next = client.run_until(&all[0].1, next).await["pending"][0]["approval_id"].clone();
    let listed = client.get("/v1/approvals").await.ok(200);
    let open: Vec<&Value> = listed["approvals"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(open, [&json!(all[1].2), &next]);
    let decided = client.get(&format!("/v1/approvals/{}", all[0].2)).await.ok(200);
    assert_eq!((&decided["status"], &decided["run_id"]), (&json!("approved"), &json!(all[0].1)));
}
