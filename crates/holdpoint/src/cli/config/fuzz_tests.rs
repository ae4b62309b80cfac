//! Reads arbitrary texts as a configuration. Each is accepted, or refused with a line, a key and a next step; none
//! panics.

#[path = "../../../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "files need little of what runs need")]
pub(super) mod chance;
#[path = "../../../../machine/tests/fuzz/mutation.rs"]
mod mutation;

use std::env;

use super::read;
use super::source::Source;
use chance::Chance;
use mutation::mutated;

const CASE_COUNT: u64 = 8_000;

const CORPUS: [&str; 4] = [
    r#"[server]
listen = "127.0.0.1:8787"
max_running_runs = 256
public_url = "http://127.0.0.1:8787"
drain = "30s"

[store]
url = "sqlite:holdpoint.db"
"#,
    r#"[models.demo]
provider = "scripted"
script = "script.json"

[tools.pick]
kind = "client"
description = "Let the user pick a file"
parameters = { type = "object", required = ["to"], properties = { to = { type = "string" } } }
expires = "24h"
on_expiry = "deny"

[tools.write_file]
kind = "builtin"
folder = "written"
approval = "ask"

[agents.clerk]
model = "demo"
instructions = "You are a careful assistant."
tools = ["pick", "write_file"]
stop = [ { type = "max_rounds", rounds = 25 }, { type = "timeout", seconds = 300 }, { type = "content_match", pattern = "(?i)all done" } ]
[[agents.clerk.rules]]
tool = "pick"
when = { amount = { lte = 100 }, "to.name" = { matches = "^[a-z]+$" } }
then = "allow"
[agents.clerk.policy]
execution = "parallel"
on_reject = "continue"
"#,
    r#"[auth]
[[auth.keys]]
name = "ops-laptop"
sha256 = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb"
tenant = "acme"
roles = ["run", "approve", "admin"]
"#,
    "",
];

const PIECES: [&str; 30] = [
    "\"\"",
    "-1",
    "0",
    "18446744073709551616",
    "9223372036854775807",
    "1e400",
    "nan",
    "true",
    "[]",
    "{}",
    "[[",
    "]]",
    "\"99999999999999999999d\"",
    "\"18446744073709551615ms\"",
    "\"1 MiB\"",
    "\"(\"",
    "\"(a{1000}){1000}\"",
    "\"\\u0000\"",
    "\"sqlite:\"",
    "\"postgres://\"",
    "\"memory:\"",
    "\"[::1]:0\"",
    "[agents.clerk]\n",
    "[tools.\"\"]\nkind = \"builtin\"\n",
    "\n[mcp.files]\ncommand = \"x\"\n",
    "parameters = \"{\"\n",
    "parameters = { file = \"/nowhere\" }\n",
    "= ",
    "\n",
    "\u{feff}",
];

#[test]
fn arbitrary_files_are_taken_or_refused() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    // `FUZZ_SEED=n` replays one file, `FUZZ_RUNS=n` tries n files.
    let seeds = match number("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FUZZ_RUNS").unwrap_or(CASE_COUNT),
    };
    let folder = env::temp_dir().join(format!("holdpoint-config-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let script = r#"{"rules": [{"when": ".*", "replies": [{"text": "Done."}]}]}"#;
    std::fs::write(folder.join("script.json"), script).expect("the script is written");
    let before = names(&folder);
    let corpus = CORPUS.map(str::as_bytes);
    let (mut taken, mut refused) = (0_u64, 0_u64);
    for seed in seeds.clone() {
        let bytes = mutated(&mut Chance::from_seed(seed), &corpus, &PIECES);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let line_count = text.lines().count().max(1);
        let source = Source::from_text(&folder, text);
        match read(&source) {
            Ok(_) => taken += 1,
            Err(misconfigured) => {
                refused += 1;
                assert!(!misconfigured.faults.is_empty(), "seed {seed}");
                for fault in &misconfigured.faults {
                    assert!((1..=line_count + 1).contains(&fault.line), "seed {seed}: {fault:?}");
                    assert!(!fault.what.is_empty() && !fault.what.contains('\n'), "seed {seed}: {fault:?}");
                }
            }
        }
    }
    assert_eq!(names(&folder), before, "reading a configuration makes nothing");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    // A short run is too small for these counts.
    if seeds.end - seeds.start >= CASE_COUNT {
        assert!(taken > 500 && refused > 500, "{taken} taken, {refused} refused");
    }
}

fn names(folder: &std::path::Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    entries.map(|entry| entry.expect("the entry can be read").file_name()).collect()
}
