//! Correct configurations, and the settings that `check` prints for them.

use serde_json::{Value, json};

use crate::program::Folder;

const SCRIPT: &str = r#"{"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}"#;

/// A folder with a script and this configuration.
fn folder(configuration: &str) -> Folder {
    let folder = Folder::new();
    std::fs::write(folder.path().join("demo.json"), SCRIPT).expect("the script is written");
    std::fs::write(folder.path().join("holdpoint.toml"), configuration).expect("the file is written");
    folder
}

#[track_caller]
fn checked(configuration: &str) -> Value {
    let said = folder(configuration).run(&["check", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    said.json()
}

const DEMO: &str = "[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\n";

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(
        checked(""),
        json!({
            "file": "holdpoint.toml",
            "server": {
                "listen": "127.0.0.1:8787",
                "max_running_runs": 256,
                "max_connections_per_address": 3072,
                "public_url": "http://127.0.0.1:8787",
                "allow_origins": [],
                "drain": "30s",
                "callback_key": "store",
            },
            "store": "sqlite:holdpoint.db",
            "auth": null,
            "audit": {"retention": null, "public_key": null, "sink": null},
            "agents": [],
        })
    );
}

#[test]
fn an_agent_without_settings_has_the_defaults_of_the_engine() {
    let agents = checked(&format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n"))["agents"].take();
    assert_eq!(
        agents,
        json!([{
            "name": "clerk",
            "model": {"name": "demo", "provider": "scripted"},
            "tenants": null,
            "instructions": "",
            "tools": [],
            "rules": [],
            "hooks": [],
            "stop": [{"type": "max_rounds", "rounds": 25}],
            "policy": {
                "continuation": "all_settled",
                "on_reject": null,
                "on_block": "fail_call",
                "step_end": "after_tools",
                "decisions": "immediate",
                "execution": "parallel",
                "approval": "policy",
                "while_waiting": "reject",
                "on_busy": "reject",
                "max_result_chars": 100_000,
                "descendants_max": 100,
            },
            "output_schema": null,
            "trim": null,
        }])
    );
}

#[test]
fn the_output_and_the_trimming_of_an_agent_are_shown_under_the_names_of_the_file() {
    let file = format!(
        "{DEMO}[agents.clerk]\nmodel = \"demo\"\noutput_schema = '{{\"type\": \"object\"}}'\n\
         [agents.clerk.trim]\nmax_messages = 40\n"
    );
    let agent = checked(&file)["agents"][0].take();
    assert_eq!(agent["output_schema"], json!({"type": "object"}));
    assert_eq!(agent["trim"], json!({"max_messages": 40, "max_chars": null}));
    let printed = folder(&file).run(&["check"]).out;
    assert!(printed.contains("  output: JSON that fits {\"type\":\"object\"}\n"), "{printed}");
    assert!(printed.contains("  trim: max_chars unset, max_messages 40\n"), "{printed}");
}

#[test]
fn who_may_use_an_agent_and_what_a_key_is_for_are_shown() {
    let file = format!(
        "{DEMO}[agents.clerk]\nmodel = \"demo\"\ntenants = [\"other\", \"acme\"]\n\
         [[auth.keys]]\nname = \"ann\"\nsha256 = \"{}\"\ntenant = \"acme\"\nroles = [\"run\"]\nagents = [\"clerk\"]\n",
        "ab".repeat(32)
    );
    let whole = checked(&file);
    assert_eq!(whole["agents"][0]["tenants"], json!(["acme", "other"]));
    assert_eq!(whole["auth"]["keys"][0]["agents"], json!(["clerk"]));
    let warning = whole["warnings"][0]["what"].as_str().unwrap_or_default().to_owned();
    assert!(warning.contains("no key has the role operator"), "{whole}");
    let said = folder(&file).run(&["check"]);
    assert!(said.out.contains("  tenants: acme, other\n"), "{said:?}");
    assert!(said.out.contains("  ann: tenant acme, may run, agents clerk, sha256 "), "{said:?}");
    assert!(said.code == Some(0) && said.err.contains("no key has the role operator"), "{said:?}");
    let printed = folder(&file.replace("\"run\"", "\"operator\"")).run(&["check"]);
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{printed:?}");
}

#[test]
fn the_hooks_are_shown_in_the_order_in_which_each_phase_asks_them() {
    let file = format!(
        "{DEMO}[agents.clerk]\nmodel = \"demo\"\n\
         [[agents.clerk.hooks]]\nurl = \"http://127.0.0.1:9200/a\"\nphases = [\"step_end\", \"run_start\"]\n\
         [[agents.clerk.hooks]]\nname = \"gate\"\nurl = \"http://127.0.0.1:9200/b\"\nphases = [\"run_start\"]\ntimeout = \"500ms\"\n"
    );
    assert_eq!(
        checked(&file)["agents"][0]["hooks"],
        json!([
            {"name": "hook_0@clerk", "url": "http://127.0.0.1:9200/a", "phases": ["run_start", "step_end"], "timeout": "5s"},
            {"name": "gate", "url": "http://127.0.0.1:9200/b", "phases": ["run_start"], "timeout": "500ms"},
        ])
    );
    let printed = folder(&file).run(&["check"]).out;
    let expected = "  hooks:\n    hook_0@clerk: http://127.0.0.1:9200/a, timeout 5s\n    \
                    gate: http://127.0.0.1:9200/b, timeout 500ms\n    \
                    run_start asks hook_0@clerk, then gate\n    step_end asks hook_0@clerk\n";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn no_stop_condition_is_a_choice_too() {
    let file = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\nstop = []\n");
    assert_eq!(checked(&file)["agents"][0]["stop"], json!([]));
    assert!(folder(&file).run(&["check"]).out.contains("  stop: never\n"));
}

/// Name, kind, effect, approval, expires, on_expiry, timeout.
fn tools(configuration: &str, names: &str) -> Vec<Value> {
    let file = format!("{DEMO}{configuration}[agents.clerk]\nmodel = \"demo\"\ntools = [{names}]\n");
    let mut agents = checked(&file);
    let Value::Array(tools) = agents["agents"][0]["tools"].take() else { panic!("no tools") };
    tools
        .into_iter()
        .map(|tool| {
            json!([
                tool["name"],
                tool["kind"],
                tool["effect"],
                tool["approval"],
                tool["expires"],
                tool["on_expiry"],
                tool["timeout"],
            ])
        })
        .collect()
}

#[test]
fn effect_and_approval_have_defaults_by_kind() {
    let file = r#"
        [tools.pick]
        kind = "client"
        parameters = { type = "object" }
        [tools.wait]
        kind = "external"
        parameters = { type = "object" }
        [tools.asked]
        kind = "external"
        parameters = { type = "object" }
        approval = "ask"
        expires = "90m"
        on_expiry = "end_run"
        [tools.looked_up]
        kind = "client"
        parameters = { type = "object" }
        effect = "read"
        [tools.add]
        kind = "builtin"
        [tools.sleep]
        kind = "builtin"
        approval = "ask"
        timeout = "1500ms"
        [tools.write_file]
        kind = "builtin"
        folder = "notes"
        [tools.boom]
        kind = "builtin"
        approval = "block"
        [tools.ask_user]
        kind = "builtin"
    "#;
    let names = r#""pick", "wait", "asked", "looked_up", "add", "sleep", "write_file", "boom", "ask_user""#;
    assert_eq!(
        tools(file, names),
        [
            json!(["pick", "client", "write", "never", null, "deny", "30s"]),
            json!(["wait", "external", "write", "never", null, "deny", "30s"]),
            json!(["asked", "external", "write", "ask", "90m", "end_run", "30s"]),
            json!(["looked_up", "client", "read", "never", null, "deny", "30s"]),
            json!(["add", "builtin", "read", "never", null, "deny", "30s"]),
            json!(["sleep", "builtin", "read", "ask", null, "deny", "1500ms"]),
            json!(["write_file", "builtin", "write", "ask", null, "deny", "30s"]),
            json!(["boom", "builtin", "read", "block", null, "deny", "30s"]),
            json!(["ask_user", "builtin", "read", "never", null, "deny", "30s"]),
        ]
    );
}

#[test]
fn parameters_are_a_table_a_text_or_a_file_beside_the_configuration() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("etc/schemas")).expect("a folder can be made");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join("etc").join(name), text).expect("the file is written");
    };
    write("demo.json", SCRIPT);
    write("schemas/c.json", r#"{"type": "object", "required": ["c"]}"#);
    write(
        "agents.toml",
        &format!(
            "{DEMO}[store]\nurl = \"sqlite:data/runs.db\"\n\
             [tools.a]\nkind = \"client\"\nparameters = {{ type = \"object\", required = [\"a\"] }}\n\
             [tools.b]\nkind = \"client\"\nparameters = '{{\"type\": \"object\", \"required\": [\"b\"]}}'\n\
             [tools.c]\nkind = \"client\"\nparameters = {{ file = \"schemas/c.json\" }}\n\
             [agents.clerk]\nmodel = \"demo\"\ntools = [\"a\", \"b\", \"c\"]\n"
        ),
    );
    let said = folder.run(&["check", "--config", "etc/agents.toml", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = said.json();
    assert_eq!(whole["store"], "sqlite:etc/data/runs.db");
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let tool = &whole["agents"][0]["tools"][index];
        assert_eq!(tool["parameters"], json!({"type": "object", "required": [name]}), "{tool}");
    }
}

#[test]
fn rules_stop_conditions_and_policy_reach_the_agent() {
    let file = format!(
        r#"{DEMO}
        [tools.transfer]
        kind = "external"
        parameters = {{ type = "object" }}
        [agents.clerk]
        model = "demo"
        instructions = "You are a careful assistant."
        tools = ["transfer"]
        stop = [ {{ type = "max_rounds", rounds = 7 }}, {{ type = "timeout", seconds = 300 }},
                 {{ type = "token_budget", max_total = 200000 }}, {{ type = "consecutive_errors", max = 3 }},
                 {{ type = "stop_on_tool", tool_name = "finish" }},
                 {{ type = "content_match", pattern = "(?i)all done" }}, {{ type = "loop_detection", window = 4 }} ]
        [[agents.clerk.rules]]
        tool = "transfer"
        when = {{ amount = {{ lt = 100, lte = 99.5, gt = 1, gte = 2 }} }}
        then = "allow"
        [[agents.clerk.rules]]
        tool = "transfer"
        when = {{ "to.name" = {{ eq = "bob" }}, to.bank = {{ ne = 7 }} }}
        then = "ask"
        [[agents.clerk.rules]]
        tool = "transfer"
        when = {{ currency = {{ in = ["eur", "usd"] }}, memo = {{ matches = "^gift" }} }}
        then = "deny"
        [[agents.clerk.rules]]
        tool = "transfer"
        then = "ask"
        [agents.clerk.policy]
        continuation = "eager"
        on_reject = "end_run"
        on_block = "end_run"
        step_end = "after_inference"
        decisions = "at_boundary"
        execution = "sequential"
        approval = "write_tools"
        while_waiting = "supersede"
        on_busy = "interrupt"
        "#
    );
    let agent = checked(&file)["agents"][0].take();
    assert_eq!(agent["instructions"], "You are a careful assistant.");
    assert_eq!(
        agent["stop"],
        json!([
            {"type": "max_rounds", "rounds": 7},
            {"type": "timeout", "seconds": 300},
            {"type": "token_budget", "max_total": 200_000},
            {"type": "consecutive_errors", "max": 3},
            {"type": "stop_on_tool", "tool_name": "finish"},
            {"type": "content_match", "pattern": "(?i)all done"},
            {"type": "loop_detection", "window": 4},
        ])
    );
    let test = |path: &str, test: Value| json!({"path": path, "test": test});
    assert_eq!(
        agent["rules"],
        json!([
            {"tool": "transfer", "then": "allow", "when": [
                test("amount", json!({"lt": 100.0})), test("amount", json!({"lte": 99.5})),
                test("amount", json!({"gt": 1.0})), test("amount", json!({"gte": 2.0})),
            ]},
            {"tool": "transfer", "then": "ask", "when": [
                test("to.name", json!({"eq": "bob"})), test("to.bank", json!({"ne": 7})),
            ]},
            {"tool": "transfer", "then": "deny", "when": [
                test("currency", json!({"in": ["eur", "usd"]})), test("memo", json!({"matches": "^gift"})),
            ]},
            {"tool": "transfer", "then": "ask", "when": []},
        ])
    );
    assert_eq!(
        agent["policy"],
        json!({
            "continuation": "eager",
            "on_reject": "end_run",
            "on_block": "end_run",
            "step_end": "after_inference",
            "decisions": "at_boundary",
            "execution": "sequential",
            "approval": "write_tools",
            "while_waiting": "supersede",
            "on_busy": "interrupt",
            "max_result_chars": 100_000,
            "descendants_max": 100,
        })
    );
}

#[test]
fn server_store_and_auth_are_read() {
    let digest = "0123456789abcdef".repeat(4);
    let file = format!(
        r#"
        [server]
        listen = "0.0.0.0:80"
        max_running_runs = 8
        max_connections_per_address = 0
        public_url = "https://runs.example.org/"
        allow_origins = ["https://App.example.org:443", "http://localhost:5173"]
        drain = "2m"
        [store]
        url = "postgres://holdpoint:secret@db.example.org/runs?password=hidden"
        [auth]
        [[auth.keys]]
        name = "ops-laptop"
        sha256 = "{digest}"
        tenant = "acme"
        roles = ["run", "approve", "operator"]
        [[auth.keys]]
        name = "front-end"
        sha256 = "{}"
        roles = ["run"]
        acts_for = true
        "#,
        digest.to_uppercase().replace('0', "f")
    );
    let mut whole = checked(&file);
    assert_eq!(
        whole["server"].take(),
        json!({
            "listen": "0.0.0.0:80",
            "max_running_runs": 8,
            "max_connections_per_address": 0,
            "public_url": "https://runs.example.org",
            "callback_key": "store",
            "allow_origins": ["https://app.example.org", "http://localhost:5173"],
            "drain": "2m",
        })
    );
    assert_eq!(whole["store"], "postgres://db.example.org/runs");
    assert_eq!(
        whole["auth"],
        json!({"keys": [
            {
                "name": "ops-laptop", "tenant": "acme", "roles": ["run", "approve", "operator"],
                "agents": null, "acts_for": false, "fingerprint": "01234567",
            },
            {
                "name": "front-end", "tenant": "default", "roles": ["run"],
                "agents": null, "acts_for": true, "fingerprint": "f1234567",
            },
        ]})
    );
    let text = folder(&file).run(&["check"]).out;
    assert!(!text.contains("secret") && !text.contains("hidden") && !text.contains(&digest), "{text}");
    for (url, shown) in [("memory:", "memory:"), ("sqlite:/srv/runs.db", "sqlite:/srv/runs.db")] {
        assert_eq!(checked(&format!("[store]\nurl = \"{url}\"\n"))["store"], shown);
    }
}

#[test]
fn the_text_says_what_the_file_means() {
    let file = format!(
        "{DEMO}[tools.add]\nkind = \"builtin\"\n[tools.pick]\nkind = \"client\"\napproval = \"ask\"\nexpires = \"1d\"\n\
         parameters = {{ type = \"object\" }}\n[agents.clerk]\nmodel = \"demo\"\ninstructions = \"Count.\"\n\
         tools = [\"add\", \"pick\"]\n[[agents.clerk.rules]]\ntool = \"add\"\n\
         when = {{ a = {{ gt = 5 }}, b = {{ present = true }} }}\nthen = \"deny\"\n[agents.porter]\nmodel = \"demo\"\n"
    );
    let said = folder(&file).run(&["check"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let policy = "approval policy, continuation all_settled, decisions immediate, descendants_max 100, \
                  execution parallel, max_result_chars 100000, on_block fail_call, on_busy reject, on_reject unset, \
                  step_end after_tools, while_waiting reject";
    assert_eq!(
        said.out,
        format!(
            "holdpoint.toml: OK\n\
             server: 127.0.0.1:8787, known as http://127.0.0.1:8787, at most 256 running runs, drains for 30s\n\
             store: sqlite:holdpoint.db\n\
             auth: none (reachable from this machine only)\n\
             \n\
             agent clerk\n\
             \x20 model: demo (scripted)\n\
             \x20 instructions: \"Count.\"\n\
             \x20 tools:\n\
             \x20   add: builtin, effect read, approval never, timeout 30s\n\
             \x20   pick: client, effect write, approval ask, expires 1d (deny), timeout 30s\n\
             \x20 rules:\n\
             \x20   0: add when a gt 5.0 and b present true: deny\n\
             \x20 stop: max_rounds 25\n\
             \x20 policy: {policy}\n\
             \n\
             agent porter\n\
             \x20 model: demo (scripted)\n\
             \x20 instructions: \"\"\n\
             \x20 tools: none\n\
             \x20 rules: none\n\
             \x20 stop: max_rounds 25\n\
             \x20 policy: {policy}\n"
        )
    );
}

#[test]
fn the_settings_of_the_audit_record_are_printed_without_secrets() {
    const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let file = "[audit]\nretention = \"365d\"\nsigning_key_env = \"KEY\"\n\
        sink = { url = \"https://audit.example/in\", required = true, token_env = \"TOKEN\" }\n";
    let folder = folder(file);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(folder.path()).env("KEY", SECRET).env("TOKEN", "hidden-token").args(arguments);
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let (text, whole) = (run(&["check"]), run(&["check", "--json"]));
    let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert!(
        text.contains(&format!(
            "audit record: kept for 365d, heads signed with {public}, sent to https://audit.example/in, and no decision \
             without it\n"
        )),
        "{text}"
    );
    let whole: Value = serde_json::from_str(&whole).expect("JSON");
    assert_eq!(
        whole["audit"],
        json!({
            "retention": "365d", "public_key": public,
            "sink": {"url": "https://audit.example/in", "required": true},
        })
    );
    for shown in [&text, &whole.to_string()] {
        assert!(!shown.contains(SECRET) && !shown.contains("hidden-token"), "{shown}");
    }
}
