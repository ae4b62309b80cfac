//! Models, tools and plugins that follow the tape, and inform the book before they act.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelCall, ModelFailure, ModelRequest};
use engine::plugin::{Action, HookContext, Phase, PhaseSet, Plugin};
use engine::store::BoxFuture;
use engine::tool::{Outcome, Tool, ToolDefinition, ToolRequest};
use machine::Input;
use machine::id::PluginName;
use machine::phase::HookOutcome;
use machine::revision::Revision;
use machine::tool::Arguments;

use super::context::{Life, WorldContext};
use crate::play::{names, tape};
use crate::world::hooks;
use crate::world::script::{self, Turn, outcome_name};

/// How long a hook and an attempt may take.
pub(crate) const HOOK_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(5);

/// A panic that the panic hook does not print.
fn panic_quietly(why: &'static str) -> ! {
    resume_unwind(Box::new(why))
}

/// Mostly short, sometimes much longer.
fn draw_pause(tape: &mut tape::Tape) -> u64 {
    match tape.pick(8) {
        0 | 1 => 0,
        2..=4 => 1 + tape.pick(8) as u64,
        5 | 6 => 10 + tape.pick(90) as u64,
        _ => 300 + tape.pick(2_000) as u64,
    }
}

pub(crate) struct ScriptedModel {
    pub(crate) stage: Arc<WorldContext>,
    pub(crate) life: Arc<Life>,
    pub(crate) revision: Arc<Revision>,
}

impl Model for ScriptedModel {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let now = self.stage.now();
            let checked = self.stage.book().model_started(&self.life, &request, now);
            self.stage.check(checked);
            let (said, pause, panics) = self.draw(&request);
            self.life.pause(pause / 2).await;
            if let Ok(answer) = &said {
                deltas.text(&answer.text);
            }
            self.life.pause(pause - pause / 2).await;
            self.stage.count("model", told(&said, panics));
            if panics {
                panic_quietly("the model fell over");
            }
            said
        })
    }
}

impl ScriptedModel {
    fn draw(&self, request: &ModelRequest) -> (Result<ModelAnswer, ModelFailure>, u64, bool) {
        let mut book = self.stage.book();
        let turn = Turn { step: request.step, attempt: request.attempt };
        if book.calm {
            return (answer_of(script::words(turn, &self.revision)), 0, false);
        }
        let trouble = book.temper.setup.model_trouble;
        let used = BTreeSet::new();
        let input = script::draw_model(&mut book.tape, turn, &self.revision, &used, trouble, 0);
        let pause = draw_pause(&mut book.tape);
        let panics = book.tape.chance(1);
        (answer_of(input), pause, panics)
    }
}

const fn told(said: &Result<ModelAnswer, ModelFailure>, panics: bool) -> &'static str {
    if panics {
        return "panic";
    }
    match said {
        Ok(_) => "answer",
        Err(ModelFailure { retryable: true, .. }) => "failure to be retried",
        Err(ModelFailure { retryable: false, .. }) => "failure for good",
    }
}

/// Converts the input for the bare machine into a model's answer.
fn answer_of(input: Input) -> Result<ModelAnswer, ModelFailure> {
    if let Input::ModelFailed { failure, .. } = input {
        return Err(failure);
    }
    let Input::ModelAnswered(answered) = input else { return Ok(ModelAnswer::text("nothing")) };
    let calls = answered.calls.iter().map(|call| ModelCall {
        id: call.id.clone(),
        tool: call.tool.to_string(),
        arguments: match &call.arguments {
            Arguments::Valid { value, .. } => value.to_string(),
            Arguments::Invalid { raw, .. } => raw.clone(),
        },
    });
    Ok(ModelAnswer {
        text: answered.text,
        reasoning: answered.reasoning,
        calls: calls.collect(),
        usage: answered.usage,
        origin: answered.origin,
    })
}

pub(crate) struct ScriptedTool {
    pub(crate) stage: Arc<WorldContext>,
    pub(crate) life: Arc<Life>,
    pub(crate) definition: Arc<ToolDefinition>,
}

enum Ends {
    Answers(Outcome),
    Panics,
    NeverComesBack,
}

impl Tool for ScriptedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let now = self.stage.now();
            let checked = self.stage.book().tool_started(&self.life, &request, now);
            self.stage.check(checked);
            if request.resume.as_ref().is_some_and(|resumed| resumed.state.is_some()) {
                self.stage.count("tool", "resumed with its state");
            }
            let (ends, pause, obeys) = self.draw();
            request.notes.log("at it");
            let work = async {
                self.life.pause(pause).await;
                match ends {
                    Ends::Answers(outcome) => {
                        self.stage.count("tool", outcome_name(&outcome));
                        outcome
                    }
                    Ends::Panics => {
                        self.stage.count("tool", "panic");
                        panic_quietly("the tool fell over")
                    }
                    Ends::NeverComesBack => {
                        self.stage.count("tool", "too late");
                        std::future::pending().await
                    }
                }
            };
            tokio::select! {
                biased;
                () = request.cancelled.cancelled(), if obeys => {
                    self.stage.count("tool", "stopped on request");
                    Outcome::Unknown { why: "the call was cancelled".into(), retry_after_ms: None }
                }
                outcome = work => outcome,
            }
        })
    }
}

impl ScriptedTool {
    fn draw(&self) -> (Ends, u64, bool) {
        let mut book = self.stage.book();
        if book.calm {
            return (Ends::Answers(script::success()), 0, true);
        }
        let trouble = book.temper.setup.tool_trouble;
        let tape = &mut book.tape;
        let outcome = script::draw_outcome(tape, trouble);
        let pause = draw_pause(tape);
        let ends = match tape.pick(100) {
            96..98 => Ends::Panics,
            98.. => Ends::NeverComesBack,
            _ => Ends::Answers(outcome),
        };
        (ends, pause, tape.chance(50))
    }
}

pub(crate) struct ScriptedPlugin {
    pub(crate) stage: Arc<WorldContext>,
    pub(crate) life: Arc<Life>,
    pub(crate) name: PluginName,
    /// Its position among the agent's plugins.
    pub(crate) place: usize,
    pub(crate) revision: Arc<Revision>,
}

impl Plugin for ScriptedPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        self.revision.phases
    }

    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin(async move {
            let phase = context.subject.phase();
            self.stage.count("hook", names::phase(phase));
            let (outcome, pause, trouble) = self.draw(phase);
            self.life.pause(pause).await;
            match (trouble, outcome) {
                (HookTrouble::Panics, _) => {
                    self.stage.count("hook", "panic");
                    panic_quietly("the hook fell over")
                }
                (HookTrouble::Late, _) => {
                    self.stage.count("hook", "too late");
                    std::future::pending().await
                }
                (HookTrouble::None, HookOutcome::Failed(why)) => {
                    self.stage.count("hook", "failure");
                    Err(why)
                }
                (HookTrouble::None, HookOutcome::Actions(actions)) => {
                    self.stage.count("hook", if actions.is_empty() { "silent" } else { "actions" });
                    Ok(actions)
                }
            }
        })
    }
}

#[derive(Clone, Copy)]
enum HookTrouble {
    None,
    Panics,
    Late,
}

impl ScriptedPlugin {
    fn draw(&self, phase: Phase) -> (HookOutcome, u64, HookTrouble) {
        let mut book = self.stage.book();
        let silent = HookOutcome::Actions(Vec::new());
        if book.calm {
            return (silent, 0, HookTrouble::None);
        }
        let temper = book.temper.setup;
        let tape = &mut book.tape;
        let answers = if temper.stubborn && phase == Phase::BeforeToolExecute {
            hooks::insistent()
        } else {
            hooks::draw(tape, phase, &self.revision, temper.hooks)
        };
        let outcome = answers.answers.into_iter().nth(self.place).map_or(silent, |answer| answer.outcome);
        let pause = if tape.chance(40) { 1 + tape.pick(30) as u64 } else { 0 };
        let trouble = match tape.pick(200) {
            198 => HookTrouble::Panics,
            199 => HookTrouble::Late,
            _ => HookTrouble::None,
        };
        (outcome, pause, trouble)
    }
}
