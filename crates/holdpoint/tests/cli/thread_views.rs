//! Clients that know a thread only from its stream. Each builds the same list of messages that the server has, although
//! connections break, the server is killed, or another node runs the thread.

use serde_json::{Value, json};

use crate::follower::EventStream;
use crate::postgres_server;
use crate::server::Server;
use crate::streams_over_kills::chance::Chance;
use crate::streams_over_kills::{End, World, folder};

const THREADS: usize = 4;
const KILLS: u64 = 5;
/// Messages per thread: this many before the first kill, and one after each kill.
const MESSAGES_AT_FIRST: u64 = 2;
const MESSAGES: u64 = MESSAGES_AT_FIRST + KILLS;
/// Stored events that all clients together receive between two kills.
const EVENTS_BETWEEN_KILLS: std::ops::Range<u64> = 20..150;
const TERMINAL: [&str; 3] = ["run.completed", "run.failed", "run.interrupted"];

#[test]
fn a_view_built_from_the_stream_of_a_thread_is_its_list_of_messages_over_kills() {
    let folder = folder();
    let world = World::default();
    let mut chance = Chance::from_seed(7);
    let threads: Vec<String> = (0..THREADS).map(|number| format!("thread-{number}")).collect();
    let views = std::thread::scope(|scope| {
        let _end = End { world: &world, always: true };
        let mut server = Server::start(folder.path(), &["serve"]);
        for thread in &threads {
            assert_eq!(server.post("/v1/threads", &json!({"id": thread})).0, 201);
        }
        world.server_started(server.address(), false);
        let clients: Vec<_> = threads
            .iter()
            .zip(0..)
            .map(|(thread, seed)| {
                let world = &world;
                scope.spawn(move || follow(world, thread, MESSAGES, &mut Chance::from_seed(seed)))
            })
            .collect();
        let mut received = 0;
        for kill in 0..=KILLS {
            for _ in 0..if kill == 0 { MESSAGES_AT_FIRST } else { 1 } {
                // One of them takes the place of every run before it.
                let on_busy = if kill == 3 { "interrupt" } else { "enqueue" };
                threads.iter().for_each(|thread| post(&server, thread, on_busy));
            }
            if kill < KILLS {
                let range = EVENTS_BETWEEN_KILLS;
                received += range.start + chance.below(range.end - range.start);
                world.wait_until(|state| state.event_count >= received);
                world.server_lost();
                server.kill();
                server = Server::start(folder.path(), &["serve"]);
                world.server_started(server.address(), kill + 1 == KILLS);
            }
        }
        let views: Vec<ThreadView> = clients
            .into_iter()
            .map(|client| client.join().expect("a client received wrong events"))
            .collect();
        views.iter().for_each(|view| view.judge(&server));
        views
    });
    // A restarted server replays the events that the clients received live.
    let server = Server::start(folder.path(), &["serve"]);
    for view in &views {
        let mut replay = ThreadView::new(&view.thread);
        while replay.ended < MESSAGES {
            replay.connect(server.address(), u64::MAX, MESSAGES, || ());
        }
        assert_eq!(replay.events, view.events, "live and replayed, one order");
    }
    let count =
        |kind: &str| views.iter().flat_map(|view| &view.events).filter(|one| one["type"] == kind).count();
    let (connections, torn) =
        views.iter().fold((0, 0), |sum, view| (sum.0 + view.connections, sum.1 + view.torn));
    println!("{connections} connections, {torn} torn");
    assert!(connections > THREADS as u64 * KILLS && torn > 0, "{connections} {torn}");
    assert!(count("run.recovered") > 0 && count("run.interrupted") > 0, "the test proves nothing otherwise");
}

#[test]
fn a_view_built_on_one_node_has_what_another_node_runs() {
    let (database, folder) = (postgres_server::Server::start(), folder());
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let nodes = [0, 1].map(|_| Server::start(folder.path(), &["serve", "--store", &url]));
    let world = World::default();
    let view = std::thread::scope(|scope| {
        let _end = End { world: &world, always: true };
        assert_eq!(nodes[0].post("/v1/threads", &json!({"id": "t"})).0, 201);
        world.server_started(nodes[1].address(), true);
        let client = scope.spawn(|| follow(&world, "t", 6, &mut Chance::from_seed(1)));
        for number in 0..6 {
            post(&nodes[number % 2], "t", "enqueue");
        }
        client.join().expect("the client received wrong events")
    });
    view.judge(&nodes[0]);
    view.judge(&nodes[1]);
    // A request waits for a run of the other node.
    let (code, posted) =
        nodes[0].post("/v1/threads/t/messages", &json!({"agent": "clerk", "text": "Count."}));
    assert_eq!(code, 202, "{posted}");
    let run = posted["run_id"].as_str().expect("an id");
    let (code, ended) = nodes[1].get(&format!("/v1/runs/{run}?wait=60s"));
    assert_eq!((code, &ended["status"]), (200, &json!("completed")), "{ended}");
}

#[test]
fn a_view_built_on_one_node_survives_the_kills_of_another() {
    let (database, folder) = (postgres_server::Server::start(), folder());
    let url = format!("postgres://holdpoint@localhost:{}/postgres", database.port);
    let serve = || Server::start(folder.path(), &["serve", "--store", &url]);
    let (node, world) = (serve(), World::default());
    let (view, other) = std::thread::scope(|scope| {
        let mut other = serve();
        let _end = End { world: &world, always: true };
        assert_eq!(node.post("/v1/threads", &json!({"id": "t"})).0, 201);
        world.server_started(node.address(), true);
        let client = scope.spawn(|| follow(&world, "t", 4, &mut Chance::from_seed(3)));
        for received in [20, 100] {
            // The node that takes the message begins with its run, unless an earlier one is not over.
            post(&other, "t", "enqueue");
            post(&other, "t", "enqueue");
            world.wait_until(|state| state.event_count >= received);
            other.kill();
            other = serve();
        }
        (client.join().expect("the client received wrong events"), other)
    });
    view.judge(&node);
    view.judge(&other);
}

fn post(server: &Server, thread: &str, on_busy: &str) {
    let body = json!({"agent": "clerk", "text": "Count.", "on_busy": on_busy});
    let (code, posted) = server.post(&format!("/v1/threads/{thread}/messages"), &body);
    assert_eq!(code, 202, "{posted}");
}

/// Follows a thread until this many runs have ended, over connections that this client drops or that a kill breaks.
fn follow(world: &World, thread: &str, runs: u64, chance: &mut Chance) -> ThreadView {
    let _end = End { world, always: false };
    let mut view = ThreadView::new(thread);
    while view.ended < runs {
        let bytes_max = match chance.below(4) {
            0 => u64::MAX,
            1 => chance.below(500),
            _ => 500 + chance.below(20_000),
        };
        view.connect(&world.address(), bytes_max, runs, || world.count_event());
    }
    view
}

/// What one client knows about a thread, over all of its connections.
struct ThreadView {
    thread: String,
    events: Vec<Value>,
    messages: Vec<Value>,
    ended: u64,
    last_id: Option<String>,
    connections: u64,
    /// Connections that ended in the middle of a frame.
    torn: u64,
}

impl ThreadView {
    fn new(thread: &str) -> Self {
        Self {
            thread: thread.to_owned(),
            events: Vec::new(),
            messages: Vec::new(),
            ended: 0,
            last_id: None,
            connections: 0,
            torn: 0,
        }
    }

    /// Reads one connection until it ends or `runs` runs have ended.
    fn connect(&mut self, address: &str, bytes_max: u64, runs: u64, mut on_event: impl FnMut()) {
        let headers = self.last_id.as_ref().map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let path = format!("/v1/threads/{}/events", self.thread);
        let Ok(mut stream) = EventStream::request(address, &path, &headers, bytes_max) else { return };
        assert_eq!(stream.status, 200, "{path}");
        self.connections += 1;
        while self.ended < runs {
            let Some(block) = stream.next_block() else {
                self.torn += u64::from(stream.is_torn());
                return;
            };
            if !block.starts_with(':') {
                self.process_block(&block, &mut on_event);
            }
        }
    }

    fn process_block(&mut self, block: &str, on_event: &mut impl FnMut()) {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ").unwrap_or_else(|| panic!("a frame without data: {block}"));
        let event: Value = serde_json::from_str(data).expect("the data is JSON");
        let Some(id) = field("id: ") else {
            assert!(event.get("seq").is_none(), "{block}");
            return;
        };
        let (run, seq) = (event["run_id"].as_str().expect("a run"), event["seq"].as_u64().expect("a number"));
        assert_eq!(id, format!("{run}:{seq}"));
        match self.events.last() {
            Some(last) if last["run_id"] == run => {
                assert_eq!(last["seq"], seq - 1, "a gap or a repeat: {block}");
            }
            Some(last) => {
                assert!(is_terminal(last), "a run begins before the end of the one in front: {block}");
                assert_eq!(seq, 1, "{block}");
            }
            None => assert_eq!(seq, 1, "{block}"),
        }
        self.ended += u64::from(is_terminal(&event));
        self.last_id = Some(id.to_owned());
        if event["type"] == "message.added" {
            self.messages.push(event["payload"]["message"].clone());
        }
        self.events.push(event);
        on_event();
    }

    /// The list of messages is this view, in both orders.
    fn judge(&self, server: &Server) {
        let listed = |order: &str| {
            let (mut messages, mut cursor) = (Vec::new(), String::new());
            loop {
                let path = format!("/v1/threads/{}/messages?order={order}&limit=7{cursor}", self.thread);
                let (code, page) = server.get(&path);
                assert_eq!(code, 200, "{page}");
                messages.extend(page["messages"].as_array().expect("a list").iter().cloned());
                match page["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => return messages,
                }
            }
        };
        assert_eq!(self.messages, listed("asc"), "{}", self.thread);
        let mut newest = listed("desc");
        newest.reverse();
        assert_eq!(self.messages, newest, "{}", self.thread);
    }
}

fn is_terminal(event: &Value) -> bool {
    TERMINAL.iter().any(|kind| event["type"] == *kind)
}
