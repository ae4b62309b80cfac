//! The results of a worker's tasks: hooks, model calls, gates and tools.

use machine::input::{GateInput, Outcome};
use machine::phase::{HookAnswers, Phase};
use machine::revision::Revision;
use machine::rules::{ArgumentTest, PatternHit};
use machine::tool::Arguments;
use machine::{Effect, Input};

use crate::judge::causes;
use crate::play::tape::{Tape, seed_for};
use crate::world::World;
use crate::world::script::{self, Turn};
use crate::world::worker::{Ghost, Session};
use crate::world::{arguments, hooks};

impl World {
    /// Completes the task at this index. Returns the input for the machine, if there is one.
    pub(crate) fn complete(&mut self, session: &mut Session, place: usize) -> Option<Input> {
        match session.tasks[place].effect.clone() {
            Effect::RunPhase(phase) => {
                session.tasks.remove(place);
                let revision = session.copy.revision.clone();
                let hooks = self.draw_hooks(phase, &revision, "run");
                Some(Input::PhaseAnswered { phase, hooks })
            }
            Effect::CallModel { step, attempt, ask_first, .. } => {
                self.complete_model(session, place, Turn { step, attempt }, &ask_first)
            }
            Effect::Gate(call) => {
                session.tasks.remove(place);
                self.gated(session, &call).map(Input::Gated)
            }
            Effect::RunTool { call, attempt, .. } => {
                session.tasks.remove(place);
                let step = self.store.runs[session.run].ledger.call(&call)?.step;
                let outcome = self.draw_outcome(call.as_str(), attempt);
                self.coverage.outcome(&outcome);
                let returned = Input::ToolReturned { step, call: call.clone(), attempt, outcome };
                self.haunt(session, &returned, Ghost { run: session.run, step, call, attempt });
                Some(returned)
            }
            Effect::RunAfterToolHooks { .. } => {
                self.note_heard(session, place);
                None
            }
        }
    }

    /// An answer may come twice, and an abandoned attempt may answer later.
    fn haunt(&mut self, session: &mut Session, returned: &Input, ghost: Ghost) {
        let Input::ToolReturned { outcome, .. } = returned else { return };
        let unknown = match outcome {
            Outcome::Unknown { .. } => true,
            Outcome::Answered(_) | Outcome::NotSent { .. } => false,
        };
        if unknown && self.tape.chance(self.trouble.late_answers * 8) {
            self.ghosts.push(ghost);
        } else if self.tape.chance(self.trouble.late_answers * 2) {
            session.echoes.push(returned.clone());
        }
    }

    fn complete_model(
        &mut self,
        session: &mut Session,
        place: usize,
        turn: Turn,
        ask_first: &[Phase],
    ) -> Option<Input> {
        let revision = session.copy.revision.clone();
        for phase in ask_first {
            if session.tasks[place].asked.contains(phase) {
                continue;
            }
            let hooks = self.draw_hooks(*phase, &revision, &format!("step {}", turn.step));
            session.tasks[place].asked.push(*phase);
            if !hooks::says_nothing(&hooks) || self.tape.chance(5) {
                return Some(Input::PhaseAnswered { phase: *phase, hooks });
            }
        }
        session.tasks.remove(place);
        if self.at_rest {
            return Some(script::words(turn, &revision));
        }
        let used = self.store.threads[self.store.runs[session.run].thread].call_ids.clone();
        let (trouble, percent) = (self.trouble.model_trouble, self.trouble.hooks);
        let key = format!("{} step {}", session.copy.control.run, turn.step);
        let answer = self.with_script(&key, u64::from(turn.attempt), |tape| {
            script::draw_model(tape, turn, &revision, &used, trouble, percent)
        });
        self.coverage.hooks_of(&answer);
        Some(answer)
    }

    /// Everything that the gate needs to know about a call.
    pub(crate) fn gated(&mut self, session: &Session, call: &machine::id::CallId) -> Option<GateInput> {
        let stored = &self.store.runs[session.run];
        let known = stored.ledger.call(call)?.clone();
        let thread = &self.store.threads[stored.thread];
        let grants = thread.grants.clone();
        let revision = session.copy.revision.clone();
        let tampered = self.tampered.contains(&(session.run, call.clone()));
        let sent = if tampered { other_than(&known.arguments) } else { known.arguments.clone() };
        let hooks = self.draw_hooks(Phase::BeforeToolExecute, &revision, call.as_str());
        Some(GateInput {
            call: call.clone(),
            tool: self.live.now(&known.tool),
            hits: hits(&revision, &sent),
            arguments: sent,
            grants,
            loosening_ended: false,
            unsent_attempt: None,
            hooks,
        })
    }

    pub(crate) fn draw_hooks(&mut self, phase: Phase, revision: &Revision, key: &str) -> HookAnswers {
        if !revision.phases.has(phase) || self.at_rest {
            return hooks::silent();
        }
        let percent = self.trouble.hooks;
        let insists = self.trouble.stubborn && phase == Phase::BeforeToolExecute;
        let key = format!("{phase} {key}");
        let answers = if insists {
            hooks::insistent()
        } else {
            self.with_script(&key, 0, |tape| hooks::draw(tape, phase, revision, percent))
        };
        self.coverage.hooks(phase, &answers);
        answers
    }

    fn draw_outcome(&mut self, call: &str, attempt: u32) -> Outcome {
        if self.at_rest {
            return script::success();
        }
        let trouble = self.trouble.tool_trouble;
        let calm = self.script_seed.is_some();
        let outcome = self.with_script(call, u64::from(attempt), |tape| script::draw_outcome(tape, trouble));
        if calm { script::without_expiry(outcome) } else { outcome }
    }

    /// Draws content from the world's tape. If content must not depend on the order of events, it draws from a separate
    /// tape for this key.
    pub(crate) fn with_script<T>(&mut self, key: &str, number: u64, draw: impl FnOnce(&mut Tape) -> T) -> T {
        match self.script_seed {
            Some(seed) => draw(&mut Tape::seeded(seed_for(seed, key, number))),
            None => draw(&mut self.tape),
        }
    }
}

/// Simulates stored arguments that were tampered with.
fn other_than(arguments: &Arguments) -> Arguments {
    let changed = arguments::valid(serde_json::json!({"amount": 1_000_000, "to": "xenia"}));
    if changed == *arguments { arguments::malformed() } else { changed }
}

fn hits(revision: &Revision, arguments: &Arguments) -> Vec<PatternHit> {
    let mut hits = Vec::new();
    for (rule, index) in revision.rules.iter().zip(0_u16..) {
        for (condition, place) in rule.when.iter().zip(0_u16..) {
            if matches!(condition.test, ArgumentTest::Matches(_)) && causes::holds(condition, arguments) {
                hits.push(PatternHit { rule: index, condition: place });
            }
        }
    }
    hits
}
