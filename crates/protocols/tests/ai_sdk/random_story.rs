//! Random runs with the events that the engine would store, and the decisions that each wait of the run is about.

use protocols::feed::{Body, CompletedReason, RequestedCall, RunEnd, SuspensionKind, WaitingOn};
use serde_json::{Value, json};

use crate::run_script::{RunScript, call};

/// A xorshift generator: the same seed gives the same story.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'v, T>(&mut self, from: &'v [T]) -> &'v T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// The run waits, and these decisions are made next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    /// Number of items when the run waits.
    pub(crate) begin: usize,
    pub(crate) approvals: Vec<(String, bool)>,
    pub(crate) outputs: Vec<(String, Value)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) script: RunScript,
    pub(crate) turns: Vec<Turn>,
    /// A client that is cut off before a reset cannot know that its text was given up.
    pub(crate) may_cut: bool,
    eager: bool,
    calls: Vec<StoryCall>,
    next_id: u32,
    is_waiting: bool,
}

#[derive(Clone, Debug)]
struct StoryCall {
    call: RequestedCall,
    kind: StoryKind,
    state: StoryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoryKind {
    Free,
    Approved,
    Client,
    ClientApproved,
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StoryState {
    AwaitsApproval(String),
    AwaitsClient(String),
    AwaitsRest(String),
    Executing,
    Settled,
}

impl Story {
    pub(crate) fn generate(random: &mut Random) -> Self {
        let mut story = Self {
            script: RunScript::begun(),
            turns: Vec::new(),
            may_cut: random.one_in(2),
            eager: random.one_in(3),
            calls: Vec::new(),
            next_id: 0,
            is_waiting: false,
        };
        let steps = 1 + random.below(4);
        for step in 1..=steps {
            let calls = if step == steps { 0 } else { random.below(4) };
            story.answer(calls, random);
            if story.settle_step(random) {
                return story;
            }
            story.script.step_ended();
            if step < steps {
                story.script.step();
            }
        }
        // Under `eager`, calls of earlier steps can still be open; each wakes the model.
        while story.calls.iter().any(|call| call.state != StoryState::Settled) {
            story.advance(random);
            if story.calls.iter().all(|call| call.state == StoryState::Settled) {
                story.script.step().answer("Late.", &[]).step_ended();
            }
        }
        story.end(random);
        story
    }

    fn end(&mut self, random: &mut Random) {
        let failed = |blocked| RunEnd::Failed { code: "X".into(), message: "it failed".into(), blocked };
        let end = match random.below(6) {
            0 => failed(false),
            1 => failed(true),
            2 => RunEnd::Interrupted { code: None, by: None },
            3 => {
                let reason = CompletedReason::Stopped;
                RunEnd::Completed { reason, code: Some("max_rounds".into()), detail: None }
            }
            _ => RunEnd::Completed { reason: CompletedReason::NaturalEnd, code: None, detail: None },
        };
        self.script.ended(end);
    }

    fn answer(&mut self, calls: u64, random: &mut Random) {
        let reasoning = random.pick(&["", "Hm.", "Let me think about this."]);
        let text = random.pick(&["", "Ok.", "I will look at it — jetzt gleich, für dich."]);
        if !self.may_cut && random.one_in(4) {
            // Reasoning that has ended cannot be marked as given up any more.
            self.stream_deltas("", "Something else enti", random);
            self.script.reset();
        }
        if !random.one_in(4) {
            self.stream_deltas(reasoning, text, random);
        }
        let mut requested = Vec::new();
        for _ in 0..calls {
            self.next_id += 1;
            let kinds = [
                StoryKind::Free,
                StoryKind::Approved,
                StoryKind::Approved,
                StoryKind::Client,
                StoryKind::ClientApproved,
                StoryKind::Pending,
            ];
            let kind = *random.pick(&kinds);
            let tool = match kind {
                StoryKind::Free | StoryKind::Approved | StoryKind::Pending => "transfer",
                StoryKind::Client | StoryKind::ClientApproved => "pick_file",
            };
            let call = call(&format!("call_{}", self.next_id), tool);
            requested.push(call.clone());
            self.calls.push(StoryCall { call, kind, state: StoryState::Executing });
        }
        let reasoning = (!reasoning.is_empty()).then_some(*reasoning);
        self.script.answer_with_reasoning(reasoning, text, &requested);
        let begin = self.calls.len() - requested.len();
        for index in begin..self.calls.len() {
            self.gate(index);
        }
    }

    /// Deltas with gaps and repetitions, of a part of the answer or all of it.
    fn stream_deltas(&mut self, reasoning: &str, text: &str, random: &mut Random) {
        if !reasoning.is_empty() {
            self.script.reasoning_delta(reasoning);
        }
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() && !random.one_in(8) {
            let count = 1 + random.below(6) as usize;
            let end = chars.len().min(at + count);
            let begin = at.saturating_sub(if random.one_in(4) { random.below(3) as usize } else { 0 });
            if !random.one_in(12) {
                self.script.delta_at(begin as u64, &chars[begin..end].iter().collect::<String>());
            }
            at = end;
        }
    }

    fn gate(&mut self, index: usize) {
        let StoryCall { call, kind, .. } = self.calls[index].clone();
        self.next_id += 1;
        let id = format!("hold_{}", self.next_id);
        self.calls[index].state = match kind {
            StoryKind::Free | StoryKind::Pending => {
                self.script.executing(&call);
                StoryState::Executing
            }
            StoryKind::Approved | StoryKind::ClientApproved => {
                self.script.ask(&call, &id);
                StoryState::AwaitsApproval(id)
            }
            StoryKind::Client => {
                self.script.suspend(&call, &id, SuspensionKind::ClientTool);
                StoryState::AwaitsClient(id)
            }
        };
    }

    /// True if the run was interrupted.
    fn settle_step(&mut self, random: &mut Random) -> bool {
        loop {
            let open = |call: &StoryCall| call.state != StoryState::Settled;
            let executes = self.calls.iter().any(|call| call.state == StoryState::Executing);
            let has_settled = self.calls.iter().any(|call| call.state == StoryState::Settled);
            if !self.calls.iter().any(open) || (self.eager && has_settled && !executes) {
                self.resume();
                return false;
            }
            if random.one_in(40) {
                self.interrupt();
                return true;
            }
            self.advance(random);
        }
    }

    fn interrupt(&mut self) {
        self.is_waiting = false;
        self.script.stored(Body::RunInterrupting);
        for index in 0..self.calls.len() {
            if self.calls[index].state != StoryState::Settled {
                self.script.cancelled(&self.calls[index].call.clone(), "interrupted");
                self.calls[index].state = StoryState::Settled;
            }
        }
        self.script.step_ended().ended(RunEnd::Interrupted { code: None, by: None });
    }

    /// One call that executes returns, or the run waits and decisions are made.
    fn advance(&mut self, random: &mut Random) {
        let executing: Vec<usize> = self.calls_in(|state| *state == StoryState::Executing);
        if !executing.is_empty() {
            if random.one_in(5) {
                self.decide_one(random);
            }
            let index = *random.pick(&executing);
            if self.calls[index].state == StoryState::Executing {
                self.returns(index, random);
            }
            return;
        }
        self.wait();
        let begin = self.script.items.len();
        self.turns.push(Turn { begin, ..Turn::default() });
        for _ in 0..=random.below(2) {
            self.decide_one(random);
        }
    }

    fn calls_in(&self, is_wanted: impl Fn(&StoryState) -> bool) -> Vec<usize> {
        (0..self.calls.len()).filter(|index| is_wanted(&self.calls[*index].state)).collect()
    }

    fn wait(&mut self) {
        if !self.is_waiting {
            let is_client = |call: &StoryCall| matches!(call.state, StoryState::AwaitsClient(_));
            let on = if self.calls.iter().all(is_client) { WaitingOn::Tool } else { WaitingOn::Approval };
            self.script.waits(on);
        }
        self.is_waiting = true;
    }

    fn resume(&mut self) {
        if self.is_waiting {
            self.script.resumed();
        }
        self.is_waiting = false;
    }

    /// `run.resumed` is recorded if the run no longer waits after a decision.
    fn after_decision(&mut self) {
        let executes = self.calls.iter().any(|call| call.state == StoryState::Executing);
        let holds = self.calls.iter().any(|call| call.state != StoryState::Settled);
        if executes || !holds {
            self.resume();
        }
    }

    fn decide_one(&mut self, random: &mut Random) {
        let held = self.calls_in(|state| !matches!(state, StoryState::Executing | StoryState::Settled));
        if held.is_empty() {
            return;
        }
        let index = *random.pick(&held);
        let StoryCall { call, kind, state } = self.calls[index].clone();
        match state {
            StoryState::AwaitsApproval(id) => self.decide_approval(index, &id, random),
            StoryState::AwaitsClient(id) => {
                let output = json!({"of": call.call_id});
                if let Some(turn) = self.turns.last_mut() {
                    turn.outputs.push((call.call_id.clone(), output.clone()));
                }
                self.calls[index].state = StoryState::Settled;
                self.script.call_resumed(&call, &id);
                self.after_decision();
                self.script.succeeded(&call, &output.to_string());
            }
            StoryState::AwaitsRest(id) => {
                self.calls[index].state = StoryState::Executing;
                self.script.call_resumed(&call, &id);
                self.after_decision();
                self.script.executing(&call);
                self.calls[index].kind = StoryKind::Free;
            }
            StoryState::Executing | StoryState::Settled => panic!("{kind:?} is not held"),
        }
    }

    fn decide_approval(&mut self, index: usize, id: &str, random: &mut Random) {
        let call = self.calls[index].call.clone();
        let approved = !random.one_in(4);
        if let Some(turn) = self.turns.last_mut() {
            turn.approvals.push((id.into(), approved));
        }
        if !approved {
            self.calls[index].state = StoryState::Settled;
            self.script.denied(&call, id);
            self.after_decision();
            return;
        }
        self.calls[index].state = StoryState::Executing;
        if random.one_in(6) {
            // The tool has changed: the call is held again.
            self.script.stored(Body::ApprovalVoided { call_id: call.call_id, approval_id: id.into() });
            self.after_decision();
            self.gate(index);
            return;
        }
        let edited = random.one_in(6).then(|| json!({"edited": true}));
        if let Some(arguments) = &edited {
            self.calls[index].call.arguments.clone_from(arguments);
        }
        self.script.approved_with(&call, id, edited);
        self.after_decision();
        let call = self.calls[index].call.clone();
        if self.calls[index].kind == StoryKind::ClientApproved {
            self.next_id += 1;
            let id = format!("hold_{}", self.next_id);
            self.script.suspend(&call, &id, SuspensionKind::ClientTool);
            self.calls[index].state = StoryState::AwaitsClient(id);
        } else {
            self.script.executing(&call);
        }
    }

    /// A call that executes returns a result, an error, or that it is pending.
    fn returns(&mut self, index: usize, random: &mut Random) {
        let StoryCall { call, kind, .. } = self.calls[index].clone();
        let is_pending = kind == StoryKind::Pending || (kind == StoryKind::Approved && random.one_in(5));
        if is_pending {
            self.next_id += 1;
            let id = format!("hold_{}", self.next_id);
            let kinds = [
                SuspensionKind::External,
                SuspensionKind::Question,
                SuspensionKind::InDoubt,
                SuspensionKind::ChildRun { run_id: "run_2".into() },
            ];
            self.script.suspend(&call, &id, random.pick(&kinds).clone());
            self.calls[index].state = StoryState::AwaitsRest(id);
            return;
        }
        if kind == StoryKind::Approved && random.one_in(8) {
            // The tool changed after the approval: dispatch holds the call again.
            self.gate(index);
            return;
        }
        self.calls[index].state = StoryState::Settled;
        match random.below(5) {
            0 => self.script.failed(&call, "it broke"),
            1 => self.script.cancelled(&call, "given_up"),
            2 => self.script.succeeded_with(&call, "[1,2]", Some("slow")),
            _ => self.script.succeeded(&call, r#"{"done":true}"#),
        };
    }
}
