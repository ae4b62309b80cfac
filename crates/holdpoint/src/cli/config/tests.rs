//! Runs agents from a file: what the file says about a call is what happens to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::feed::FeedItem;
use engine::posting::Message;
use engine::quota::Quotas;
use engine::store::Tenant;
use engine::{Engine, RunOutcome};
use machine::event::{CallErrorCode, Fact};
use machine::suspension::SuspensionKind;
use machine::termination::{StopCode, Termination};
use stores::memory::MemoryStore;

use super::Configuration;

const FILE: &str = r#"
[models.demo]
provider = "scripted"
script = "script.json"
[tools.add]
kind = "builtin"
approval = "ask"
[tools.echo]
kind = "builtin"
[tools.boom]
kind = "builtin"
approval = "block"
[tools.pick]
kind = "client"
parameters = { type = "object" }
[tools.ship]
kind = "external"
parameters = { type = "object" }
[agents.clerk]
model = "demo"
tools = ["add", "echo", "boom", "pick", "ship"]
stop = [{ type = "content_match", pattern = "(?i)all done" }, { type = "max_rounds", rounds = 3 }]
[[agents.clerk.rules]]
tool = "add"
when = { a = { lte = 100 } }
then = "allow"
[[agents.clerk.rules]]
tool = "echo"
when = { "text.to" = { matches = "^mallory" } }
then = "deny"
"#;

struct ConfigFolder(PathBuf);

impl ConfigFolder {
    fn with(file: &str, replies: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holdpoint-config-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let script = format!(r#"{{"rules": [{{"when": ".*", "replies": [{replies}]}}]}}"#);
        std::fs::write(folder.join("script.json"), script).expect("the script is written");
        std::fs::write(folder.join("holdpoint.toml"), file).expect("the file is written");
        Self(folder)
    }
}

impl Drop for ConfigFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(folder: &Path) -> Configuration {
    Configuration::load(&folder.join("holdpoint.toml")).unwrap_or_else(|problem| panic!("{problem:?}"))
}

/// Runs the clerk with these model replies until the run ends or a call is held, and returns what happened.
async fn run_clerk(file: &str, replies: &str) -> (RunOutcome, Vec<Fact>) {
    let folder = ConfigFolder::with(file, replies);
    let mut builder = Engine::on(MemoryStore::new());
    for agent in load(&folder.0).agents {
        builder = builder.agent(agent);
    }
    let engine = builder.start().await.expect("what was judged to be right starts");
    let finished = engine.run(Message::to("clerk", "Hello")).await.expect("the run ends or is held");
    let mut feed = engine.subscribe(&Tenant::default(), &finished.run, 0);
    let mut log = Vec::new();
    while let Some(item) = feed.next().await {
        let FeedItem::Event(committed) = item.expect("the log is read") else { continue };
        log.push(committed.event.fact.clone());
        if committed.event.seq == finished.last_seq {
            break;
        }
    }
    (finished.outcome, log)
}

fn call(tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"tool_calls": [{{"id": "c", "name": "{tool}", "arguments": {arguments}}}]}}, {{"text": "Bye."}}"#
    )
}

fn failure(log: &[Fact]) -> Option<CallErrorCode> {
    log.iter().find_map(|fact| {
        let Fact::ExecutionFailed { error, .. } = fact else { return None };
        Some(error.code)
    })
}

fn held_as(pass: &RunOutcome) -> Vec<SuspensionKind> {
    match pass {
        RunOutcome::Suspended(pending) => pending.iter().map(|pending| pending.kind).collect(),
        RunOutcome::Ended(_) => Vec::new(),
    }
}

#[tokio::test]
async fn approval_of_the_file_holds_a_tool_that_would_not_be_held() {
    let (pass, _) = run_clerk(FILE, &call("add", r#"{"a": 101, "b": 1}"#)).await;
    assert_eq!(held_as(&pass), [SuspensionKind::Approval]);
}

#[tokio::test]
async fn a_rule_that_matches_lets_a_call_through_and_the_tool_runs() {
    let (pass, log) = run_clerk(FILE, &call("add", r#"{"a": 100, "b": 1}"#)).await;
    assert_eq!(pass, RunOutcome::Ended(Termination::NaturalEnd));
    let result = log.iter().find_map(|fact| {
        let Fact::ExecutionSucceeded { result, .. } = fact else { return None };
        Some(result.to_string())
    });
    assert_eq!(result.as_deref(), Some("101"));
}

#[tokio::test]
async fn a_pattern_below_a_dotted_path_denies() {
    let (_, log) = run_clerk(FILE, &call("echo", r#"{"text": {"to": "mallory@example.org"}}"#)).await;
    assert_eq!(failure(&log), Some(CallErrorCode::DeniedByRule));
    let (pass, log) = run_clerk(FILE, &call("echo", r#"{"text": {"to": "ann@example.org"}}"#)).await;
    assert_eq!((pass, failure(&log)), (RunOutcome::Ended(Termination::NaturalEnd), None));
}

#[tokio::test]
async fn a_blocked_tool_fails_and_the_policy_may_end_the_run() {
    let (pass, log) = run_clerk(FILE, &call("boom", "{}")).await;
    assert_eq!(failure(&log), Some(CallErrorCode::BlockedByPolicy));
    assert_eq!(pass, RunOutcome::Ended(Termination::NaturalEnd));
    let strict = format!("{FILE}[agents.clerk.policy]\non_block = \"end_run\"\n");
    let (pass, _) = run_clerk(&strict, &call("boom", "{}")).await;
    assert_eq!(pass, RunOutcome::Ended(Termination::blocked("blocked by policy")));
}

#[tokio::test]
async fn client_and_external_tools_wait_for_their_result() {
    for (tool, kind) in [("pick", SuspensionKind::ClientTool), ("ship", SuspensionKind::External)] {
        let (pass, _) = run_clerk(FILE, &call(tool, "{}")).await;
        assert_eq!(held_as(&pass), [kind]);
    }
}

#[tokio::test]
async fn stop_conditions_end_the_run() {
    let code = |pass: RunOutcome| match pass {
        RunOutcome::Ended(Termination::Stopped(stopped)) => Some(stopped.code),
        RunOutcome::Ended(_) | RunOutcome::Suspended(_) => None,
    };
    let (pass, _) = run_clerk(FILE, r#"{"text": "It is All Done now."}"#).await;
    assert_eq!(code(pass), Some(StopCode::ContentMatch));
    let again = r#"{"tool_calls": [{"name": "echo", "arguments": {"text": "a"}}]}"#;
    let (pass, _) = run_clerk(FILE, again).await;
    assert_eq!(code(pass), Some(StopCode::MaxRounds));
}

#[test]
fn an_agent_is_known_by_its_name_and_pinned_to_the_name_of_its_model() {
    let folder = ConfigFolder::with(FILE, r#"{"text": "Hello."}"#);
    let agents = load(&folder.0).agents;
    let names: Vec<(&str, &str)> =
        agents.iter().map(|agent| (agent.name.as_str(), agent.model_name.as_str())).collect();
    assert_eq!(names, [("clerk", "demo")]);
}

#[test]
fn slots_are_shared_when_keys_are_for_several_tenants() {
    let key = |name: &str, tenant: &str, digit: char| {
        let sha256 = digit.to_string().repeat(64);
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\ntenant = \"{tenant}\"\nroles = [\"run\"]\n"
        )
    };
    let shares = |keys: &str| {
        load(&ConfigFolder::with(&format!("{FILE}{keys}"), r#"{"text": "Done."}"#).0).has_several_tenants()
    };
    assert!(!shares(""));
    assert!(!shares(&(key("ann", "acme", '1') + &key("bob", "acme", '2'))));
    assert!(shares(&(key("ann", "acme", '1') + &key("bob", "zoo", '2'))));
}

#[test]
fn quotas_are_off_unless_the_file_sets_them() {
    let quotas =
        |limits: &str| load(&ConfigFolder::with(&format!("{FILE}{limits}"), r#"{"text": "Done."}"#).0).quotas;
    assert_eq!(quotas(""), Quotas::default());
    assert_eq!(
        quotas("[limits]\nmax_threads = 1000\n"),
        Quotas { threads_max: Some(1_000), pending_approvals_max: None }
    );
    assert_eq!(
        quotas("[limits]\nmax_pending_approvals = 7\n"),
        Quotas { threads_max: None, pending_approvals_max: Some(7) }
    );
}

#[test]
fn limits_of_the_policy_are_read() {
    let policy = |policy: &str| {
        load(&ConfigFolder::with(&format!("{FILE}{policy}"), r#"{"text": "Done."}"#).0)
            .agents
            .first()
            .map(|agent| agent.policy)
    };
    let defaults = policy("").expect("an agent");
    assert_eq!((defaults.max_result_chars, defaults.descendants_max), (100_000, 100));
    let set =
        policy("[agents.clerk.policy]\nmax_result_chars = 500\ndescendants_max = 0\n").expect("an agent");
    assert_eq!((set.max_result_chars, set.descendants_max), (500, 0));
}
