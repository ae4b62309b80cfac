//! Who may do what: every operation of the document, with every kind of key, on things of one's own and of others.

use std::collections::BTreeMap;

use holdpoint_http::{Role, openapi};
use hyper::Method;
use models::scripted::Reply;
use serde_json::{Value, json};

use crate::client::{Answer, Client, JSON};
use crate::test_server::{StoreKind, TestPlan, TestServer};

pub(crate) const KEYS: [(&str, &str, &[Role]); 7] = [
    ("runner", "acme", &[Role::Run]),
    ("approver", "acme", &[Role::Approve]),
    ("admin", "acme", &[Role::Admin]),
    ("roleless", "acme", &[]),
    ("operator", "acme", &[Role::Operator]),
    ("stranger", "other", &[Role::Run, Role::Approve]),
    ("stranger-admin", "other", &[Role::Admin]),
];

pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The roles that may ask; none named: any key. No list at all: no key is needed.
    roles: Option<Vec<String>>,
}

pub(crate) fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(&openapi().to_json().expect("a document")).expect("JSON");
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            // No key opens it: it has a story of its own.
            if operation["security"] == json!([{"callback": []}]) {
                continue;
            }
            let security = operation["security"].as_array().expect("it says who may ask");
            let roles = security.iter().flat_map(|one| one["key"].as_array().expect("a key").clone());
            let roles: Vec<String> = roles.map(|role| role.as_str().expect("a role").to_owned()).collect();
            all.push(Operation {
                method: Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method"),
                path: path.clone(),
                roles: (!security.is_empty()).then_some(roles),
            });
        }
    }
    all
}

fn one_question() -> TestPlan {
    let ask = Reply::call("q", "ask_user", json!({"question": "Sure?"}));
    TestPlan::new(StoreKind::Memory, [ask, Reply::text("Done.")])
}

/// A thread with a held run, of the tenant `acme`.
pub(crate) struct Things {
    pub(crate) thread: String,
    pub(crate) run: String,
    pub(crate) approval: String,
}

pub(crate) async fn things(test_server: &TestServer) -> Things {
    let admin = test_server.as_key("admin");
    let (run, approval) = admin.begin_held_run("write it").await;
    let thread =
        admin.get(&format!("/v1/runs/{run}")).await.ok(200)["thread_id"].as_str().unwrap().to_owned();
    Things { thread, run, approval }
}

pub(crate) async fn ask(client: &Client, operation: &Operation, things: &Things) -> Answer {
    let id = if operation.path.starts_with("/v1/threads") {
        &things.thread
    } else if operation.path.starts_with("/v1/runs") {
        &things.run
    } else {
        &things.approval
    };
    let mut path =
        operation.path.replace("{id}", id).replace("{name}", "assistant").replace("{agent}", "assistant");
    path = path.replace("{chat_id}", &things.thread).replace("{thread_id}", &things.thread);
    if operation.path == "/v1/grants" && operation.method == Method::DELETE {
        path.push_str("?by=admin");
    }
    let (thread, said) = (
        &things.thread,
        json!({"id": "m1", "role": "user", "content": "hello", "parts": [{"type": "text", "text": "hello"}]}),
    );
    // What each body needs at least; an empty list decides nothing.
    let body = match operation.path.as_str() {
        "/v1/threads" => json!({}),
        "/v1/threads/{id}/messages" => json!({"agent": "assistant", "text": "hello"}),
        "/v1/threads/{id}/auto-approve" => json!({"enabled": false}),
        "/v1/runs/{id}/decisions" => json!({"decisions": []}),
        "/v1/approvals/{id}/answer" => json!({"result": "x"}),
        "/v1/ai-sdk/{agent}" => json!({"id": thread, "messages": [said]}),
        "/v1/ag-ui/{agent}" | "/v1/copilotkit/agent/{agent}/run" | "/v1/copilotkit/agent/{agent}/connect" => {
            json!({"threadId": thread, "runId": "r1", "messages": [said], "tools": [], "context": []})
        }
        "/v1/copilotkit" => json!({"method": "info"}),
        _ => json!({}),
    };
    let body = (operation.method == Method::POST).then(|| body.to_string());
    client.send(operation.method.clone(), &path, &[JSON], body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d40_each_key_reaches_what_its_roles_and_its_tenant_allow_and_nothing_else() {
    let operations = operations();
    assert!(operations.len() >= 28);
    let mut judged: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in &operations {
        // What a grant is revoked by has a story of its own: here nothing is granted. So have streams that do not end.
        if ["/v1/approvals/stream", "/v1/threads/{id}/events", "/v1/grants/{id}"]
            .contains(&operation.path.as_str())
        {
            continue;
        }
        // Either role may answer a question; who may decide on the other kinds has tests of its own.
        let plan = if operation.path.ends_with("/answer") {
            one_question()
        } else {
            TestPlan::one_write(StoreKind::Memory)
        };
        let test_server = plan.with_keys(&KEYS).build().await;
        let things = things(&test_server).await;
        let line = format!("{} {}", operation.method, operation.path);
        for unknown in [test_server.client.clone(), test_server.client.with_token("guessed")] {
            let answer = ask(&unknown, operation, &things).await;
            match &operation.roles {
                None => assert_eq!(answer.status, 200, "{line} needs no key"),
                Some(_) => {
                    assert_eq!((answer.status, answer.code().as_str()), (401, "UNAUTHORIZED"), "{line}");
                    assert_eq!(answer.headers["www-authenticate"], "Bearer");
                }
            }
        }
        let Some(roles) = &operation.roles else { continue };
        // Strangers first: what they ask for must still be as it was for its owners.
        let order = ["stranger", "stranger-admin", "roleless", "operator", "runner", "approver", "admin"];
        for name in order {
            let (_, tenant, held) = KEYS.iter().find(|(key, ..)| *key == name).expect("there is such a key");
            let allowed = roles.is_empty()
                || held.iter().any(|role| roles.iter().any(|needed| needed == role.as_str()));
            let answer = ask(&test_server.as_key(name), operation, &things).await;
            // The other routes with a chat create it, or have nothing to say about one that is not there.
            let of_chat = ["/v1/ai-sdk/{agent}/{chat_id}/messages", "/v1/ai-sdk/{agent}/{chat_id}/stop"];
            let of_something = operation.path.contains("{id}") || of_chat.contains(&operation.path.as_str());
            let met = if !allowed {
                assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{line} as {name}");
                "forbidden"
            } else if *tenant == "other" && of_something {
                assert_eq!(answer.status, 404, "{line} as {name}: {}", answer.text);
                assert!(answer.code().ends_with("_NOT_FOUND"), "{line} as {name}");
                "hidden"
            } else {
                assert!(![401, 403, 404, 500].contains(&answer.status), "{line} as {name}: {}", answer.text);
                if *tenant == "other" && operation.method == Method::GET && operation.path.starts_with("/v1/")
                {
                    assert!(!answer.text.contains(&things.run), "{line} shows {name} another tenant's run");
                    assert!(!answer.text.contains(&things.approval), "{line} as {name}");
                    assert!(!answer.text.contains(&things.thread), "{line} as {name}");
                }
                "answered"
            };
            *judged.entry(met).or_default() += 1;
        }
    }
    // The table would be worth nothing if a column were empty.
    assert!(judged.values().all(|count| *count >= 20) && judged.len() == 3, "{judged:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_missing_before_anything_is_looked_up() {
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&KEYS).build().await;
    let runner = test_server.as_key("runner");
    for id in ["apr_none", "%00"] {
        runner.post_nothing(&format!("/v1/approvals/{id}/approve")).await.refused(403, "FORBIDDEN");
    }
    let approver = test_server.as_key("approver");
    let answer = approver.post("/v1/threads/none/messages", json!({"nonsense": true})).await;
    answer.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_approvals_is_the_tenant_s_own() {
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&KEYS).build().await;
    let mut strange = test_server.as_key("stranger").stream("/v1/approvals/stream", &[]).await;
    let (run, approval) = test_server.as_key("admin").begin_held_run("write it").await;
    test_server.as_key("admin").post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    let (_, own) = test_server.as_key("stranger").begin_held_run("write it").await;
    let first = strange.next().await.expect("it stays open");
    assert_eq!(first.data["id"], json!(own), "not {approval}");
    let denied = test_server.as_key("runner").get("/v1/approvals/stream").await;
    denied.refused(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_may_not_approve_may_not_loosen() {
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&KEYS).build().await;
    let (runner, admin) = (test_server.as_key("runner"), test_server.as_key("admin"));
    runner.post("/v1/threads", json!({"id": "t"})).await.ok(201);
    let path = "/v1/threads/t/messages";
    for loose in [json!({"auto_approve": true}), json!({"policy": {"approval": "never"}})] {
        let mut body = json!({"agent": "assistant", "text": "write it"});
        body.as_object_mut().unwrap().extend(loose.as_object().unwrap().clone());
        runner.post(path, body).await.refused(403, "FORBIDDEN");
    }
    assert_eq!(runner.get("/v1/runs").await.ok(200)["runs"], json!([]));
    let tight = json!({"agent": "assistant", "text": "write it", "policy": {"approval": "all_tools"}});
    let run = runner.post(path, tight).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    runner.run_reaches(&run, "waiting_approval").await;
    runner.post_nothing(&format!("/v1/runs/{run}/interrupt")).await.ok(202);
    runner.run_reaches(&run, "interrupted").await;
    let loose = json!({"agent": "assistant", "text": "write it", "auto_approve": true});
    let run = admin.post(path, loose).await.ok(202)["run_id"].as_str().unwrap().to_owned();
    admin.run_reaches(&run, "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_may_be_answered_by_either_role_and_an_approval_by_neither() {
    let test_server = one_question().with_keys(&KEYS).build().await;
    for name in ["runner", "approver"] {
        let (run, approval) = test_server.as_key("runner").begin_held_run("ask").await;
        let path = format!("/v1/approvals/{approval}/answer");
        let answer = test_server.as_key(name).post(&path, json!({"result": "yes"})).await.ok(200);
        assert_eq!(answer["decided_by"], json!(name));
        test_server.as_key("runner").run_reaches(&run, "completed").await;
    }
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&KEYS).build().await;
    let (_, approval) = test_server.as_key("runner").begin_held_run("write it").await;
    let path = format!("/v1/approvals/{approval}/answer");
    test_server.as_key("runner").post(&path, json!({"result": true})).await.refused(403, "FORBIDDEN");
    test_server.as_key("approver").post(&path, json!({"result": true})).await.refused(409, "WRONG_KIND");
}
