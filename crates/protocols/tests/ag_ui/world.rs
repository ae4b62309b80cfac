//! Random runs: what the machine could have stored, with live frames in between, and what a client must end up with.

use std::collections::BTreeMap;

use protocols::feed::{Body, Item, RequestedCall, RunEnd, SuspensionKind, WaitingOn};
use serde_json::{Value, json};

use crate::feed_story::{Story, call};

/// A small generator of numbers that repeats with its seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap()
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Plain,
    Rejected,
    Approval,
    ClientTool,
    GatedClientTool,
    Question,
    InDoubt,
    External,
    Child,
}

const COURSES: [Course; 9] = [
    Course::Plain,
    Course::Rejected,
    Course::Approval,
    Course::ClientTool,
    Course::GatedClientTool,
    Course::Question,
    Course::InDoubt,
    Course::External,
    Course::Child,
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Held { id: String, kind: Held },
    Running,
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Approval,
    ClientTool,
    Question,
    InDoubt,
    External,
    Child,
}

struct Call {
    requested: RequestedCall,
    course: Course,
    stage: Stage,
    edited: Option<Value>,
    /// What the model reads.
    text: String,
}

pub(crate) struct World {
    pub(crate) items: Vec<Item>,
    /// What is held after each item, by id of the approval or the suspension, with the call.
    pub(crate) held: Vec<BTreeMap<String, (Held, String)>>,
    /// Answers that a client may have given: the held id, and the index of the item that processes it.
    pub(crate) answers: BTreeMap<String, usize>,
    /// The texts of results, by call.
    pub(crate) results: BTreeMap<String, String>,
    /// Users' and assistants' messages: id, text, and ids of calls.
    pub(crate) messages: Vec<(String, Option<String>, Vec<String>)>,
}

pub(crate) struct Maker {
    dice: Dice,
    story: Story,
    calls: Vec<Call>,
    world: World,
    ids: usize,
    is_waiting: Option<WaitingOn>,
}

impl Maker {
    pub(crate) fn make(seed: u64) -> World {
        let world = World {
            items: Vec::new(),
            held: Vec::new(),
            answers: BTreeMap::new(),
            results: BTreeMap::new(),
            messages: vec![("u1".into(), Some("Go".into()), Vec::new())],
        };
        let (dice, story, calls) = (Dice::new(seed), Story::begin("Go"), Vec::new());
        let mut maker = Self { dice, story, calls, world, ids: 0, is_waiting: None };
        let steps = 1 + maker.dice.below(4);
        for step in 1..=steps {
            if !maker.step(step == steps) {
                break;
            }
        }
        maker.record();
        maker.world.items = maker.story.items;
        maker.world
    }

    fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}_{}", self.ids)
    }

    /// Notes what is held after the items that were added.
    fn record(&mut self) {
        let held = self.calls.iter().filter_map(|call| match &call.stage {
            Stage::Held { id, kind } => Some((id.clone(), (*kind, call.requested.call_id.clone()))),
            Stage::New | Stage::Running | Stage::Settled => None,
        });
        let held: BTreeMap<_, _> = held.collect();
        self.world.held.resize(self.story.items.len(), held);
    }

    /// Returns false if the run is over.
    fn step(&mut self, is_last: bool) -> bool {
        self.story.start_step();
        self.record();
        if self.dice.chance(20) {
            let patch = json!([{"op": "add", "path": format!("/p.k{}", self.ids), "value": self.ids}]);
            self.story.event(Body::StateChanged { patch });
        }
        let text =
            ["", "Yes.", "Grüße, ich überlege.", "A longer answer with several words."][self.dice.below(4)];
        let thought = ["", "Hm.", "Let me think about it."][self.dice.below(3)];
        self.stream(text, thought);
        if self.dice.chance(5) {
            let end = RunEnd::Failed { code: "MODEL_ERROR".into(), message: "500".into(), blocked: false };
            self.story.end(end);
            return false;
        }
        let count = if is_last { 0 } else { 1 + self.dice.below(3) };
        let requested: Vec<RequestedCall> = (0..count).map(|_| self.request()).collect();
        let kept = (!thought.is_empty() && self.dice.chance(80)).then_some(thought);
        let message_id = self.story.message_id();
        self.story.answer_with_reasoning(text, kept, &requested);
        let text = (!text.is_empty()).then(|| text.to_owned());
        let call_ids: Vec<String> = requested.iter().map(|call| call.call_id.clone()).collect();
        if text.is_some() || !call_ids.is_empty() {
            self.world.messages.push((message_id, text, call_ids));
        }
        self.record();
        let is_interrupted = self.act();
        self.close_turn();
        if is_interrupted {
            self.story.end(RunEnd::Interrupted { code: None, by: None });
        } else if is_last {
            self.story.complete();
        }
        !is_interrupted && !is_last
    }

    /// Attempts at an answer, of which the last is whole or breaks off.
    fn stream(&mut self, text: &str, thought: &str) {
        let mut attempt = 1;
        while attempt < 4 && self.dice.chance(25) {
            self.deltas(attempt, "Wrong turn.", "Wrong thought.");
            attempt += 1;
            self.story.event(Body::ModelRetrying { attempt });
            if self.dice.chance(70) {
                self.story.reset(attempt);
            }
        }
        self.deltas(attempt, text, thought);
    }

    /// Some deltas overlap, some are lost.
    fn deltas(&mut self, attempt: u32, text: &str, thought: &str) {
        for (whole, is_text) in [(thought, false), (text, true)] {
            let chars: Vec<char> = whole.chars().collect();
            let mut at = 0;
            while at < chars.len() && self.dice.chance(85) {
                let end = (at + 1 + self.dice.below(6)).min(chars.len());
                let start = at.saturating_sub(self.dice.below(3));
                let delta: String = chars[start..end].iter().collect();
                if self.dice.chance(92) {
                    let offset = start as u64;
                    if is_text {
                        self.story.text_delta(attempt, offset, &delta);
                    } else {
                        self.story.reasoning_delta(attempt, offset, &delta);
                    }
                }
                at = end;
            }
        }
        self.record();
    }

    fn request(&mut self) -> RequestedCall {
        let course = COURSES[self.dice.below(COURSES.len())];
        let tool = match course {
            Course::ClientTool | Course::GatedClientTool => "pick_file",
            Course::Child => "researcher",
            Course::Plain
            | Course::Rejected
            | Course::Approval
            | Course::Question
            | Course::InDoubt
            | Course::External => "transfer",
        };
        let requested = call(&self.id("call"), tool, json!({"n": self.ids}));
        let (stage, edited, text) = (Stage::New, None, String::new());
        self.calls.push(Call { requested: requested.clone(), course, stage, edited, text });
        requested
    }

    fn open_calls(&self, is_open: impl Fn(&Stage) -> bool) -> Vec<usize> {
        (0..self.calls.len()).filter(|index| is_open(&self.calls[*index].stage)).collect()
    }

    /// Advances the calls in any order until all have settled. Returns true if the run is interrupted before that.
    fn act(&mut self) -> bool {
        loop {
            let unsettled = self.open_calls(|stage| *stage != Stage::Settled);
            if unsettled.is_empty() {
                return false;
            }
            if self.dice.chance(2) {
                self.interrupt(&unsettled);
                return true;
            }
            let ready = self.open_calls(|stage| matches!(stage, Stage::New | Stage::Running));
            let held = self.open_calls(|stage| matches!(stage, Stage::Held { .. }));
            if ready.is_empty() {
                self.wait();
            }
            let decides = !held.is_empty() && (ready.is_empty() || self.dice.chance(15));
            if decides {
                let index = held[self.dice.below(held.len())];
                self.decide(index);
                if self.is_waiting.take().is_some() {
                    self.story.resume();
                    self.record();
                }
            } else {
                let index = ready[self.dice.below(ready.len())];
                self.advance(index);
            }
        }
    }

    fn wait(&mut self) {
        let mut asks = self.calls.iter().filter_map(|call| match &call.stage {
            Stage::Held { kind, .. } => Some(matches!(kind, Held::Approval | Held::Question | Held::InDoubt)),
            Stage::New | Stage::Running | Stage::Settled => None,
        });
        let on = if asks.any(|asks| asks) { WaitingOn::Approval } else { WaitingOn::Tool };
        if self.is_waiting != Some(on) {
            self.is_waiting = Some(on);
            self.story.wait(on);
            self.record();
        }
    }

    fn hold(&mut self, index: usize, kind: Held) {
        let id = self.id("held");
        let call = self.calls[index].requested.clone();
        match kind {
            Held::Approval => self.story.ask_approval(&call, &id),
            Held::ClientTool => self.story.suspend(&call, &id, SuspensionKind::ClientTool),
            Held::Question => self.story.suspend(&call, &id, SuspensionKind::Question),
            Held::InDoubt => self.story.suspend(&call, &id, SuspensionKind::InDoubt),
            Held::External => self.story.suspend(&call, &id, SuspensionKind::External),
            Held::Child => {
                let run_id = format!("run_{}", call.call_id);
                self.story
                    .event(Body::ChildStarted { call_id: call.call_id.clone(), run_id: run_id.clone() });
                self.story.suspend(&call, &id, SuspensionKind::ChildRun { run_id })
            }
        };
        self.calls[index].stage = Stage::Held { id, kind };
        self.record();
    }

    fn run(&mut self, index: usize) {
        let call = self.calls[index].requested.clone();
        self.story.execute(&call);
        self.calls[index].stage = Stage::Running;
        if self.dice.chance(20) {
            self.story.live(Body::ToolLog { call_id: call.call_id, tool: call.tool, text: "working".into() });
        }
        self.record();
    }

    fn advance(&mut self, index: usize) {
        let course = self.calls[index].course;
        match (&self.calls[index].stage, course) {
            (Stage::New, Course::Plain) => self.run(index),
            (Stage::New, Course::Rejected) => self.fail(index, "there is no such tool"),
            (Stage::New, Course::Approval | Course::GatedClientTool) => self.hold(index, Held::Approval),
            (Stage::New, Course::ClientTool) => self.hold(index, Held::ClientTool),
            (Stage::New, Course::Question) => self.hold(index, Held::Question),
            (Stage::New, Course::InDoubt) => self.hold(index, Held::InDoubt),
            (Stage::New, Course::External) => self.hold(index, Held::External),
            (Stage::New, Course::Child) => self.hold(index, Held::Child),
            (Stage::Running, _) if self.dice.chance(20) => self.fail(index, "it broke"),
            (Stage::Running | Stage::Held { .. } | Stage::Settled, _) => self.succeed(index),
        }
    }

    /// A held call is answered: by the client, or by others.
    fn decide(&mut self, index: usize) {
        let Stage::Held { id, kind } = self.calls[index].stage.clone() else { return };
        let call = self.calls[index].requested.clone();
        let processed_at = self.story.items.len();
        match kind {
            Held::Approval if self.dice.chance(10) => {
                let (call_id, approval_id) = (call.call_id.clone(), id.clone());
                self.story.event(Body::ApprovalVoided { call_id, approval_id });
                self.calls[index].stage = Stage::New;
                self.record();
                self.hold(index, Held::Approval);
            }
            Held::Approval if self.dice.chance(30) => {
                self.story.deny(&call, &id, "ana", "no");
                self.settle(index, "Denied by ana: no".into());
            }
            Held::Approval => {
                let edited = self.dice.chance(20).then(|| json!({"n": -1}));
                self.story.approve(&call, &id, edited.clone());
                self.calls[index].edited = edited;
                self.calls[index].stage = Stage::Running;
                self.record();
                if self.calls[index].course == Course::GatedClientTool {
                    self.hold(index, Held::ClientTool);
                } else {
                    self.run(index);
                }
            }
            Held::InDoubt | Held::Question if self.dice.chance(30) => {
                self.story.cancel(&call, "decided");
                self.settle(index, "Cancelled".into());
            }
            Held::Child => {
                let run_id = format!("run_{}", call.call_id);
                self.story.event(Body::ChildEnded { call_id: call.call_id.clone(), run_id });
                self.story.resume_call(&call, &id);
                self.succeed(index);
            }
            Held::ClientTool | Held::External => {
                self.story.resume_call(&call, &id);
                self.succeed(index);
            }
            Held::InDoubt | Held::Question => {
                self.story.resume_call(&call, &id);
                self.run(index);
            }
        }
        if !matches!(kind, Held::External | Held::Child) {
            self.world.answers.insert(id, processed_at);
        }
    }

    fn settle(&mut self, index: usize, text: String) {
        let call = &mut self.calls[index];
        call.stage = Stage::Settled;
        let note = |edited: &Value| format!("Arguments were changed by the approver to: {edited}\n");
        call.text = call.edited.as_ref().map(note).unwrap_or_default() + &text;
        self.record();
    }

    fn succeed(&mut self, index: usize) {
        let call = self.calls[index].requested.clone();
        let (json, text) = match self.dice.below(3) {
            0 => (r#"{"receipt":"r-1","sum":5}"#, r#"{"receipt":"r-1","sum":5}"#),
            1 => ("\"a \\\"text\\\"\"", "a \"text\""),
            _ => ("null", "null"),
        };
        self.story.succeed(&call, json);
        self.settle(index, text.into());
    }

    fn fail(&mut self, index: usize, message: &str) {
        let call = self.calls[index].requested.clone();
        self.story.fail(&call, message);
        self.settle(index, format!("Error: {message}"));
    }

    fn interrupt(&mut self, unsettled: &[usize]) {
        self.story.event(Body::RunInterrupting);
        for index in unsettled {
            let call = self.calls[*index].requested.clone();
            let outcome_unknown = self.calls[*index].stage == Stage::Running;
            let (call_id, tool, reason) = (call.call_id, call.tool, "interrupted".to_owned());
            self.story.event(Body::Cancelled { call_id, tool, reason, outcome_unknown });
            let text = if outcome_unknown {
                "Cancelled; it may have taken effect"
            } else {
                "Cancelled: interrupted"
            };
            self.settle(*index, text.into());
        }
    }

    /// The tool messages in call order. What the model reads may be shortened.
    fn close_turn(&mut self) {
        for call in std::mem::take(&mut self.calls) {
            let text = if self.dice.chance(8) { "[shortened]".to_owned() } else { call.text };
            self.story.tool_message(&call.requested, &text);
            self.world.results.insert(call.requested.call_id, text);
        }
        self.story.end_step();
        self.record();
    }
}

/// The model wrote this much of the answer before this item, if no delta was lost.
pub(crate) fn text_so_far(items: &[Item]) -> Option<Item> {
    let mut so_far: Option<(Item, String, u32)> = None;
    for item in items {
        match &item.body {
            Body::TextDelta { attempt, offset, text, .. } => {
                let known = so_far.take().filter(|(_, _, known)| known == attempt);
                let mut written = known.map(|(_, written, _)| written).unwrap_or_default();
                let have = written.chars().count();
                let skip = have.checked_sub(usize::try_from(*offset).unwrap())?;
                written.extend(text.chars().skip(skip));
                so_far = Some((item.clone(), written, *attempt));
            }
            Body::AssistantMessage { .. } | Body::StepReset { .. } | Body::RunEnded { .. } => so_far = None,
            _ => {}
        }
    }
    let (mut item, written, attempt) = so_far?;
    if let Body::TextDelta { message_id, .. } = item.body {
        item.body = Body::TextDelta { message_id, attempt, offset: 0, text: written };
    }
    Some(item)
}
