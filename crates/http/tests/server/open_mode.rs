//! Without keys: every caller on this machine reads and posts; deciding, loosening, deleting and reloading need the token
//! that the server drew.

use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::test_server::{OPEN_TOKEN, StoreKind, TestPlan, TestServer};

/// A caller without the token, and one that guesses.
fn strangers(test_server: &TestServer) -> [Client; 2] {
    [test_server.client.without_token(), test_server.client.with_token("0123456789abcdef0123456789abcdef")]
}

/// The refusal of a caller that sent no token, or a wrong one: where the right one is, and what to send.
fn refusal(test_server: &TestServer, sent: Option<&str>) -> String {
    let file = format!("127.0.0.1-{}.token", test_server.client.address.port());
    let place = format!("$XDG_STATE_HOME/holdpoint/{file} (default: ~/.local/state/holdpoint/{file})");
    match sent {
        None => format!(
            "this needs the server's token, and nothing was changed; send `Authorization: Bearer TOKEN`. The server \
             prints the token when it starts, on the line after \"listening on\", and keeps it in {place}"
        ),
        Some(_) => format!(
            "the token that was sent is not this server's token, and nothing was changed. The server prints its token \
             as `token: …` on the line after \"listening on\" when it starts, and keeps it in {place}; send that one \
             as `Authorization: Bearer TOKEN`"
        ),
    }
}

#[track_caller]
fn needs_token(answer: Answer, test_server: &TestServer, caller: &Client) {
    assert_eq!(answer.headers["www-authenticate"], "Bearer");
    assert_eq!(answer.json()["error"]["message"], json!(refusal(test_server, caller.token.as_deref())));
    answer.refused(401, "UNAUTHORIZED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_reaches_the_server_cannot_approve_its_own_call() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let (run, _) = test_server.client.begin_held_run("write it").await;
    for agent in strangers(&test_server) {
        // All that a tool needs which fetches addresses: it lists what is held, and posts.
        let listed = agent.get("/v1/approvals").await.ok(200);
        let held = &listed["approvals"][0];
        let (approval, call) = (held["id"].as_str().unwrap(), held["call_id"].as_str().unwrap());
        for verb in ["approve", "reject"] {
            needs_token(
                agent.post_nothing(&format!("/v1/approvals/{approval}/{verb}")).await,
                &test_server,
                &agent,
            );
        }
        needs_token(
            agent.post(&format!("/v1/approvals/{approval}/answer"), json!({"result": true})).await,
            &test_server,
            &agent,
        );
        for action in ["resume", "cancel"] {
            let decisions = json!({"decisions": [{"call_id": call, "action": action}]});
            let judged = agent.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
            assert_eq!(judged["results"][0]["outcome"], "forbidden", "{judged}");
            let expected = refusal(&test_server, agent.token.as_deref());
            assert_eq!(judged["results"][0]["message"], json!(expected));
        }
        let thread = held["thread_id"].as_str().unwrap();
        for enabled in [true, false] {
            let path = format!("/v1/threads/{thread}/auto-approve");
            needs_token(agent.post(&path, json!({"enabled": enabled})).await, &test_server, &agent);
        }
        needs_token(agent.delete(&format!("/v1/threads/{thread}")).await, &test_server, &agent);
        needs_token(agent.post_nothing("/v1/admin/reload").await, &test_server, &agent);
    }
    assert_eq!(
        test_server.client.run_reaches(&run, "waiting_approval").await["pending"][0]["kind"],
        "approval"
    );
    assert_eq!(test_server.note(), None, "nothing was written");
    let held = test_server.client.get("/v1/approvals").await.ok(200);
    let path = format!("/v1/approvals/{}/approve", held["approvals"][0]["id"].as_str().unwrap());
    assert_eq!(test_server.client.post_nothing(&path).await.ok(200)["decided_by"], "anonymous");
    test_server.client.run_reaches(&run, "completed").await;
    assert_eq!(test_server.note().as_deref(), Some("written"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_token_a_message_may_tighten_and_never_loosen() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    for agent in strangers(&test_server) {
        let thread = agent.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/threads/{thread}/messages");
        for loose in [json!({"auto_approve": true}), json!({"policy": {"approval": "never"}})] {
            needs_token(agent.post(&path, message(&loose)).await, &test_server, &agent);
        }
        assert_eq!(agent.get(&format!("/v1/runs?thread_id={thread}")).await.ok(200)["runs"], json!([]));
        let tight = json!({"policy": {"approval": "all_tools"}});
        let posted = agent.post(&path, message(&tight)).await.ok(202);
        agent.run_reaches(posted["run_id"].as_str().unwrap(), "waiting_approval").await;
    }
    let thread =
        test_server.client.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
    let loose = message(&json!({"auto_approve": true}));
    let posted = test_server.client.post(&format!("/v1/threads/{thread}/messages"), loose).await.ok(202);
    test_server.client.run_reaches(posted["run_id"].as_str().unwrap(), "completed").await;
}

fn message(more: &Value) -> Value {
    let mut body = json!({"agent": "assistant", "text": "write it"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_posting_interrupting_and_the_answers_of_a_front_end_need_no_token() {
    let ask = Reply::call("q", "ask_user", json!({"question": "Sure?"}));
    let test_server = TestPlan::new(StoreKind::Memory, [ask, Reply::text("Done.")]).build().await;
    for caller in strangers(&test_server) {
        let (run, approval) = caller.begin_held_run("ask").await;
        let reads = ["/v1/approvals", "/v1/runs", "/v1/threads", "/v1/agents", "/metrics", "/openapi.json"];
        for path in reads.map(str::to_owned).into_iter().chain([
            format!("/v1/approvals/{approval}"),
            format!("/v1/runs/{run}"),
            format!("/v1/runs/{run}/events"),
            format!("/v1/runs/{run}/calls"),
            format!("/v1/runs/{run}/transcript"),
            format!("/v1/runs/{run}/state"),
        ]) {
            assert_eq!(caller.get(&path).await.status, 200, "{path}");
        }
        caller.post(&format!("/v1/approvals/{approval}/answer"), json!({"result": "yes"})).await.ok(200);
        caller.run_reaches(&run, "completed").await;
        let (run, _) = caller.begin_held_run("ask").await;
        caller.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    }

    let pick = Reply::call("p", "pick", json!({}));
    let later = Reply::call("l", "later", json!({}));
    let test_server = TestPlan::new(StoreKind::Memory, [pick, later, Reply::text("Done.")]).build().await;
    for caller in strangers(&test_server) {
        let thread = caller.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
        let tools = json!([{"name": "pick", "description": "Picks", "parameters": {"type": "object"}}]);
        let body = message(&json!({"tools": tools}));
        let posted = caller.post(&format!("/v1/threads/{thread}/messages"), body).await.ok(202);
        let run = posted["run_id"].as_str().unwrap();
        for (call, kind) in [("p", "client_tool"), ("l", "external")] {
            let waits = |run: &Value| run["pending"][0]["kind"] == kind;
            caller.run_until(run, waits).await;
            let decisions =
                json!({"decisions": [{"call_id": call, "action": "resume", "result": {"chosen": "a"}}]});
            let judged = caller.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
            assert_eq!(judged["results"][0]["outcome"], "applied", "{judged}");
        }
        caller.run_reaches(run, "completed").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_doubt_is_settled_with_the_token_only() {
    let lost = Reply::call("l", "later", json!({"answer": "lost"}));
    let test_server = TestPlan::new(StoreKind::Memory, [lost, Reply::text("Done.")]).build().await;
    let (run, approval) = test_server.client.begin_held_run("lose it").await;
    let path = format!("/v1/approvals/{approval}/answer");
    for caller in strangers(&test_server) {
        for answer in [json!({"choice": "retry"}), json!({"choice": "give_up"}), json!({"result": 1})] {
            needs_token(caller.post(&path, answer).await, &test_server, &caller);
        }
        let decisions =
            json!({"decisions": [{"call_id": "l", "action": "cancel", "suspension_id": approval}]});
        let judged = caller.post(&format!("/v1/runs/{run}/decisions"), decisions).await.ok(200);
        assert_eq!(judged["results"][0]["outcome"], "forbidden", "{judged}");
    }
    test_server.client.post(&path, json!({"choice": "give_up"})).await.ok(200);
    test_server.client.run_reaches(&run, "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_with_the_token_is_still_refused() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let (_, approval) = test_server.client.begin_held_run("write it").await;
    let headers = [JSON, ("origin", "https://evil.example")];
    let path = format!("/v1/approvals/{approval}/approve");
    let answer = test_server.client.send(Method::POST, &path, &headers, Some("{}".to_owned())).await;
    answer.refused(403, "ORIGIN_REFUSED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_another_form_is_a_wrong_token_and_not_a_missing_one() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    let stranger = test_server.client.without_token();
    for sent in [OPEN_TOKEN.to_owned(), format!("Basic {OPEN_TOKEN}"), "Bearer ".to_owned()] {
        let headers = [("authorization", sent.as_str())];
        let answer = stranger.send(Method::POST, "/v1/admin/reload", &headers, None).await;
        needs_token(answer, &test_server, &stranger.with_token(&sent));
    }
}
