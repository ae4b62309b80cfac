//! Configurations that are wrong: every mistake with its line, its key, and what to do.

use serde_json::json;

use crate::program::Folder;

/// Runs `check` on this file beside a good script, a bad one, and a schema that is none.
fn check(configuration: &str, arguments: &[&str]) -> crate::program::Said {
    let folder = Folder::new();
    let write = |name: &str, text: &[u8]| {
        std::fs::write(folder.path().join(name), text).expect("the file is written");
    };
    write("holdpoint.toml", configuration.as_bytes());
    write("demo.json", br#"{"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}"#);
    write("typo.json", br#"{"rules": [{"when": ".*", "replies": [{"txet": "Done."}]}]}"#);
    write("list.json", b"[1]");
    write("cut.json", br#"{"type": "#);
    write("latin.json", &[0xff, 0xfe]);
    folder.run(&[&["check"], arguments].concat())
}

/// The faults that are told, without the name of the file. Nothing else is said.
#[track_caller]
fn faults(configuration: &str) -> Vec<String> {
    let said = check(configuration, &[]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{configuration}\n{said:?}");
    let line = |line: &str| line.strip_prefix("holdpoint.toml:").expect("it names the file").to_owned();
    said.err.lines().map(line).collect()
}

/// A model for agents that are wrong in other ways. Three lines.
const DEMO: &str = "[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\n";

#[test]
fn mistakes_at_the_top_and_in_server_store_and_auth() {
    let digest = "ab".repeat(32);
    let key = format!("sha256 = \"{digest}\"\nroles = [\"run\"]\n");
    let table: [(String, &[&str]); 28] = [
        (
            "srever = 1\n".into(),
            &["1: srever: unknown key; the keys here are server, store, auth, agents, models, tools, mcp"],
        ),
        (
            "\n[servers]\nlisten = 1\n".into(),
            &["2: servers: unknown key; the keys here are server, store, auth, agents, models, tools, mcp"],
        ),
        ("server = 5\n".into(), &["1: server: this is a whole number; write a table [server]"]),
        (
            "[server]\nlisten = \"8787\"\n".into(),
            &[
                "2: server.listen: \"8787\" is no such address; write an address and a port, such as \"127.0.0.1:8787\"",
            ],
        ),
        (
            "[server]\nlisten = 8787\n".into(),
            &[
                "2: server.listen: this is a whole number; write an address and a port, such as \"127.0.0.1:8787\"",
            ],
        ),
        (
            "[server]\nlisten = \"0.0.0.0:8787\"\n".into(),
            &[
                "2: server.listen: 0.0.0.0:8787 can be reached from other machines and there is no [auth]; add [auth] with keys, or listen on 127.0.0.1",
            ],
        ),
        (
            "[server]\nlisten = \"[::]:1\"\n".into(),
            &[
                "2: server.listen: [::]:1 can be reached from other machines and there is no [auth]; add [auth] with keys, or listen on 127.0.0.1",
            ],
        ),
        (
            "[server]\nmax_running_runs = 0\n".into(),
            &["2: server.max_running_runs: 0 does not fit here; write a whole number from 1 to 1000000"],
        ),
        (
            "[server]\nmax_running_runs = -1\n".into(),
            &["2: server.max_running_runs: -1 does not fit here; write a whole number from 1 to 1000000"],
        ),
        (
            "[server]\nmax_running_runs = \"many\"\n".into(),
            &["2: server.max_running_runs: this is a text; write a whole number from 1 to 1000000"],
        ),
        (
            "[server]\npublic_url = \"runs.example.org\"\n".into(),
            &[
                "2: server.public_url: \"runs.example.org\" is no such address; write an address that begins with http:// or https://",
            ],
        ),
        (
            "[server]\ndrain = 30\n".into(),
            &[
                "2: server.drain: this is a whole number; write a whole number and ms, s, m, h or d, such as \"30s\"",
            ],
        ),
        (
            "[server]\ndrain = \"1w\"\n".into(),
            &[
                "2: server.drain: \"1w\" is no duration; write a whole number and ms, s, m, h or d, such as \"30s\"",
            ],
        ),
        (
            "[server]\ndrain = \"-1s\"\n".into(),
            &[
                "2: server.drain: \"-1s\" is no duration; write a whole number and ms, s, m, h or d, such as \"30s\"",
            ],
        ),
        (
            "[store]\nurl = \"mysql://root:secret@db\"\n".into(),
            &["2: store.url: this names no store; write sqlite:PATH, postgres://… or memory:"],
        ),
        (
            "[store]\nurl = \"sqlite:\"\n".into(),
            &["2: store.url: this names no store; write sqlite:PATH, postgres://… or memory:"],
        ),
        ("[store]\npath = \"a\"\n".into(), &["2: store.path: unknown key; the keys here are url"]),
        (
            "[auth]\n".into(),
            &[
                "1: auth: there is no key, so nobody could call; add [[auth.keys]], or remove [auth] to be open on this machine",
            ],
        ),
        (
            "auth = { keys = [] }\n".into(),
            &[
                "1: auth: there is no key, so nobody could call; add [[auth.keys]], or remove [auth] to be open on this machine",
            ],
        ),
        (
            "[auth]\nkey = 1\n".into(),
            &[
                "1: auth: there is no key, so nobody could call; add [[auth.keys]], or remove [auth] to be open on this machine",
                "2: auth.key: unknown key; the keys here are keys",
            ],
        ),
        (
            "[[auth.keys]]\n".into(),
            &[
                "1: auth.keys[0].name: it is missing; write who it is, for the audit trail",
                "1: auth.keys[0].sha256: it is missing; write the SHA-256 of the bearer token, 64 hexadecimal digits",
                "1: auth.keys[0].roles: it is missing; write a list of run, approve, admin",
            ],
        ),
        (
            format!("[[auth.keys]]\nname = \"system\"\n{key}"),
            &["2: auth.keys[0].name: \"system\" means somebody without a key; choose another name"],
        ),
        (
            format!("[[auth.keys]]\nname = \"tool:transfer\"\n{key}"),
            &["2: auth.keys[0].name: \"tool:transfer\" means somebody without a key; choose another name"],
        ),
        (
            "[[auth.keys]]\nname = \"a\"\nsha256 = \"hunter2\"\nroles = [\"run\"]\n".into(),
            &[
                "3: auth.keys[0].sha256: this is no such digest; write the SHA-256 of the bearer token, 64 hexadecimal digits",
            ],
        ),
        (
            format!("[[auth.keys]]\nname = \"a\"\nsha256 = \"{}\"\nroles = [\"run\"]\n", "xy".repeat(32)),
            &[
                "3: auth.keys[0].sha256: this is no such digest; write the SHA-256 of the bearer token, 64 hexadecimal digits",
            ],
        ),
        (
            format!("[[auth.keys]]\nname = \"a\"\nsha256 = \"{digest}\"\nroles = [\"run\", \"root\"]\n"),
            &["4: auth.keys[0].roles[1]: \"root\" means nothing here; write one of run, approve, admin"],
        ),
        (
            format!("[[auth.keys]]\nname = \"a\"\nsha256 = \"{digest}\"\nroles = []\n"),
            &[
                "4: auth.keys[0].roles: a key without a role may do nothing; write a list of run, approve, admin",
            ],
        ),
        (
            format!("[[auth.keys]]\nname = \"a\"\n{key}\n[[auth.keys]]\nname = \"b\"\n{key}"),
            &["6: auth.keys[1]: another key has the same sha256; give each key a token of its own"],
        ),
    ];
    for (configuration, expected) in &table {
        assert_eq!(faults(configuration), *expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_models() {
    let table: [(&str, &[&str]); 14] = [
        (
            "[models.demo]\n",
            &["1: models.demo.provider: it is missing; write who provides the model, such as openai"],
        ),
        (
            "[models.demo]\nprovider = \"acme\"\n",
            &[
                "2: models.demo.provider: \"acme\" means nothing here; write one of openai, openai_compatible, anthropic, gemini, ollama, scripted",
            ],
        ),
        (
            "[models.demo]\nprovider = \"scripted\"\n",
            &["1: models.demo.script: it is missing; write the path of a script"],
        ),
        (
            "[models.demo]\nprovider = \"scripted\"\nscript = \"none.json\"\n",
            &[
                "3: models.demo.script: none.json cannot be read: No such file or directory (os error 2); write a path relative to the folder of this file",
            ],
        ),
        (
            "[models.demo]\nprovider = \"scripted\"\nscript = \"latin.json\"\n",
            &[
                "3: models.demo.script: latin.json is not a text in UTF-8; write a path relative to the folder of this file",
            ],
        ),
        (
            "[models.demo]\nprovider = \"scripted\"\nscript = \"typo.json\"\n",
            &[
                "3: models.demo.script: typo.json: rules[0].replies[0]: unknown key `txet`; the keys here are text, reasoning, tool_calls, usage, delta_chars, delay_ms, error",
            ],
        ),
        (
            "[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\nmodel = \"x\"\n",
            &["4: models.demo.model: unknown key; the keys here are provider, script"],
        ),
        (
            "[models.main]\nprovider = \"anthropic\"\n",
            &["1: models.main.model: it is missing; write the provider's name of the model"],
        ),
        (
            "[models.main]\nprovider = \"gemini\"\nmodel = \"m\"\napi_key = \"sk-1\"\n",
            &[
                "4: models.main.api_key: unknown key; the keys here are provider, model, base_url, api_key_env, connect_timeout, first_byte_timeout, idle_timeout, params",
            ],
        ),
        (
            "[models.main]\nprovider = \"ollama\"\nmodel = \"m\"\nbase_url = \"localhost\"\n",
            &[
                "4: models.main.base_url: \"localhost\" is no such address; write an address that begins with http:// or https://",
            ],
        ),
        (
            "[models.main]\nprovider = \"openai_compatible\"\nmodel = \"m\"\napi_key_env = \"\"\n",
            &[
                "1: models.main.base_url: it is missing; write the address of the API, such as http://…/v1",
                "4: models.main.api_key_env: it is empty; write the name of an environment variable",
            ],
        ),
        (
            "[models.main]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\nidle_timeout = 5\nparams = \"hot\"\n",
            &[
                "5: models.main.idle_timeout: this is a whole number; write a whole number and ms, s, m, h or d, such as \"30s\"",
                "6: models.main.params: this is a text; write a table of what the provider takes, such as { temperature = 0.2 }",
            ],
        ),
        (
            "[models.main]\nprovider = \"gemini\"\nmodel = \"two words\"\nbase_url = \"http://127.0.0.1:9\"\n",
            &["4: models.main.base_url: this makes no address; correct base_url or the name of the model"],
        ),
        ("models = [1]\n", &["1: models: this is a list; write tables [models.NAME]"]),
    ];
    for (configuration, expected) in table {
        assert_eq!(faults(configuration), expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_tools() {
    let schema = "parameters = { type = \"object\" }\n";
    let client = format!("[tools.pick]\nkind = \"client\"\n{schema}");
    let table: [(String, &[&str]); 27] = [
        (
            "[tools.pick]\n".into(),
            &["1: tools.pick.kind: it is missing; write one of http, client, external, agent, builtin"],
        ),
        (
            "[tools.pick]\nkind = \"magic\"\n".into(),
            &[
                "2: tools.pick.kind: \"magic\" means nothing here; write one of http, client, external, agent, builtin",
            ],
        ),
        (
            "[tools.pick]\nkind = \"agent\"\n".into(),
            &["1: tools.pick.agent: it is missing; write the name of an [agents.NAME] table"],
        ),
        (
            "[tools.pick]\nkind = \"client\"\n".into(),
            &[
                "1: tools.pick.parameters: it is missing; write a JSON Schema, such as { type = \"object\" } or { file = \"NAME.json\" }",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = { file = \"none.json\" }\n".into(),
            &[
                "3: tools.pick.parameters: none.json cannot be read: No such file or directory (os error 2); write a path relative to the folder of this file",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = { file = \"cut.json\" }\n".into(),
            &[
                "3: tools.pick.parameters: cut.json: this is not JSON: EOF while parsing a value at line 1 column 9; correct it",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = { file = \"list.json\" }\n".into(),
            &[
                "3: tools.pick.parameters: this is no JSON object; write a JSON Schema, such as { type = \"object\" } or { file = \"NAME.json\" }",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = '{'\n".into(),
            &[
                "3: tools.pick.parameters: this is not JSON: EOF while parsing an object at line 1 column 1; correct it",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = 5\n".into(),
            &[
                "3: tools.pick.parameters: this is a whole number; write a JSON Schema, such as { type = \"object\" } or { file = \"NAME.json\" }",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = { type = \"thing\" }\n".into(),
            &[
                "3: tools.pick.parameters: this is no JSON Schema: \"thing\" is not valid under any of the schemas listed in the 'anyOf' keyword; correct it",
            ],
        ),
        (
            "[tools.pick]\nkind = \"client\"\nparameters = { type = \"object\", default = 1979-05-27 }\n"
                .into(),
            &["3: tools.pick.parameters: JSON has no dates; write it in quotes"],
        ),
        (
            format!("{client}effect = \"harmless\"\n"),
            &["4: tools.pick.effect: \"harmless\" means nothing here; write one of read, idempotent, write"],
        ),
        (
            format!("{client}approval = true\n"),
            &["4: tools.pick.approval: this is true or false; write one of never, ask, block"],
        ),
        (
            format!("{client}expires = \"0s\"\n"),
            &["4: tools.pick.expires: no time is too short; write a longer one, such as \"30s\""],
        ),
        (
            format!("{client}on_expiry = \"allow\"\n"),
            &["4: tools.pick.on_expiry: \"allow\" means nothing here; write one of deny, end_run"],
        ),
        (
            format!("{client}url = \"http://a\"\n"),
            &[
                "4: tools.pick.url: unknown key; the keys here are kind, description, parameters, effect, approval, expires, on_expiry",
            ],
        ),
        (
            format!("[tools.\"files.read\"]\nkind = \"client\"\n{schema}"),
            &[
                "1: tools.\"files.read\": this is no name for a tool; use letters, digits, _ and -, at most 128 of them",
            ],
        ),
        (
            "[tools.wirte_file]\nkind = \"builtin\"\n".into(),
            &[
                "2: tools.wirte_file.kind: there is no builtin tool `wirte_file`; use one of echo, add, sleep, write_file, boom, ask_user",
            ],
        ),
        (
            "[tools.write_file]\nkind = \"builtin\"\n".into(),
            &[
                "1: tools.write_file.folder: the builtin tool `write_file` has no folder; set `folder` to where it may write",
            ],
        ),
        (
            "[tools.write_file]\nkind = \"builtin\"\nfolder = 1\n".into(),
            &[
                "3: tools.write_file.folder: this is a whole number; write a path, relative to the folder of this file",
            ],
        ),
        (
            "[tools.echo]\nkind = \"builtin\"\nfolder = \"a\"\n".into(),
            &["3: tools.echo.folder: the builtin tool echo uses no folder; remove it"],
        ),
        (
            format!("[tools.echo]\nkind = \"builtin\"\n{schema}effect = \"write\"\n"),
            &[
                "3: tools.echo.parameters: it is built in and cannot be changed; remove it",
                "4: tools.echo.effect: it is built in and cannot be changed; remove it",
            ],
        ),
        (
            format!("[tools.pay]\nkind = \"http\"\n{schema}"),
            &["1: tools.pay.url: it is missing; write the address that is called"],
        ),
        (
            format!(
                "[tools.pay]\nkind = \"http\"\nurl = \"ftp://a\"\n{schema}timeout = \"fast\"\nmax_response = \"1MB\"\nmethod = \"PUT\"\n"
            ),
            &[
                "3: tools.pay.url: \"ftp://a\" is no such address; write an address that begins with http:// or https://",
                "5: tools.pay.timeout: \"fast\" is no duration; write a whole number and ms, s, m, h or d, such as \"30s\"",
                "6: tools.pay.max_response: \"1MB\" is no size; write a whole number and B, KiB, MiB or GiB, such as \"1MiB\"",
                "7: tools.pay.method: unknown key; the keys here are kind, url, description, parameters, effect, approval, expires, on_expiry, timeout, max_response, bearer_env, private_network",
            ],
        ),
        (
            format!(
                "[tools.pay]\nkind = \"http\"\nurl = \"http://a\"\n{schema}max_response = \"17MiB\"\nprivate_network = 1\n"
            ),
            &[
                "5: tools.pay.max_response: this is more than a result may have; write at most 16MiB",
                "6: tools.pay.private_network: this is a whole number; write true or false",
            ],
        ),
        (
            "[tools.clerk]\nkind = \"agent\"\nmax_tokens = 0\n".to_owned(),
            &[
                "1: tools.clerk.agent: it is missing; write the name of an [agents.NAME] table",
                "3: tools.clerk.max_tokens: 0 does not fit here; write a whole number from 1 to 9223372036854775807",
            ],
        ),
        (
            "[tools.clerk]\nkind = \"agent\"\nagent = \"porter\"\n".to_owned(),
            &["3: tools.clerk.agent: there is no agent \"porter\"; add a table [agents.porter]"],
        ),
    ];
    for (configuration, expected) in &table {
        assert_eq!(faults(configuration), *expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_mcp_servers() {
    let built = "tools over MCP are not built yet; remove the table";
    let table: [(&str, &[&str]); 4] = [
        (
            "[mcp.files]\n",
            &[
                "1: mcp.files: {built}",
                "1: mcp.files.command: it is missing; write the program to start, or a url",
            ],
        ),
        (
            "[mcp.files]\ncommand = \"a\"\nurl = \"http://b\"\n",
            &["1: mcp.files: {built}", "3: mcp.files.url: it stands beside command; keep one of them"],
        ),
        (
            "[mcp.files]\ncommand = \"a\"\nargs = [1]\ntrust_annotations = 1\nenv = 1\n",
            &[
                "1: mcp.files: {built}",
                "3: mcp.files.args[0]: this is a whole number; write a text",
                "4: mcp.files.trust_annotations: this is a whole number; write true or false",
                "5: mcp.files.env: unknown key; the keys here are command, url, args, trust_annotations, tools",
            ],
        ),
        (
            "[mcp.files]\nurl = \"http://b\"\n[mcp.files.tools.read]\neffect = \"read\"\napproval = \"never\"\ncolour = 1\n",
            &[
                "1: mcp.files: {built}",
                "6: mcp.files.tools.read.colour: unknown key; the keys here are effect, approval, expires, on_expiry, timeout",
            ],
        ),
    ];
    for (configuration, expected) in table {
        let expected: Vec<String> = expected.iter().map(|line| line.replace("{built}", built)).collect();
        assert_eq!(faults(configuration), expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_agents() {
    // With the model, lines 1 to 3; the table of the agent is line 4, its model line 5.
    let table: [(&str, &[&str]); 12] = [
        (
            "model = \"demo\"\nmodell = 1\n",
            &[
                "6: agents.clerk.modell: unknown key; the keys here are model, models, instructions, tools, stop, rules, policy, output_schema, trim",
            ],
        ),
        (
            "instructions = \"Hello\"\n",
            &["4: agents.clerk.model: it is missing; write the name of a [models.NAME] table"],
        ),
        (
            "model = \"main\"\n",
            &["5: agents.clerk.model: there is no model \"main\"; use one of demo, or add a table"],
        ),
        (
            "model = \"demo\"\nmodels = [\"demo\"]\n",
            &["5: agents.clerk.model: `models` stands beside it; keep one of them"],
        ),
        (
            "models = [\"demo\", \"main\", \"demo\"]\n",
            &[
                "5: agents.clerk.models[1]: there is no model \"main\"; use one of demo, or add a table",
                "5: agents.clerk.models[2]: \"demo\" stands here twice; remove one",
            ],
        ),
        ("models = []\n", &["5: agents.clerk.models: there are 0 names; write 1 to 8"]),
        (
            "model = \"demo\"\ninstructions = 1\n",
            &["6: agents.clerk.instructions: this is a whole number; write a text"],
        ),
        (
            "model = \"demo\"\ntools = \"pay\"\n",
            &["6: agents.clerk.tools: this is a text; write a list of the names of tools"],
        ),
        (
            "model = \"demo\"\ntools = [\n  \"pay\",\n  \"files.*\", 5,\n]\n",
            &[
                "7: agents.clerk.tools[0]: there is no tool \"pay\"; add a table [tools.pay]",
                "8: agents.clerk.tools[1]: there is no table [mcp.files]; remove \"files.*\"",
                "8: agents.clerk.tools[2]: this is a whole number; write the name of a tool",
            ],
        ),
        (
            "model = \"demo\"\ntools = [\"echo\", \"echo\"]\n[tools.echo]\nkind = \"builtin\"\n",
            &["6: agents.clerk.tools[1]: \"echo\" stands here twice; remove one"],
        ),
        (
            "model = \"demo\"\ntools = [\"ecko\"]\n[tools.echo]\nkind = \"builtin\"\n",
            &["6: agents.clerk.tools[0]: there is no tool \"ecko\"; use one of echo, or add a table"],
        ),
        (
            "model = \"demo\"\n[agents.\"the porter\"]\nmodel = \"demo\"\n",
            &[
                "6: agents.\"the porter\": this is no name for an agent; use letters, digits, _ and -, at most 128 of them",
            ],
        ),
    ];
    for (configuration, expected) in table {
        let configuration = format!("{DEMO}[agents.clerk]\n{configuration}");
        assert_eq!(faults(&configuration), expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_stop_conditions() {
    let kinds =
        "max_rounds, timeout, token_budget, consecutive_errors, stop_on_tool, content_match, loop_detection";
    let example = "{ type = \"max_rounds\", rounds = 25 }";
    let table: [(&str, &[&str]); 10] = [
        (
            "5",
            &[
                "6: agents.clerk.stop: this is a whole number; write a list of stop conditions, such as {example}",
            ],
        ),
        (
            "[5]",
            &["6: agents.clerk.stop[0]: this is a whole number; write a stop condition, such as {example}"],
        ),
        ("[{ rounds = 5 }]", &["6: agents.clerk.stop[0].type: it is missing; write one of {kinds}"]),
        (
            "[{ type = \"max_steps\" }]",
            &["6: agents.clerk.stop[0].type: \"max_steps\" means nothing here; write one of {kinds}"],
        ),
        (
            "[{ type = \"max_rounds\" }]",
            &["6: agents.clerk.stop[0].rounds: it is missing; write a whole number; 0 means no limit"],
        ),
        (
            "[{ type = \"max_rounds\", rounds = 4294967296 }]",
            &[
                "6: agents.clerk.stop[0].rounds: 4294967296 does not fit here; write a whole number from 0 to 4294967295",
            ],
        ),
        (
            "[{ type = \"timeout\", seconds = \"5s\" }]",
            &[
                "6: agents.clerk.stop[0].seconds: this is a text; write a whole number from 0 to 9223372036854775807",
            ],
        ),
        (
            "[{ type = \"loop_detection\", window = 65536 }]",
            &[
                "6: agents.clerk.stop[0].window: 65536 does not fit here; write a whole number from 0 to 65535",
            ],
        ),
        (
            "[\n{ type = \"stop_on_tool\", tool_name = \"\" },\n{ type = \"token_budget\", max_total = 1, min = 2 }]",
            &[
                "7: agents.clerk.stop[0].tool_name: it is empty; write the name of a tool",
                "8: agents.clerk.stop[1].min: unknown key; the keys here are type, max_total",
            ],
        ),
        (
            "[{ type = \"content_match\", pattern = \"[a\" }]",
            &[
                "6: agents.clerk.stop[0].pattern: \"[a\" is no regular expression: unclosed character class; correct the pattern",
            ],
        ),
    ];
    for (stop, expected) in table {
        let configuration = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\nstop = {stop}\n");
        let expected: Vec<String> = expected
            .iter()
            .map(|line| line.replace("{kinds}", kinds).replace("{example}", example))
            .collect();
        assert_eq!(faults(&configuration), expected, "{configuration}");
    }
}

#[test]
fn mistakes_in_rules() {
    let tests = "eq, ne, lt, lte, gt, gte, in, matches";
    let table: [(&str, &[&str]); 14] = [
        (
            "tool = \"echo\"\n",
            &["9: agents.clerk.rules[0].then: it is missing; write one of allow, ask, deny"],
        ),
        (
            "then = \"ask\"\n",
            &["9: agents.clerk.rules[0].tool: it is missing; write the name of a tool of this agent"],
        ),
        (
            "tool = \"pay\"\nthen = \"ask\"\n",
            &[
                "10: agents.clerk.rules[0].tool: this agent has no tool \"pay\"; add it to tools, or use one of echo",
            ],
        ),
        (
            "tool = \"echo\"\nthen = \"block\"\n",
            &["11: agents.clerk.rules[0].then: \"block\" means nothing here; write one of allow, ask, deny"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nif = {}\n",
            &["12: agents.clerk.rules[0].if: unknown key; the keys here are tool, when, then"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = {}\n",
            &[
                "12: agents.clerk.rules[0].when: there is no condition; write one, or remove `when` for a rule that always holds",
            ],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = {} }\n",
            &["12: agents.clerk.rules[0].when.a: there is no test; write one of {tests}"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = 5 }\n",
            &[
                "12: agents.clerk.rules[0].when.a: this is no condition; write a test, such as { eq = … }; the tests are {tests}",
            ],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = { less = 5 } }\n",
            &[
                "12: agents.clerk.rules[0].when.a.less: this is no condition; write a test, such as { eq = … }; the tests are {tests}",
            ],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = { lt = 5, b = { lt = 5 } } }\n",
            &[
                "12: agents.clerk.rules[0].when.a: tests and other keys stand side by side; the tests are {tests}, and a path goes into one key in quotes",
            ],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = { lt = \"5\" } }\n",
            &["12: agents.clerk.rules[0].when.a.lt: this is a text; write a number"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { \"a.b\" = { eq = nan } }\n",
            &["12: agents.clerk.rules[0].when.\"a.b\".eq: nan has no place in JSON; write a finite number"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = { in = [] } }\n",
            &["12: agents.clerk.rules[0].when.a.in: nothing is in an empty list; write the values"],
        ),
        (
            "tool = \"echo\"\nthen = \"ask\"\nwhen = { a = { matches = \"*\" } }\n",
            &[
                "12: agents.clerk.rules[0].when.a.matches: \"*\" is no regular expression: repetition operator missing expression; correct the pattern",
            ],
        ),
    ];
    for (rule, expected) in table {
        let configuration = format!(
            "{DEMO}[tools.echo]\nkind = \"builtin\"\n[agents.clerk]\nmodel = \"demo\"\ntools = [\"echo\"]\n\
             [[agents.clerk.rules]]\n{rule}"
        );
        let expected: Vec<String> = expected.iter().map(|line| line.replace("{tests}", tests)).collect();
        assert_eq!(faults(&configuration), expected, "{configuration}");
    }
}

#[test]
fn every_field_of_the_policy_knows_its_words() {
    let fields = [
        ("continuation", "all_settled, eager"),
        ("on_reject", "continue, end_run"),
        ("on_block", "fail_call, end_run"),
        ("step_end", "after_tools, after_inference"),
        ("decisions", "immediate, at_boundary"),
        ("execution", "parallel, sequential"),
        ("approval", "policy, all_tools, write_tools, never"),
        ("while_waiting", "reject, supersede, enqueue"),
        ("on_busy", "reject, enqueue, interrupt"),
    ];
    for (field, words) in fields {
        let policy = format!("[agents.clerk.policy]\n{field} = \"sometimes\"\n");
        let configuration = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n{policy}");
        let expected =
            format!("7: agents.clerk.policy.{field}: \"sometimes\" means nothing here; write one of {words}");
        assert_eq!(faults(&configuration), [expected]);
        // Each of the words is accepted.
        for word in words.split(", ") {
            let said = check(&configuration.replace("sometimes", word), &["--json"]);
            assert_eq!(said.json()["agents"][0]["policy"][field], word, "{said:?}");
        }
    }
    let known: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
    let configuration =
        format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n[agents.clerk.policy]\npatience = 1\n");
    let expected =
        format!("7: agents.clerk.policy.patience: unknown key; the keys here are {}", known.join(", "));
    assert_eq!(faults(&configuration), [expected]);
}

#[test]
fn mistakes_in_the_output_and_the_trimming_of_an_agent() {
    let table = [
        ("trim = 5", "6: agents.clerk.trim: this is a whole number; write a table [agents.NAME.trim]"),
        (
            "trim = {}",
            "6: agents.clerk.trim: it sets no bound; write max_messages, max_chars or both, or remove it",
        ),
        (
            "trim = { max_messages = 0 }",
            "6: agents.clerk.trim.max_messages: 0 does not fit here; write a whole number from 1 to 1000000",
        ),
        (
            "trim = { max_tokens = 1, max_chars = 9 }",
            "6: agents.clerk.trim.max_tokens: unknown key; the keys here are max_messages, max_chars",
        ),
        (
            "output_schema = \"[]\"",
            "6: agents.clerk.output_schema: this is no JSON object; write a JSON Schema, such as \
             { type = \"object\" } or { file = \"NAME.json\" }",
        ),
    ];
    for (line, expected) in table {
        let configuration = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n{line}\n");
        assert_eq!(faults(&configuration), [expected]);
    }
    let wrong = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\noutput_schema = {{ type = \"objekt\" }}\n");
    let told = faults(&wrong);
    assert!(told[0].starts_with("6: agents.clerk.output_schema: this is no JSON Schema: "), "{told:?}");
}

#[test]
fn a_text_that_is_no_toml_is_told_by_its_lines() {
    assert_eq!(
        faults("[server]\nlisten = \nlisten = \"a\"\n[store]\nurl = \"memory:\nmemory = 1\n"),
        [
            "2: syntax: string values must be quoted, expected literal string; correct it there",
            "3: syntax: duplicate key; correct it there",
            "5: syntax: invalid basic string, expected `\"`; correct it there",
        ]
    );
}

/// The example of the contract, each key of it in use. What does not exist yet is refused by name, and nothing else.
#[test]
fn every_key_of_the_contract_is_known() {
    let digest = "ab".repeat(32);
    let configuration = format!(
        r#"[server]
listen = "127.0.0.1:8787"
max_running_runs = 256
public_url = "http://127.0.0.1:8787"
drain = "30s"
[store]
url = "sqlite:holdpoint.db"
[auth]
[[auth.keys]]
name   = "ops-laptop"
sha256 = "{digest}"
tenant = "acme"
roles  = ["run", "approve", "admin"]
[models.main]
provider    = "openai"
model       = "gpt-5-mini"
base_url    = "http://127.0.0.1:9000/v1"
api_key_env = "OPENAI_API_KEY"
[models.demo]
provider = "scripted"
script   = "demo.json"
[tools.transfer]
kind        = "http"
url         = "http://127.0.0.1:9100/transfer"
description = "Move money between two accounts"
parameters  = {{ type = "object", required = ["to", "amount"], properties = {{ to = {{ type = "string" }} }} }}
effect      = "write"
approval    = "ask"
timeout     = "30s"
expires     = "24h"
on_expiry   = "deny"
max_response = "1MiB"
[tools.pick_file]
kind = "client"
description = "Let the user pick a file"
parameters = {{ type = "object" }}
[mcp.files]
command = "some-mcp-server"
args = []
trust_annotations = false
[agents.assistant]
model        = "main"
instructions = "You are a careful assistant."
tools        = ["transfer", "pick_file", "files.*"]
stop = [ {{ type = "max_rounds", rounds = 25 }}, {{ type = "timeout", seconds = 300 }},
         {{ type = "token_budget", max_total = 200000 }}, {{ type = "consecutive_errors", max = 3 }},
         {{ type = "stop_on_tool", tool_name = "finish" }},
         {{ type = "content_match", pattern = "(?i)all done" }}, {{ type = "loop_detection", window = 4 }} ]
[[agents.assistant.rules]]
tool = "transfer"
when = {{ amount = {{ lte = 100 }} }}
then = "allow"
[[agents.assistant.rules]]
tool = "files.read"
then = "allow"
[agents.assistant.policy]
execution = "parallel"
on_reject = "continue"
"#
    );
    assert_eq!(faults(&configuration), ["37: mcp.files: tools over MCP are not built yet; remove the table"]);
}

#[test]
fn faults_are_one_json_object_where_json_is_asked_for() {
    let said = check("[server]\ndrain = 1\n[auth]\n", &["--json"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert_eq!(
        said.error(),
        json!({
            "code": "CONFIGURATION",
            "cause": "holdpoint.toml has 2 errors",
            "next": "Correct the file, and run holdpoint check.",
            "faults": [
                {
                    "file": "holdpoint.toml", "line": 2, "key": "server.drain",
                    "what": "this is a whole number; write a whole number and ms, s, m, h or d, such as \"30s\"",
                },
                {
                    "file": "holdpoint.toml", "line": 3, "key": "auth",
                    "what": "there is no key, so nobody could call; add [[auth.keys]], or remove [auth] to be open on \
                             this machine",
                },
            ],
        })
    );
}

#[test]
fn a_configuration_that_is_not_there_exits_with_2() {
    let folder = Folder::new();
    let said = folder.run(&["check", "--config", "none.toml"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert_eq!(
        said.err,
        "CONFIGURATION_UNREADABLE: none.toml cannot be read: No such file or directory (os error 2)\n  \
         next: Name the configuration with --config FILE.\n"
    );
    assert_eq!(folder.run(&["check", "--json"]).error()["code"], "CONFIGURATION_UNREADABLE");
    assert_eq!(folder.names(), [""; 0]);
}
