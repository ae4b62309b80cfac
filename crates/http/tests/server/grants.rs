//! Standing permissions: listed, revoked, and ended with the key that gave them.

use std::collections::BTreeMap;

use engine::store::Tenant;
use holdpoint_http::{AgentScope, Auth, Key, Role, Roles};
use machine::id::{Principal, ThreadId};
use models::scripted::Reply;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::Client;
use crate::roles::KEYS;
use crate::test_server::{StoreKind, TestPlan, TestServer, keys_of, token, write_call};

/// The keys of the roles, and one of the same tenant that is for the agent `porter`.
fn keys() -> Vec<Key> {
    let Auth::Keys(mut keys) = keys_of(&KEYS) else { panic!("there are keys") };
    keys.push(Key {
        name: "scoped".to_owned(),
        sha256: Sha256::digest(token("scoped")).into(),
        tenant: "acme".into(),
        roles: Roles::from_list(&[Role::Run, Role::Approve]),
        agents: AgentScope::Only(["porter".into()].into()),
        acts_for: false,
    });
    keys
}

async fn test_server() -> TestServer {
    let plan = TestPlan::new(StoreKind::Memory, [write_call(), Reply::text("Done.")]);
    TestPlan { auth: Auth::Keys(keys()), others: &["porter"], ..plan }.build().await
}

async fn post(client: &Client, thread: &str, agent: &str, more: Value) -> String {
    let mut body = json!({"agent": agent, "text": "write it"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let posted = client.post(&format!("/v1/threads/{thread}/messages"), body).await.ok(202);
    posted["run_id"].as_str().unwrap().to_owned()
}

/// A run of this agent in this thread is held, and approved for later calls too.
async fn grant(client: &Client, thread: &str, agent: &str) -> Value {
    client.post("/v1/threads", json!({"id": thread})).await;
    let run = post(client, thread, agent, json!({})).await;
    let held = client.run_reaches(&run, "waiting_approval").await;
    let approval = held["pending"][0]["approval_id"].as_str().unwrap().to_owned();
    client.post(&format!("/v1/approvals/{approval}/approve"), json!({"apply_to_future": true})).await.ok(200);
    client.run_reaches(&run, "completed").await;
    let listed = client.get("/v1/grants").await.ok(200);
    let is_new = |grant: &&Value| grant["thread_id"] == thread && grant.get("tool").is_some();
    listed["grants"].as_array().unwrap().iter().find(is_new).expect("it is listed").clone()
}

fn ids(listed: &Value) -> Vec<&str> {
    listed["grants"].as_array().unwrap().iter().map(|grant| grant["id"].as_str().unwrap()).collect()
}

async fn how_it_goes(client: &Client, thread: &str, agent: &str) -> String {
    let run = post(client, thread, agent, json!({})).await;
    let over = ["completed", "waiting_approval"];
    let seen = client.run_until(&run, |seen| over.iter().any(|status| seen["status"] == *status)).await;
    let outcome = seen["status"].as_str().unwrap().to_owned();
    if outcome == "waiting_approval" {
        client.post_nothing(&format!("/v1/runs/{run}/interrupt")).await;
        client.run_reaches(&run, "interrupted").await;
    }
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_listed_with_what_they_cover_and_revoked_one_by_one() {
    let test_server = test_server().await;
    let admin = test_server.as_key("admin");
    let granted = grant(&admin, "t", "assistant").await;
    let expected = json!({
        "id": granted["id"], "thread_id": "t", "tool": "write_file", "agent": "assistant", "by": "admin",
        "since": granted["since"], "covers": [{"reason": "tool"}],
    });
    assert_eq!(granted, expected);
    assert_eq!(how_it_goes(&admin, "t", "assistant").await, "completed");
    assert_eq!(how_it_goes(&admin, "t", "porter").await, "waiting_approval", "it is for one agent");
    admin.post("/v1/threads/t/auto-approve", json!({"enabled": true})).await.ok(200);
    let first = admin.get("/v1/grants?limit=1").await.ok(200);
    let everything = &first["grants"][0];
    assert_eq!((everything.get("tool"), everything.get("agent")), (None, None), "{everything}");
    assert_eq!(everything["covers"], json!([{"reason": "any"}]));
    let next = format!("/v1/grants?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = admin.get(&next).await.ok(200);
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![granted["id"].as_str().unwrap()], &Value::Null));
    assert_eq!(how_it_goes(&admin, "t", "porter").await, "completed");

    for grant in [everything["id"].as_str().unwrap(), granted["id"].as_str().unwrap()] {
        let path = format!("/v1/grants/{grant}");
        assert_eq!(admin.delete(&path).await.status, 204);
        admin.delete(&path).await.refused(404, "GRANT_NOT_FOUND");
    }
    assert_eq!(admin.get("/v1/grants").await.ok(200), json!({"grants": [], "next_cursor": null}));
    assert_eq!(admin.get("/v1/threads/t").await.ok(200)["auto_approve"], false);
    assert_eq!(how_it_goes(&admin, "t", "assistant").await, "waiting_approval");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_message_asks_despite_a_grant_and_a_looser_one_needs_the_role() {
    let test_server = test_server().await;
    let (admin, runner) = (test_server.as_key("admin"), test_server.as_key("runner"));
    grant(&admin, "t", "assistant").await;
    admin.post("/v1/threads/t/auto-approve", json!({"enabled": true})).await.ok(200);
    let run = post(&runner, "t", "assistant", json!({"policy": {"approval": "all_tools"}})).await;
    runner.run_reaches(&run, "waiting_approval").await;
    for (field, value) in [("approval", "never"), ("on_reject", "continue")] {
        let body = json!({"agent": "assistant", "text": "write it", "policy": {field: value}});
        let refused = runner.post("/v1/threads/u/messages", body).await.refused(403, "FORBIDDEN");
        assert_eq!(refused["field"], format!("policy.{field}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_grants_of_one_giver_are_revoked_together() {
    let test_server = test_server().await;
    let (admin, scoped) = (test_server.as_key("admin"), test_server.as_key("scoped"));
    for thread in ["a", "b"] {
        grant(&admin, thread, "assistant").await;
    }
    let kept = grant(&scoped, "c", "porter").await;
    assert_eq!(ids(&admin.get("/v1/grants?by=scoped").await.ok(200)), [kept["id"].as_str().unwrap()]);
    admin.delete("/v1/grants").await.refused(400, "BAD_REQUEST");
    admin.delete("/v1/grants?from=admin").await.refused(400, "BAD_REQUEST");
    assert_eq!(admin.delete("/v1/grants?by=admin").await.ok(200), json!({"revoked": 2}));
    assert_eq!(admin.delete("/v1/grants?by=admin").await.ok(200), json!({"revoked": 0}));
    assert_eq!(ids(&admin.get("/v1/grants").await.ok(200)), [kept["id"].as_str().unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tenants_agents_and_roles_find_and_revoke_nothing() {
    let test_server = test_server().await;
    let (admin, scoped) = (test_server.as_key("admin"), test_server.as_key("scoped"));
    let hidden = grant(&admin, "t", "assistant").await["id"].as_str().unwrap().to_owned();
    admin.post("/v1/threads/t/auto-approve", json!({"enabled": true})).await.ok(200);
    let own = grant(&scoped, "p", "porter").await["id"].as_str().unwrap().to_owned();
    scoped.post("/v1/threads/p/auto-approve", json!({"enabled": true})).await.ok(200);
    let path = format!("/v1/grants/{hidden}");
    for key in ["stranger", "stranger-admin", "scoped"] {
        let other = test_server.as_key(key);
        assert!(!other.get("/v1/grants").await.text.contains(&hidden), "{key}");
        other.delete(&path).await.refused(404, "GRANT_NOT_FOUND");
        assert_eq!(other.delete("/v1/grants?by=admin").await.ok(200), json!({"revoked": 0}), "{key}");
    }
    assert_eq!(scoped.get("/v1/grants").await.ok(200)["grants"].as_array().unwrap().len(), 2);
    let guesses = test_server.client.with_token("guessed");
    guesses.delete(&path).await.refused(401, "UNAUTHORIZED");
    for key in ["runner", "operator", "roleless"] {
        let other = test_server.as_key(key);
        for answer in [
            other.get("/v1/grants").await,
            other.delete(&path).await,
            other.delete("/v1/grants?by=admin").await,
        ] {
            answer.refused(403, "FORBIDDEN");
        }
    }
    assert_eq!(admin.get("/v1/grants").await.ok(200)["grants"].as_array().unwrap().len(), 4);
    let approver = test_server.as_key("approver");
    assert_eq!(approver.delete(&path).await.status, 204);
    assert_eq!(scoped.delete(&format!("/v1/grants/{own}")).await.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_lapses_when_a_reload_takes_its_key_or_the_role_away() {
    let without_role = |name: &str| {
        let mut keys = keys();
        keys.iter_mut()
            .filter(|key| key.name == name)
            .for_each(|key| key.roles = Roles::from_list(&[Role::Run]));
        keys
    };
    let without_key = |name: &str| keys().into_iter().filter(|key| key.name != name).collect();
    let without_agent = |name: &str| {
        let mut keys = keys();
        let others = || AgentScope::Only(["porter".into()].into());
        keys.iter_mut().filter(|key| key.name == name).for_each(|key| key.agents = others());
        keys
    };
    let changes: [Vec<Key>; 3] = [without_role("admin"), without_key("admin"), without_agent("admin")];
    for after in changes {
        let test_server = test_server().await;
        let (admin, runner) = (test_server.as_key("admin"), test_server.as_key("runner"));
        let granted = grant(&admin, "t", "assistant").await;
        assert_eq!(granted.get("lapsed"), None);
        assert_eq!(how_it_goes(&runner, "t", "assistant").await, "completed");
        test_server.next_reload.lock().expect("the lock is not poisoned").auth = Auth::Keys(after);
        test_server.server.reload(&"tester".into()).await.expect("it is taken");
        assert_eq!(how_it_goes(&runner, "t", "assistant").await, "waiting_approval");
        let approver = test_server.as_key("approver");
        assert_eq!(approver.get("/v1/grants").await.ok(200)["grants"], json!([]));
        // Another person may get a key of the same name.
        test_server.next_reload.lock().expect("the lock is not poisoned").auth = Auth::Keys(keys());
        test_server.server.reload(&"tester".into()).await.expect("it is taken");
        assert_eq!(how_it_goes(&runner, "t", "assistant").await, "waiting_approval");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_giver_has_no_key_is_lapsed_and_is_revoked_at_the_start() {
    let test_server = test_server().await;
    let admin = test_server.as_key("admin");
    admin.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let removed = Principal::from("removed");
    test_server
        .engine
        .auto_approve(&Tenant::from("acme"), &ThreadId::from("t"), true, &removed.clone().into())
        .await
        .expect("it is there");
    grant(&admin, "u", "assistant").await;
    // Both may be given in the same millisecond, so their order is not compared.
    let lapsed = |listed: Value| -> BTreeMap<String, bool> {
        let grants = listed["grants"].as_array().unwrap().iter();
        grants
            .map(|grant| (grant["thread_id"].as_str().unwrap().to_owned(), grant["lapsed"] == true))
            .collect()
    };
    let expected = |grants: &[(&str, bool)]| {
        grants.iter().map(|(thread, lapsed)| ((*thread).to_owned(), *lapsed)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(lapsed(admin.get("/v1/grants").await.ok(200)), expected(&[("t", true), ("u", false)]));
    test_server.server.revoke_lapsed_grants().await;
    assert_eq!(lapsed(admin.get("/v1/grants").await.ok(200)), expected(&[("u", false)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_grants_need_the_token_and_anonymous_keeps_its_own() {
    let test_server = TestPlan::new(StoreKind::Memory, [write_call(), Reply::text("Done.")]).build().await;
    let granted = grant(&test_server.client, "t", "assistant").await;
    assert_eq!(granted["by"], "anonymous");
    let stranger = test_server.client.without_token();
    let path = format!("/v1/grants/{}", granted["id"].as_str().unwrap());
    for answer in [
        stranger.get("/v1/grants").await,
        stranger.delete(&path).await,
        stranger.delete("/v1/grants?by=anonymous").await,
    ] {
        answer.refused(401, "UNAUTHORIZED");
    }
    assert_eq!(how_it_goes(&stranger, "t", "assistant").await, "completed");
    test_server.server.reload(&"tester".into()).await.expect("it is taken");
    assert_eq!(how_it_goes(&stranger, "t", "assistant").await, "completed");
    assert_eq!(test_server.client.delete(&path).await.status, 204);
    assert_eq!(how_it_goes(&stranger, "t", "assistant").await, "waiting_approval");
}
