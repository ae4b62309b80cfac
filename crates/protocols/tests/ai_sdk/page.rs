//! A page of the AI SDK that loses connections, reloads, decides and lets others decide. In the end it shows what an
//! uninterrupted stream shows.

use protocols::ai_sdk::{ChunkEncoder, ChunkVerifier, ToolState, UiMessage, run_messages};
use protocols::feed::{Body, Item};

use crate::chat_client::{Accepted, ChatClient, client_tools, fold, normalized, stream, verify};
use crate::random_story::{Random, Turn};
use crate::run_script::MESSAGE;

/// A run, and the decisions with which it continued.
pub(crate) struct PageRun<'r> {
    pub(crate) items: &'r [Item],
    pub(crate) turns: &'r [Turn],
    /// Whether a stream may be cut off anywhere.
    pub(crate) may_cut: bool,
}

/// Checks every stream of a run, and that each page ends with the same message. Returns that message.
pub(crate) fn check_run(run: &PageRun<'_>, random: &mut Random, seed: u64, ends: &mut Ends) -> UiMessage {
    let items = run.items;
    let chunks = stream(ChunkEncoder::new(client_tools()), items, items.len());
    verify(ChunkVerifier::new(), &chunks);
    let message = fold(&chunks);
    let expected = normalized(&message);

    // A run that ended before its first step has an answer without parts, which a page does not load.
    if message.parts.is_empty() {
        return message;
    }
    let mut page = Page { run, random, client: None, shown: 0, seed };
    page.follow_to_the_end(ends);
    assert_eq!(normalized(&page.client.unwrap().message), expected, "seed {seed}");
    let reloaded = run_messages(&stored(items), client_tools()).pop().unwrap();
    assert_eq!(normalized(&reloaded), expected, "reload of seed {seed}");
    message
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) cut: u64,
    pub(crate) reloaded: u64,
    pub(crate) decided: u64,
    pub(crate) skipped: u64,
    pub(crate) late: u64,
}

struct Page<'w> {
    run: &'w PageRun<'w>,
    random: &'w mut Random,
    client: Option<ChatClient>,
    /// Number of items that existed when the last stream ended.
    shown: usize,
    seed: u64,
}

impl Page<'_> {
    fn follow_to_the_end(&mut self, ends: &mut Ends) {
        let turns = self.run.turns;
        let first = turns.first().map_or(self.run.items.len(), |turn| turn.begin);
        self.open(first, ends);
        for (index, turn) in turns.iter().enumerate() {
            let end = turns.get(index + 1).map_or(self.run.items.len(), |next| next.begin);
            self.answer(turn, end, ends);
        }
        // The page asks once more, and is not cut off.
        let count = self.run.items.len();
        match &mut self.client {
            Some(_) => self.follow(&Accepted::default(), count, count, false, ends),
            None => self.reload(count, ends),
        }
    }

    /// The first stream. It may be lost before anything arrives.
    fn open(&mut self, count: usize, ends: &mut Ends) {
        let items = &self.run.items[..count];
        let begin = self.random.below(count as u64) as usize;
        let read = log_at(items, begin);
        let mut chunks = stream(ChunkEncoder::new(client_tools()), &read.items, read.stored);
        verify(ChunkVerifier::new(), &chunks);
        if self.run.may_cut && self.random.one_in(3) {
            chunks.truncate(self.random.below(chunks.len() as u64 + 1) as usize);
            ends.cut += 1;
        }
        self.client = (!chunks.is_empty()).then(|| ChatClient::of(&chunks));
        self.shown = count;
    }

    fn answer(&mut self, turn: &Turn, end: usize, ends: &mut Ends) {
        if self.client.is_none() || self.random.one_in(5) {
            self.reload(turn.begin, ends);
        }
        let mut accepted = Accepted::default();
        let client = self.client.as_mut().unwrap();
        for (approval, approved) in &turn.approvals {
            let is_asked = client.tools().any(|tool| {
                tool.state == ToolState::ApprovalRequested
                    && tool.approval.as_ref().is_some_and(|shown| shown.id == *approval)
            });
            if is_asked && !self.random.one_in(4) {
                client.respond(approval, *approved, None);
                accepted.approvals.push(approval.clone());
            }
        }
        for (call, output) in &turn.outputs {
            let has_call =
                client.tools().any(|tool| tool.call_id == *call && tool.state == ToolState::InputAvailable);
            if has_call && !self.random.one_in(4) {
                client.output(call, output);
                accepted.outputs.push(call.clone());
            }
        }
        if accepted.approvals.is_empty() && accepted.outputs.is_empty() && self.random.one_in(2) {
            ends.skipped += 1;
            return;
        }
        ends.decided += u64::from(!accepted.approvals.is_empty());
        let stored = if self.random.one_in(2) { turn.begin } else { end };
        ends.late += u64::from(stored == end);
        self.follow(&accepted, stored, end, true, ends);
    }

    fn follow(&mut self, accepted: &Accepted, stored: usize, end: usize, may_cut: bool, ends: &mut Ends) {
        let client = self.client.as_mut().unwrap();
        let seen = client.seen();
        let mut encoder = ChunkEncoder::continuing(client_tools(), seen.clone());
        accepted.approvals.iter().for_each(|id| encoder.await_approval(id));
        accepted.outputs.iter().for_each(|id| encoder.await_output(id));
        let read = log_at(&self.run.items[..end], stored);
        let mut chunks = stream(encoder, &read.items, read.stored);
        verify(ChunkVerifier::continuing(MESSAGE, &seen), &chunks);
        let is_cut = may_cut && self.run.may_cut && self.random.one_in(3);
        if is_cut {
            chunks.truncate(self.random.below(chunks.len() as u64 + 1) as usize);
            ends.cut += 1;
        }
        client.receive(&chunks);
        assert!(
            is_cut || !client.posts_by_itself(),
            "seed {} posts for ever: {:#?} {accepted:?} {end}",
            self.seed,
            client.message
        );
        self.shown = end;
    }

    fn reload(&mut self, count: usize, ends: &mut Ends) {
        let messages = run_messages(&stored(&self.run.items[..count]), client_tools());
        self.client = Some(ChatClient { message: messages.last().unwrap().clone() });
        ends.reloaded += 1;
    }
}

fn stored(items: &[Item]) -> Vec<Item> {
    items.iter().filter(|item| item.seq.is_some()).cloned().collect()
}

struct ReadLog {
    items: Vec<Item>,
    stored: usize,
}

/// What a stream reads that begins when `begin` items have happened: stored events, the text so far of an open answer
/// as one delta, and everything that follows.
fn log_at(items: &[Item], begin: usize) -> ReadLog {
    let (before, after) = items.split_at(begin);
    let mut read = stored(before);
    let mut open: Option<(u32, [String; 2], &Item)> = None;
    for item in before {
        match &item.body {
            Body::StepStarted { .. } => open = Some((1, Default::default(), item)),
            Body::AssistantMessage { .. } => open = None,
            Body::StepReset { attempt, .. } => open = Some((*attempt, Default::default(), item)),
            Body::ReasoningDelta { offset, text, .. } => {
                if let Some((_, [reasoning, _], _)) = &mut open {
                    append(reasoning, *offset, text);
                }
            }
            Body::TextDelta { offset, text, .. } => {
                if let Some((_, [_, whole], _)) = &mut open {
                    append(whole, *offset, text);
                }
            }
            _ => {}
        }
    }
    if let Some((attempt, [reasoning, text], item)) = open {
        let message_id = match &item.body {
            Body::StepStarted { message_id } | Body::StepReset { message_id, .. } => message_id.clone(),
            other => panic!("{other:?}"),
        };
        let delta = |body| Item { seq: None, body, ..item.clone() };
        if !reasoning.is_empty() {
            let message_id = message_id.clone();
            read.push(delta(Body::ReasoningDelta { message_id, attempt, offset: 0, text: reasoning }));
        }
        if !text.is_empty() {
            read.push(delta(Body::TextDelta { message_id, attempt, offset: 0, text }));
        }
    }
    let stored = read.len();
    read.extend(after.iter().cloned());
    ReadLog { items: read, stored }
}

/// The server keeps the text without gaps.
fn append(whole: &mut String, offset: u64, text: &str) {
    let known = whole.chars().count() as u64;
    if offset <= known {
        whole.extend(text.chars().skip((known - offset) as usize));
    }
}
