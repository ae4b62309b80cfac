//! Wrong configurations: every mistake is reported with its line, its key and what to do. `mistakes/` lists the cases.

use serde_json::json;

use crate::program::Folder;

/// Runs `check` on this configuration, in a folder with a good script, a bad script and an invalid schema.
fn check(configuration: &str, arguments: &[&str]) -> crate::program::CommandOutput {
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

/// The reported faults, without the name of the file. Asserts that nothing else is printed.
#[track_caller]
fn faults(configuration: &str) -> Vec<String> {
    let said = check(configuration, &[]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{configuration}\n{said:?}");
    let line = |line: &str| line.strip_prefix("holdpoint.toml:").expect("it names the file").to_owned();
    said.err.lines().map(line).collect()
}

/// A correct model, three lines long, for tests of other mistakes.
const DEMO: &str = "[models.demo]\nprovider = \"scripted\"\nscript = \"demo.json\"\n";

/// Checks every case in a file of `mistakes/`. A case is a configuration, then each expected line after `=> `, then an
/// empty line. `above` is put before every configuration, and counts for the line numbers.
fn each_is_reported(mistakes: &str, above: &str) {
    each(mistakes, above, faults);
}

fn each(mistakes: &str, above: &str, reported: impl Fn(&str) -> Vec<String>) {
    let (mut configuration, mut expected) = (above.to_owned(), Vec::new());
    for line in mistakes.lines().chain([""]) {
        if let Some(fault) = line.strip_prefix("=> ") {
            expected.push(fault);
        } else if expected.is_empty() {
            configuration.push_str(line);
            configuration.push('\n');
        } else {
            assert_eq!(line, "", "an empty line has to follow the expected lines of\n{configuration}");
            assert_eq!(reported(&configuration), expected, "{configuration}");
            (configuration, expected) = (above.to_owned(), Vec::new());
        }
    }
    assert_eq!(configuration, above, "the last configuration has no expected lines");
}

#[test]
fn mistakes_at_the_top_and_in_server_store_and_auth() {
    each_is_reported(include_str!("mistakes/top.txt"), "");
    each_is_reported(include_str!("mistakes/server.txt"), "");
    each_is_reported(include_str!("mistakes/store.txt"), "");
    each_is_reported(include_str!("mistakes/auth.txt"), "");
    each_is_reported(include_str!("mistakes/audit.txt"), "");
}

#[test]
fn mistakes_in_models() {
    each_is_reported(include_str!("mistakes/models.txt"), "");
}

#[test]
fn mistakes_in_tools() {
    each_is_reported(include_str!("mistakes/tools.txt"), "");
}

#[test]
fn mistakes_in_mcp_servers() {
    each_is_reported(include_str!("mistakes/mcp.txt"), "");
}

#[test]
fn mistakes_in_agents() {
    each_is_reported(include_str!("mistakes/agents.txt"), &format!("{DEMO}[agents.clerk]\n"));
}

#[test]
fn mistakes_in_stop_conditions() {
    each_is_reported(include_str!("mistakes/stop.txt"), &format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n"));
}

#[test]
fn mistakes_in_hooks() {
    let above = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n[[agents.clerk.hooks]]\n");
    each_is_reported(include_str!("mistakes/hooks.txt"), &above);
    let hook = "[[agents.clerk.hooks]]\nurl = \"http://127.0.0.1:9200/hook\"\nphases = [\"run_start\"]\n";
    let many = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n{}", hook.repeat(17));
    assert_eq!(faults(&many), ["6: agents.clerk.hooks: there are 17 hooks; write at most 16"]);
    let address = "http://hooks.example.com/x";
    let far = format!(
        "{DEMO}[agents.clerk]\nmodel = \"demo\"\n{}",
        hook.replace("http://127.0.0.1:9200/hook", address)
    );
    let said = check(&far, &[]);
    let warning = "warning: holdpoint.toml:7: agents.clerk.hooks[0].url: the hook is called over plain HTTP on another machine";
    assert!(said.code == Some(0) && said.err.starts_with(warning), "{said:?}");
    let safe = check(&far.replace("http://hooks", "https://hooks"), &[]);
    assert_eq!((safe.code, safe.err.as_str()), (Some(0), ""), "{safe:?}");
}

#[test]
fn mistakes_in_rules() {
    let above = format!(
        "{DEMO}[tools.echo]\nkind = \"builtin\"\n[agents.clerk]\nmodel = \"demo\"\ntools = [\"echo\"]\n\
         [[agents.clerk.rules]]\n"
    );
    each_is_reported(include_str!("mistakes/rules.txt"), &above);
}

/// A tool whose schema allows no additional arguments, one whose schema does, and the beginning of a rule.
const TRANSFER: &str = include_str!("mistakes/rules_above.toml");

#[test]
fn rules_that_the_schema_makes_impossible_are_mistakes() {
    for then in ["deny", "ask", "allow"] {
        let above = format!("{DEMO}{TRANSFER}tool = \"transfer\"\nthen = \"{then}\"\n");
        each_is_reported(include_str!("mistakes/impossible_rules.txt"), &above);
    }
}

#[test]
fn rules_that_a_model_can_get_around_are_warned_of() {
    each_is_warned_of(include_str!("mistakes/warned_rules.txt"), &format!("{DEMO}{TRANSFER}"));
}

#[test]
fn keys_that_travel_in_clear_are_warned_of() {
    each_is_warned_of(include_str!("mistakes/warned_keys.txt"), "");
    for configuration in [
        "[tools.pay]\nkind = \"http\"\nurl = \"http://127.0.0.1/pay\"\nbearer_env = \"PATH\"\nparameters = {}\n",
        "[server]\nlisten = \"0.0.0.0:1\"\npublic_url = \"https://a.example\"\n[[auth.keys]]\nname = \"a\"\n\
         sha256 = \"abababababababababababababababababababababababababababababababab\"\nroles = [\"operator\"]\n",
    ] {
        let said = check(configuration, &[]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{configuration}");
    }
}

/// A symbolic link counts as the folder that it leads to, and a store on the command line is checked too.
#[test]
fn no_tool_writes_where_the_configuration_or_the_store_is() {
    let folder = Folder::new();
    let write = |folder_of_tool: &str| {
        let tool = format!("[tools.write_file]\nkind = \"builtin\"\nfolder = \"{folder_of_tool}\"\n");
        std::fs::write(folder.path().join("holdpoint.toml"), tool).expect("the file is written");
    };
    std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).expect("a link can be made");
    write("link");
    let said = folder.run(&["check"]);
    assert!(said.code == Some(2) && said.err.contains("could overwrite holdpoint.toml"), "{said:?}");
    write("written");
    assert_eq!(folder.run(&["check"]).code, Some(0));
    let said = folder.run(&["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:written/a.db"]);
    assert!(said.code == Some(2) && said.err.starts_with("STORE_IN_TOOL_FOLDER: "), "{said:?}");
}

/// The same for a file of `mistakes/` whose configurations only cause warnings.
fn each_is_warned_of(mistakes: &str, above: &str) {
    each(mistakes, above, |configuration| {
        let said = check(configuration, &[]);
        assert_eq!(said.code, Some(0), "{configuration}\n{said:?}");
        let line = |line: &str| line.strip_prefix("warning: holdpoint.toml:").expect("a warning").to_owned();
        let lines: Vec<String> = said.err.lines().map(line).collect();
        let in_json = check(configuration, &["--json"]);
        assert_eq!((in_json.code, in_json.err.as_str()), (Some(0), ""));
        let warnings = in_json.json()["warnings"].take();
        let whole = |warning: &serde_json::Value| {
            format!("{}: {}: {}", warning["line"], word(&warning["key"]), word(&warning["what"]))
        };
        assert_eq!(warnings.as_array().expect("a list").iter().map(whole).collect::<Vec<_>>(), lines);
        lines
    });
}

const ASK_OTHER: &str = "[tools.ask_other]\nkind = \"agent\"\nagent = \"other\"\n";

fn delegation_warnings(tool: &str, clerk: &str, other: &str) -> String {
    let configuration = format!(
        "{DEMO}{ASK_OTHER}{tool}[agents.clerk]\nmodel = \"demo\"\ntools = [\"ask_other\"]\n{clerk}[agents.other]\nmodel = \
         \"demo\"\n{other}"
    );
    let said = check(&configuration, &[]);
    assert_eq!(said.code, Some(0), "{configuration}\n{said:?}");
    said.err
}

#[test]
fn an_agent_that_delegates_without_a_bound_on_tokens_is_warned_of() {
    let budget = "stop = [{ type = \"token_budget\", max_total = 1000 }]\n";
    let warned = delegation_warnings("", "", "");
    assert!(
        warned.contains(
            "agents.clerk: its tool \"ask_other\" delegates to \"other\", and nothing bounds the tokens that those runs \
             use: there may be 100 of them; add a token_budget to `stop` here or there, or max_tokens to the tool"
        ),
        "{warned}"
    );
    assert_eq!(delegation_warnings("max_tokens = 500\n", "", ""), "");
    assert_eq!(delegation_warnings("", budget, ""), "");
    assert_eq!(delegation_warnings("", "", budget), "");
    // If agents delegate in a circle, each of them gets a warning.
    let circle = delegation_warnings("", "", "tools = [\"ask_other\"]\n");
    assert_eq!(circle.lines().count(), 2, "{circle}");
}

fn word(value: &serde_json::Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn rules_that_can_match_and_cannot_be_avoided_are_neither_mistakes_nor_warned_of() {
    for rules in [
        // The argument is required, or the rule tests only its presence.
        "tool = \"transfer\"\nwhen = { amount = { gt = 100, lt = 200, ne = 150 } }\nthen = \"deny\"\n",
        "tool = \"transfer\"\nwhen = { to = { matches = \"^x\" } }\nthen = \"ask\"\n",
        "tool = \"transfer\"\nwhen = { memo = { present = true } }\nthen = \"deny\"\n",
        "tool = \"transfer\"\nwhen = { memo = { absent = true } }\nthen = \"ask\"\n",
        // `allow` applies only if the argument is present, and the schema is closed.
        "tool = \"transfer\"\nwhen = { currency = { in = [\"eur\", \"gbp\"] }, account.bank = { eq = \"X\" } }\nthen = \"allow\"\n",
        "tool = \"transfer\"\nwhen = { amount = { gte = 0, lte = 100 } }\nthen = \"allow\"\n",
        "tool = \"note\"\nthen = \"allow\"\n",
        // Another rule covers the missing argument.
        "tool = \"transfer\"\nwhen = { memo = { matches = \"gift\" } }\nthen = \"ask\"\n[[agents.clerk.rules]]\n\
         tool = \"transfer\"\nwhen = { memo = { absent = true } }\nthen = \"deny\"\n",
        // The schema is open, but it requires this argument.
        "tool = \"note\"\nwhen = { size = { gt = 1 } }\nthen = \"deny\"\n",
    ] {
        let said = check(&format!("{DEMO}{TRANSFER}{rules}"), &[]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{rules}");
    }
}

#[test]
fn every_policy_field_accepts_its_values() {
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
            format!("7: agents.clerk.policy.{field}: unknown value \"sometimes\"; use one of {words}");
        assert_eq!(faults(&configuration), [expected]);
        // Each of the words is accepted.
        for word in words.split(", ") {
            let said = check(&configuration.replace("sometimes", word), &["--json"]);
            assert_eq!(said.json()["agents"][0]["policy"][field], word, "{said:?}");
        }
    }
    let limits = ["max_result_chars", "descendants_max"];
    let known: Vec<&str> = fields.iter().map(|(field, _)| *field).chain(limits).collect();
    let configuration =
        format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\n[agents.clerk.policy]\npatience = 1\n");
    let expected =
        format!("7: agents.clerk.policy.patience: unknown key; the keys here are {}", known.join(", "));
    assert_eq!(faults(&configuration), [expected]);
}

#[test]
fn an_invalid_output_schema_is_reported_with_its_error() {
    let wrong = format!("{DEMO}[agents.clerk]\nmodel = \"demo\"\noutput_schema = {{ type = \"objekt\" }}\n");
    let printed = faults(&wrong);
    assert!(printed[0].starts_with("6: agents.clerk.output_schema: this is no JSON Schema: "), "{printed:?}");
}

#[test]
fn toml_syntax_errors_are_reported_by_line() {
    assert_eq!(
        faults("[server]\nlisten = \nlisten = \"a\"\n[store]\nurl = \"memory:\nmemory = 1\n"),
        [
            "2: syntax: string values must be quoted, expected literal string; correct it there",
            "3: syntax: duplicate key; correct it there",
            "5: syntax: invalid basic string, expected `\"`; correct it there",
        ]
    );
}

/// An example that uses every documented key. Only tables that are not implemented yet are refused, by name.
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
                    "what": "there is no key, so no client could call; add [[auth.keys]], or remove [auth] to be open on \
                             this machine",
                },
            ],
        })
    );
}

#[test]
fn a_configuration_in_another_encoding_says_which_and_how_to_save_it() {
    let folder = Folder::new();
    let utf16: Vec<u8> = "[server]\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &utf16].concat();
    for (bytes, what) in [
        (&marked[..], "is a text in UTF-16, not in UTF-8"),
        (&utf16, "has NUL bytes, so it is no text, or one in UTF-16"),
        (b"# caf\xe9\n", "is not a text in UTF-8"),
    ] {
        std::fs::write(folder.path().join("holdpoint.toml"), bytes).expect("the file is written");
        let said = folder.run(&["check"]);
        let expected = format!(
            "CONFIGURATION_UNREADABLE: holdpoint.toml {what}\n  next: Save the file again as UTF-8, and run holdpoint \
             check.\n"
        );
        assert_eq!((said.code, said.err), (Some(2), expected));
    }
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
