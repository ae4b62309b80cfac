//! CopilotKit's runtime surface.

use protocols::ag_ui::{CopilotKitAgent, CopilotKitCall, capabilities, runtime_info, stopped_body};
use serde_json::{Value, json};

fn input() -> Value {
    json!({"threadId": "t", "runId": "r", "messages": [{"id": "u1", "role": "user", "content": "Hi"}]})
}

#[test]
fn info_lists_agents_by_name() {
    let agent = CopilotKitAgent {
        name: "assistant".into(),
        description: "Helps".into(),
        capabilities: capabilities(false),
    };
    let info = runtime_info("0.1.0", &[agent]);
    assert_eq!((&info["version"], &info["mode"]), (&json!("0.1.0"), &json!("sse")));
    let listed = &info["agents"]["assistant"];
    assert_eq!((&listed["name"], &listed["className"]), (&json!("assistant"), &json!("HttpAgent")));
    assert_eq!(listed["capabilities"]["humanInTheLoop"]["approveWithEdits"], true);
    assert_eq!(listed["capabilities"]["multiAgent"]["supported"], false);
    assert_eq!(stopped_body(true), json!({"stopped": true}));
}

#[test]
fn single_endpoint_carries_the_same_requests() {
    let parse = |request: Value| CopilotKitCall::parse(&request).unwrap();
    assert_eq!(parse(json!({"method": "info"})), CopilotKitCall::Info);
    let run = parse(json!({"method": "agent/run", "params": {"agentId": "a"}, "body": input()}));
    assert!(matches!(&run, CopilotKitCall::Run { agent, input } if agent == "a" && input.run_id == "r"));
    let connect = parse(json!({
        "method": "agent/connect", "params": {"agentId": "a", "threadId": "t"}, "body": input(),
    }));
    assert!(matches!(&connect, CopilotKitCall::Connect { input, .. } if input.thread_id == "t"));
    let stop = |body: Value| {
        parse(json!({"method": "agent/stop", "params": {"agentId": "a", "threadId": "t"}, "body": body}))
    };
    let stopped = |run_id: Option<&str>| CopilotKitCall::Stop {
        agent: "a".into(),
        thread_id: "t".into(),
        run_id: run_id.map(str::to_owned),
    };
    assert_eq!(stop(json!({"runId": "r"})), stopped(Some("r")));
    assert_eq!(stop(json!({})), stopped(None));
    assert_eq!(stop(Value::Null), stopped(None));
}

#[test]
fn malformed_call_names_its_path() {
    let mut broken = input();
    broken["messages"][0]["content"] = json!(7);
    let cases = [
        (json!([]), ""),
        (json!({"method": 7}), "method"),
        (json!({"method": "agent/dance", "params": {"agentId": "a"}}), "method"),
        (json!({"method": "agent/run"}), "params"),
        (json!({"method": "agent/run", "params": {}}), "params.agentId"),
        (json!({"method": "agent/run", "params": {"agentId": "a"}}), "body"),
        (json!({"method": "agent/run", "params": {"agentId": "a"}, "body": 7}), "body"),
        (
            json!({"method": "agent/run", "params": {"agentId": "a"}, "body": broken}),
            "body.messages[0].content",
        ),
        (json!({"method": "agent/stop", "params": {"agentId": "a"}}), "params.threadId"),
        (
            json!({"method": "agent/stop", "params": {"agentId": "a", "threadId": "t"}, "body": {"runId": 1}}),
            "body.runId",
        ),
    ];
    for (request, path) in cases {
        assert_eq!(CopilotKitCall::parse(&request).unwrap_err().path, path, "{request}");
    }
}
