//! A client of AG-UI that reads a run in segments. However the run is cut, it ends up with the conversation of the log.

use std::collections::{BTreeMap, BTreeSet};

use protocols::ag_ui::{AgUiDialect, AgUiRequest, AgUiSegment};
use protocols::feed::Item;
use serde_json::{Value, json};

use crate::client::Client;
use crate::feed_story::{Stream, version};
use crate::world::{Dice, Held, World, text_so_far};

/// A client, the server's connections to it, and the feed of one world.
pub(crate) struct Reader<'w> {
    world: &'w World,
    dialect: AgUiDialect,
    dice: Dice,
    /// How many in a hundred segments break off.
    cuts: usize,
    client: Client,
    /// Items before this index are in the past.
    at: usize,
    pub(crate) segments: usize,
    pub(crate) ends: Vec<String>,
}

impl<'w> Reader<'w> {
    pub(crate) fn new(world: &'w World, dialect: AgUiDialect, dice: Dice, cuts: usize) -> Self {
        let (id, text, _) = world.messages.first().expect("the user's message begins the run");
        let client = Client::with_user_message(id, text.as_deref().unwrap_or_default());
        Self { world, dialect, dice, cuts, client, at: 0, segments: 0, ends: Vec::new() }
    }

    pub(crate) fn read_to_the_end(&mut self) {
        loop {
            if self.read_segment() {
                return;
            }
            assert!(self.segments < 1_000, "no end after {} segments", self.segments);
        }
    }

    /// One connection. Returns true if it was open until the run was over.
    fn read_segment(&mut self) -> bool {
        self.segments += 1;
        let (items, from) = (&self.world.items, self.at);
        let mut stream = Stream::open(self.segment());
        for item in items[..from].iter().filter(|item| item.seq.is_some()) {
            stream.push(item);
        }
        if from > 0 && self.dice.chance(50) {
            text_so_far(&items[..from]).into_iter().for_each(|item| stream.push(&item));
        }
        let left = items.len() - from;
        let cut = (left > 0 && self.dice.chance(self.cuts)).then(|| from + self.dice.below(left));
        let mut next = from;
        while next < items.len() && !stream.encoder.is_done() && Some(next) != cut {
            stream.push(&items[next]);
            next += 1;
        }
        self.client.apply_all(&stream.events);
        let is_done = stream.encoder.is_done();
        let is_stuck = is_done && next == from;
        self.at = next;
        if is_done {
            stream.assert_done();
            self.check_end(stream.last());
        } else {
            self.ends.push("cut".into());
        }
        let is_over = is_done && self.at == self.world.items.len();
        if is_stuck && !is_over {
            self.continue_elsewhere();
        }
        is_over
    }

    /// The request of the client, with answers to some of what is held.
    fn segment(&mut self) -> AgUiSegment {
        let mut decided = BTreeSet::new();
        for (id, (kind, call_id)) in self.held() {
            let is_answered = self.world.answers.get(&id).is_some_and(|at| *at >= self.at);
            if !is_answered || !self.dice.chance(60) {
                continue;
            }
            if kind == Held::ClientTool {
                self.run_tool(&call_id);
            }
            decided.insert(id);
        }
        let mut input = self.client.input(&format!("r{}", self.segments), version(self.dialect));
        input["tools"] = json!([{"name": "pick_file", "description": "", "parameters": {"type": "object"}}]);
        let request = AgUiRequest::parse(&input).unwrap();
        let past = &self.world.items[..self.at];
        let new_after = past.iter().filter_map(|item| item.seq).max().unwrap_or(0);
        AgUiSegment { new_after, decided, ..AgUiSegment::for_request(&request) }
    }

    fn held(&self) -> BTreeMap<String, (Held, String)> {
        self.at.checked_sub(1).map(|last| self.world.held[last].clone()).unwrap_or_default()
    }

    /// The front end runs its tool. What it returns is what the log has, or nearly.
    fn run_tool(&mut self, call_id: &str) {
        self.client.messages.retain(|message| message["toolCallId"] != call_id);
        let content =
            if self.dice.chance(80) { self.world.results[call_id].clone() } else { "something".to_owned() };
        let id = format!("client_{call_id}_{}", self.segments);
        self.client
            .messages
            .push(json!({"id": id, "role": "tool", "toolCallId": call_id, "content": content}));
    }

    /// Nothing is left for the client to do, or it does nothing: the run continues without it.
    fn continue_elsewhere(&mut self) {
        let left = self.world.items.len() - self.at;
        if left > 0 {
            self.at += 1 + self.dice.below(left);
        }
    }

    /// A segment ends where the client has to act, and says what it has to do.
    fn check_end(&mut self, terminal: &Value) {
        let of_kind = |answerable: bool| -> Vec<String> {
            let held = self.held().into_iter().filter(|(_, (kind, _))| match kind {
                Held::Approval | Held::Question | Held::InDoubt => answerable,
                Held::ClientTool => !answerable,
                Held::External | Held::Child => false,
            });
            held.map(|(id, (_, call_id))| if answerable { id } else { call_id }).collect()
        };
        let listed = |value: &Value, name: &str| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            let mut ids: Vec<_> =
                items.map(|item| item.get(name).unwrap_or(item).as_str().unwrap().to_owned()).collect();
            ids.sort();
            ids
        };
        let outcome = &terminal["outcome"];
        let (asked, mut pending) = (of_kind(true), of_kind(false));
        pending.sort();
        let is_over = self.world.items[self.at - 1].seq == self.world.items.last().unwrap().seq;
        if is_over {
            let end = outcome["type"].as_str().unwrap_or_else(|| terminal["type"].as_str().unwrap());
            self.ends.push(end.to_owned());
            return;
        }
        assert_eq!(terminal["type"], "RUN_FINISHED");
        assert_eq!(listed(&outcome["interrupts"], "id"), sorted(&asked), "{terminal:#}");
        if asked.is_empty() {
            assert!(!pending.is_empty(), "the segment ended and the client has nothing to do: {terminal:#}");
            if self.dialect == AgUiDialect::V1_0 {
                assert_eq!(listed(&outcome["pendingToolCallIds"], ""), pending);
            }
            self.ends.push("pending".into());
        } else {
            self.ends.push("interrupt".into());
        }
    }

    pub(crate) fn assert_conversation(&self, seed: u64) {
        let context =
            || format!("seed {seed}, {:?}, {} cuts\n{:#?}", self.dialect, self.cuts, self.client.messages);
        let (mut messages, mut results) = (Vec::new(), BTreeMap::new());
        for message in self.client.conversation() {
            let id = message["id"].as_str().unwrap().to_owned();
            let content = message["content"].as_str().map(str::to_owned);
            if message["role"] == "tool" {
                let call_id = message["toolCallId"].as_str().unwrap().to_owned();
                assert_eq!(results.insert(call_id, content.unwrap()), None, "{}", context());
                continue;
            }
            let calls = message["toolCalls"].as_array().into_iter().flatten();
            let calls: Vec<_> = calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
            messages.push((id, content, sorted(&calls)));
        }
        let expected: Vec<_> = self
            .world
            .messages
            .iter()
            .map(|(id, text, calls)| (id.clone(), text.clone(), sorted(calls)))
            .collect();
        assert_eq!(messages, expected, "{}", context());
        assert_eq!(results, self.world.results, "{}", context());
        self.assert_calls_are_whole();
        self.assert_reasoning(seed);
        let state: Value = last_state(&self.world.items);
        assert_eq!(self.client.state, state, "{}", context());
    }

    fn assert_calls_are_whole(&self) {
        let calls =
            self.client.messages.iter().filter_map(|message| message["toolCalls"].as_array()).flatten();
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).is_ok(), "streamed twice: {arguments}");
        }
    }

    /// Reasoning that the log keeps is there once and whole.
    fn assert_reasoning(&self, seed: u64) {
        for item in &self.world.items {
            if let protocols::feed::Body::AssistantMessage { id, reasoning: Some(kept), .. } = &item.body {
                let id = format!("{id}_reasoning");
                let shown: Vec<_> =
                    self.client.messages.iter().filter(|message| message["id"] == id).collect();
                assert_eq!(shown.len(), 1, "seed {seed}");
                assert_eq!(shown[0]["content"], *kept, "seed {seed}, {} cuts", self.cuts);
            }
        }
    }
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

fn last_state(items: &[Item]) -> Value {
    let mut state = json!({});
    for item in items {
        if let protocols::feed::Body::StateChanged { patch } = &item.body {
            let path = patch[0]["path"].as_str().unwrap();
            state[&path[1..]] = patch[0]["value"].clone();
        }
    }
    state
}
