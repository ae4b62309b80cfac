//! Two hundred clients follow runs, while clients drop their connections and the server is killed again and again. Each
//! client ends up with the log, byte for byte.

#[path = "../../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "clients need little of what runs need")]
pub(crate) mod chance;

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::follower::{ConnectionEnd, EventStream, Follower, FollowerStats};
use crate::program::Folder;
use crate::server::{Server, open_bearer, try_call, write};
use chance::Chance;

const KILLS: u64 = 6;
const FOLLOWERS_PER_RUN: u64 = 5;
const RUNS_AT_FIRST: u64 = 16;
/// Runs that are posted to each process after the first.
const RUNS_LATER: u64 = 4;
const FOLLOWERS: u64 = FOLLOWERS_PER_RUN * (RUNS_AT_FIRST + KILLS * RUNS_LATER);
/// Stored events that all clients together receive between two kills.
const EVENTS_BETWEEN_KILLS: std::ops::Range<u64> = 500..1_500;
/// Longer than the whole test takes.
const STUCK_AFTER: Duration = Duration::from_secs(200);

#[test]
fn d32_d35_a_client_that_reconnects_has_the_whole_log() {
    assert_eq!(FOLLOWERS, 200);
    let folder = folder();
    let world = World::default();
    let mut chance = Chance::from_seed(1);
    let followers = std::thread::scope(|scope| {
        // Dropped after the server, whose end closes the approver's stream.
        let _end = End { world: &world, always: true };
        let mut server = Server::start(folder.path(), &["serve"]);
        world.server_started(server.address(), KILLS == 0);
        scope.spawn(|| answer_approvals(&world));
        let mut clients = Vec::new();
        let mut follow = |server: &Server, count: u64| {
            for _ in 0..count {
                let run = server
                    .begin("clerk", MESSAGES[clients.len() / FOLLOWERS_PER_RUN as usize % MESSAGES.len()]);
                for _ in 0..FOLLOWERS_PER_RUN {
                    let (run, world, seed) = (run.clone(), &world, clients.len() as u64);
                    clients.push(scope.spawn(move || follow(world, &run, &mut Chance::from_seed(seed))));
                }
            }
        };
        follow(&server, RUNS_AT_FIRST);
        let mut heard = 0;
        for kill in 1..=KILLS {
            heard += EVENTS_BETWEEN_KILLS.start
                + chance.below(EVENTS_BETWEEN_KILLS.end - EVENTS_BETWEEN_KILLS.start);
            world.wait_until(|state| state.event_count >= heard);
            world.server_lost();
            server.kill();
            server = Server::start(folder.path(), &["serve"]);
            world.server_started(server.address(), kill == KILLS);
            follow(&server, RUNS_LATER);
        }
        let followers: Vec<Follower> = clients
            .into_iter()
            .map(|client| client.join().expect("a client received wrong events"))
            .collect();
        judge(&server, &followers);
        followers
    });
    // A restarted server has the same events that the clients received.
    judge(&Server::start(folder.path(), &["serve"]), &followers);
    judge_what_happened(&followers);
}

/// Every client received exactly the stored events.
fn judge(server: &Server, followers: &[Follower]) {
    let mut logs = BTreeMap::new();
    for follower in followers {
        let log = logs.entry(&follower.run).or_insert_with(|| log(server, &follower.run));
        assert_eq!(follower.events.len(), log.len(), "{}", follower.run);
        for (told, stored) in follower.events.iter().zip(log.iter()) {
            assert!(
                told == stored,
                "received {}, but stored is {}",
                String::from_utf8_lossy(told),
                String::from_utf8_lossy(stored)
            );
        }
    }
    assert_eq!(logs.len() as u64, RUNS_AT_FIRST + KILLS * RUNS_LATER);
}

/// The test proves nothing unless connections were dropped and runs were recovered, approved and suspended.
fn judge_what_happened(followers: &[Follower]) {
    let mut all = FollowerStats::default();
    for follower in followers {
        all.connections += follower.seen.connections;
        all.torn += follower.seen.torn;
        all.deltas += follower.seen.deltas;
        all.compared += follower.seen.compared;
    }
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for event in followers.iter().step_by(FOLLOWERS_PER_RUN as usize).flat_map(|follower| &follower.events) {
        let event: Value = serde_json::from_slice(event).expect("an event is JSON");
        *kinds.entry(event["type"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    println!("{all:?} {kinds:?}");
    assert!(all.connections > 5 * FOLLOWERS && all.torn > FOLLOWERS, "{all:?}");
    assert!(all.deltas > 10 * FOLLOWERS && all.compared > FOLLOWERS, "{all:?}");
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    assert!(count("run.recovered") > RUNS_AT_FIRST, "{kinds:?}");
    assert!(count("tool.approved") > RUNS_AT_FIRST && count("tool.suspended") > 0, "{kinds:?}");
    assert_eq!(count("run.completed"), RUNS_AT_FIRST + KILLS * RUNS_LATER, "{kinds:?}");
}

/// Follows a run to its end over connections that this client drops after a number of bytes, or that a kill breaks.
fn follow(world: &World, run: &str, chance: &mut Chance) -> Follower {
    let _end = End { world, always: false };
    let mut follower = Follower::new(run);
    // Some clients connect only when the run is well under way.
    let begins_at = if chance.one_in(2) { 0 } else { chance.below(EVENTS_BETWEEN_KILLS.start) };
    world.wait_until(|state| state.event_count >= begins_at);
    loop {
        let address = world.address();
        // Some connections end within the response head, most after a few events, and some are never dropped.
        let bytes_max = match chance.below(8) {
            0 => chance.below(400),
            1 => u64::MAX,
            _ => 400 + chance.below(8_000),
        };
        if follower.connect(&address, bytes_max, || world.count_event()) == ConnectionEnd::Ended {
            return follower;
        }
    }
}

/// The approver: answers every pending approval that the approvals stream reports.
fn answer_approvals(world: &World) {
    let _end = End { world, always: false };
    while let Some(address) = world.next_address() {
        let Ok(mut stream) = EventStream::request(&address, "/v1/approvals/stream", "", u64::MAX) else {
            continue;
        };
        assert_eq!(stream.status, 200, "the stream of approvals");
        while let Some(block) = stream.next_block() {
            let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
            let approval: Value = serde_json::from_str(data).expect("an approval is JSON");
            // Some have to wait for the last process, which is not killed.
            let patient = approval["arguments"]["path"].as_str().is_some_and(|path| path.starts_with("late"));
            if approval["status"] != "pending" || (patient && !world.is_last()) {
                continue;
            }
            let id = approval["id"].as_str().expect("an approval has an id");
            let (action, body) = match approval["kind"].as_str() {
                Some("approval") => ("approve", json!({})),
                Some("question") => ("answer", json!({"result": "As you like."})),
                Some("in_doubt") => ("answer", json!({"choice": "retry"})),
                other => panic!("unknown kind of approval: {other:?}"),
            };
            let bearer = open_bearer(&address).expect("a token is kept");
            let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
            let path = format!("/v1/approvals/{id}/{action}");
            // If this request is lost, the next stream lists the approval again.
            if let Ok((code, said)) = try_call(&address, "POST", &path, &headers, &body.to_string()) {
                assert!(
                    code == 200 || said["error"]["code"] == "APPROVAL_NOT_PENDING",
                    "{path}: {code} {said}"
                );
            }
        }
    }
}

/// State shared by the clients, the approver and the thread that kills the server.
#[derive(Default)]
pub(crate) struct World {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// None while no server runs.
    address: Option<String>,
    /// The current process is not killed.
    is_last: bool,
    /// Stored events that clients received; reconnects add no repeats.
    pub(crate) event_count: u64,
    over: bool,
}

impl World {
    pub(crate) fn server_started(&self, address: &str, is_last: bool) {
        self.change(|state| {
            state.address = Some(address.to_owned());
            state.is_last = is_last;
        });
    }

    pub(crate) fn server_lost(&self) {
        self.change(|state| state.address = None);
    }

    pub(crate) fn count_event(&self) {
        self.change(|state| state.event_count += 1);
    }

    fn is_last(&self) -> bool {
        self.state().is_last
    }

    pub(crate) fn address(&self) -> String {
        self.next_address().expect("another thread failed, so the test stops")
    }

    /// None once the test is over.
    fn next_address(&self) -> Option<String> {
        let state = self.wait(|state| state.address.is_some());
        state.address.clone().filter(|_| !state.over)
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        assert!(!self.wait(condition).over, "another thread failed, so the test stops");
    }

    /// Waits until the condition is true, or the test is over.
    fn wait(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let until = Instant::now() + STUCK_AFTER;
        let mut state = self.state();
        while !condition(&state) && !state.over {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no progress; the clients have received {} events", state.event_count);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the test as over when dropped, so that no thread waits for one that has failed.
pub(crate) struct End<'a> {
    pub(crate) world: &'a World,
    pub(crate) always: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.always || std::thread::panicking() {
            self.world.change(|state| state.over = true);
        }
    }
}

/// The stored events of a run, each with exactly the bytes of the response.
fn log(server: &Server, run: &str) -> Vec<Vec<u8>> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/runs/{run}/events?after={after}&limit=50");
        let text = server.text(&path);
        let mut rest = text.strip_prefix("{\"events\":[").unwrap_or_else(|| panic!("{path}: {text}"));
        while !rest.starts_with(']') {
            rest = rest.trim_start_matches(',');
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            values.next().expect("there is an event").expect("an event is JSON");
            let (event, behind) = rest.split_at(values.byte_offset());
            events.push(event.as_bytes().to_vec());
            rest = behind;
        }
        let page: Value = serde_json::from_str(&text).expect("a page is JSON");
        match page["next_after"].as_u64() {
            Some(next) => after = next,
            None => return events,
        }
    }
}

const MESSAGES: [&str; 4] = ["Count.", "Write files.", "Write late.", "Ask me."];

/// The agent streams long texts, so that connections can break within one. It makes calls that survive a kill in
/// different ways: calls that may be retried, calls that may not, and questions.
pub(crate) fn folder() -> Folder {
    let talk = "A long sentence — with 你好, Grüße and \"quotes\"\nover two lines 🎉. ".repeat(3);
    let reply = |calls: Value| json!({"text": talk, "delta_chars": 7, "delay_ms": 4, "tool_calls": calls});
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let add = call("add", json!({"a": 1, "b": 2}));
    let nap = call("sleep", json!({"ms": 60}));
    let file = |path: &str| call("write_file", json!({"path": path, "text": talk}));
    let ask = call("ask_user", json!({"question": "Which one?"}));
    let end = json!({"text": talk, "delta_chars": 7, "delay_ms": 4});
    let counting = reply(json!([add, nap, call("echo", json!({"text": talk}))]));
    let script = json!({"rules": [
        {"when": "Count", "replies": [counting, counting, counting, counting, counting, counting, end]},
        {"when": "files", "replies": [reply(json!([file("a.txt"), add])), counting, reply(json!([file("b.txt"), nap, file("c.txt")])), end]},
        {"when": "late", "replies": [counting, reply(json!([file("late.txt"), add])), counting, end]},
        {"when": ".*", "replies": [reply(json!([ask, nap])), counting, reply(json!([ask])), end]},
    ]});
    let folder = Folder::new();
    write(&folder, "script.json", &script.to_string());
    write(&folder, "holdpoint.toml", CONFIGURATION);
    folder
}

const CONFIGURATION: &str = r#"[server]
listen = "127.0.0.1:0"

[models.script]
provider = "scripted"
script = "script.json"

[tools.write_file]
kind = "builtin"
folder = "written"

[tools.add]
kind = "builtin"

[tools.echo]
kind = "builtin"

[tools.sleep]
kind = "builtin"

[tools.ask_user]
kind = "builtin"

[agents.clerk]
model = "script"
tools = ["write_file", "add", "echo", "sleep", "ask_user"]
"#;
