//! Keys for some agents, and agents for some tenants: everything else looks absent.

use holdpoint_http::{AgentScope, AgentTenants, Auth, Key, Role, Roles};
use hyper::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::Client;
use crate::roles::{KEYS, ask, operations, things};
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of, token};

/// The keys of the roles, and one of the same tenant with every role that is for the agent `porter`.
async fn test_server() -> TestServer {
    let Auth::Keys(mut keys) = keys_of(&KEYS) else { panic!("there are keys") };
    keys.push(Key {
        name: "scoped".to_owned(),
        sha256: Sha256::digest(token("scoped")).into(),
        tenant: "acme".into(),
        roles: Roles::from_list(&[Role::Run, Role::Approve, Role::Admin]),
        agents: AgentScope::Only(["porter".into()].into()),
        acts_for: false,
    });
    let plan =
        TestPlan { auth: Auth::Keys(keys), others: &["porter"], ..TestPlan::one_write(StoreKind::Memory) };
    plan.build().await
}

/// A held run of this agent: its thread, its id and its approval.
async fn held_run(client: &Client, agent: &str) -> [String; 3] {
    let thread = client.post("/v1/threads", json!({})).await.ok(201)["id"].as_str().unwrap().to_owned();
    let posted = post(client, &thread, agent).await.ok(202);
    let run = posted["run_id"].as_str().unwrap().to_owned();
    let held = client.run_reaches(&run, "waiting_approval").await;
    [thread, run, held["pending"][0]["approval_id"].as_str().unwrap().to_owned()]
}

async fn post(client: &Client, thread: &str, agent: &str) -> crate::client::Answer {
    client.post(&format!("/v1/threads/{thread}/messages"), json!({"agent": agent, "text": "write it"})).await
}

fn names(agents: &Value) -> Vec<&str> {
    agents["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_key_for_other_agents_everything_of_an_agent_looks_absent() {
    let test_server = test_server().await;
    let (scoped, admin) = (test_server.as_key("scoped"), test_server.as_key("admin"));
    let own = held_run(&scoped, "porter").await;
    let mut hidden_count = 0;
    let others = things(&test_server).await;
    for operation in operations() {
        let line = format!("{} {}", operation.method, operation.path);
        if operation.path == "/v1/approvals/stream" || operation.path == "/v1/admin/reload" {
            continue;
        }
        let answer = ask(&scoped, &operation, &others).await;
        if operation.path.contains("{id}") || operation.path.contains("{name}") {
            assert_eq!(answer.status, 404, "{line}: {}", answer.text);
            assert!(answer.code().ends_with("_NOT_FOUND"), "{line}");
            hidden_count += 1;
        } else {
            for id in [&others.thread, &others.run, &others.approval] {
                assert!(!answer.text.contains(id.as_str()), "{line} shows {id}");
            }
        }
    }
    assert!(hidden_count >= 15, "{hidden_count}");
    let still = admin.get(&format!("/v1/approvals/{}", others.approval)).await.ok(200);
    assert_eq!(still["status"], "pending");

    assert_eq!(names(&scoped.get("/v1/agents").await.ok(200)), ["porter"]);
    post(&scoped, &own[0], "assistant").await.refused(404, "AGENT_NOT_FOUND");
    let listed = |list: Value, key: &str| -> Vec<String> {
        let items = list[key].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let threads = listed(scoped.get("/v1/threads").await.ok(200), "threads");
    // The table of operations has created another, empty one.
    assert!(threads.contains(&own[0]) && threads.len() == 2, "{threads:?}");
    assert_eq!(listed(scoped.get("/v1/runs").await.ok(200), "runs"), [own[1].clone()]);
    assert_eq!(listed(scoped.get("/v1/runs?agent=assistant").await.ok(200), "runs"), [""; 0]);
    assert_eq!(listed(scoped.get("/v1/approvals").await.ok(200), "approvals"), [own[2].clone()]);
    // A page is as long as it was asked to be, whatever is hidden in between.
    let page = scoped.get("/v1/approvals?limit=1").await.ok(200);
    assert_eq!(listed(page, "approvals"), [own[2].clone()]);
    scoped.post_nothing(&format!("/v1/approvals/{}/approve", own[2])).await.ok(200);
    scoped.run_reaches(&own[1], "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_in_which_another_agent_has_run_is_absent_to_a_key_for_one() {
    let test_server = test_server().await;
    let (scoped, admin) = (test_server.as_key("scoped"), test_server.as_key("admin"));
    let [thread, run, approval] = held_run(&scoped, "porter").await;
    scoped.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    scoped.run_reaches(&run, "completed").await;
    let messages = format!("/v1/threads/{thread}/messages");
    scoped.get(&messages).await.ok(200);
    post(&admin, &thread, "assistant").await.ok(202);
    for (method, path, body) in [
        (Method::GET, format!("/v1/threads/{thread}"), None),
        (Method::GET, messages, None),
        (Method::DELETE, format!("/v1/threads/{thread}"), None),
        (
            Method::POST,
            format!("/v1/threads/{thread}/auto-approve"),
            Some(json!({"enabled": true}).to_string()),
        ),
    ] {
        let answer = scoped.send(method, &path, &[crate::client::JSON], body).await;
        answer.refused(404, "THREAD_NOT_FOUND");
    }
    post(&scoped, &thread, "porter").await.refused(404, "THREAD_NOT_FOUND");
    let created = scoped.post("/v1/threads", json!({"id": thread})).await;
    let message = created.json()["error"]["message"].clone();
    let message = message.as_str().expect("a message");
    assert!(message.contains("choose another one") && !message.contains("POST /v1/threads"), "{message}");
    created.refused(404, "THREAD_NOT_FOUND");
    assert_eq!(scoped.get("/v1/threads").await.ok(200)["threads"], json!([]));
    scoped.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(admin.get(&format!("/v1/threads/{thread}")).await.ok(200)["auto_approve"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_agent_said_in_the_thread_is_not_shown_with_a_run_to_a_key_for_one() {
    let test_server = test_server().await;
    let (scoped, admin) = (test_server.as_key("scoped"), test_server.as_key("admin"));
    let [thread, first, approval] = held_run(&admin, "assistant").await;
    admin.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    admin.run_reaches(&first, "completed").await;
    let run = post(&admin, &thread, "porter").await.ok(202)["run_id"].as_str().unwrap().to_owned();
    scoped.run_reaches(&run, "waiting_approval").await;
    for what in ["transcript", "state"] {
        let path = format!("/v1/runs/{run}/{what}");
        scoped.get(&path).await.refused(404, "THREAD_NOT_FOUND");
        admin.get(&path).await.ok(200);
    }
    let [_, own, _] = held_run(&scoped, "porter").await;
    scoped.get(&format!("/v1/runs/{own}/transcript")).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_approvals_is_that_of_the_key_s_agents() {
    let test_server = test_server().await;
    let (scoped, admin) = (test_server.as_key("scoped"), test_server.as_key("admin"));
    let [_, _, before] = held_run(&admin, "assistant").await;
    let mut stream = scoped.stream("/v1/approvals/stream", &[]).await;
    let [_, _, hidden] = held_run(&admin, "assistant").await;
    let [_, _, own] = held_run(&scoped, "porter").await;
    let first = stream.next().await.expect("it stays open");
    assert_eq!(first.data["id"], json!(own), "not {before} nor {hidden}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_for_some_tenants_does_not_exist_for_the_others() {
    let test_server = test_server().await;
    let stranger = test_server.as_key("stranger");
    assert_eq!(names(&stranger.get("/v1/agents").await.ok(200)), ["assistant", "porter"]);
    let [thread, run, approval] = held_run(&stranger, "assistant").await;
    {
        let mut next = test_server.next_reload.lock().unwrap();
        next.agents[0].tenants = AgentTenants::Only(["acme".into()].into());
    }
    test_server.as_key("operator").post_nothing("/v1/admin/reload").await.ok(200);
    assert_eq!(names(&stranger.get("/v1/agents").await.ok(200)), ["porter"]);
    assert_eq!(names(&test_server.as_key("runner").get("/v1/agents").await.ok(200)), ["assistant", "porter"]);
    stranger.get("/v1/agents/assistant").await.refused(404, "AGENT_NOT_FOUND");
    post(&stranger, &thread, "assistant").await.refused(404, "AGENT_NOT_FOUND");
    // What the tenant has is still its own, and its run can still be brought to its end.
    stranger.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    stranger.run_reaches(&run, "completed").await;
    held_run(&test_server.as_key("runner"), "assistant").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_reloads_and_measures_and_reads_nothing_of_a_tenant() {
    let test_server = test_server().await;
    let operator = test_server.as_key("operator");
    assert_eq!(operator.post_nothing("/v1/admin/reload").await.ok(200), json!({"agents": []}));
    assert_eq!(operator.get("/metrics").await.status, 200);
    for path in ["/v1/agents", "/v1/agents/assistant", "/v1/runs", "/v1/threads", "/v1/approvals"] {
        operator.get(path).await.refused(403, "FORBIDDEN");
    }
    let admin = test_server.as_key("admin");
    for answer in [admin.post_nothing("/v1/admin/reload").await, admin.get("/metrics").await] {
        assert_eq!(answer.refused(403, "FORBIDDEN")["roles"], json!(["operator"]));
    }
}
