//! One model call: the hooks before it, the call, what it asked for, and the hooks after it.

use std::sync::Arc;
use std::time::Duration;

use machine::event::Fact;
use machine::id::{ToolName, assistant_message_id};
use machine::input::{ModelAnswered, ModelFailure, RequestedCall};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase};
use machine::tool::Arguments;
use machine::transcript::{Messages, ModelMessage};
use machine::{Effect, Input};
use serde_json::Value;

use super::hooks::{Hooks, is_silent};
use super::panics::catch_panic;
use super::plugin_lock::PluginLockGuard;
use super::{Stop, TaskOutput, TaskResult, Worker};
use crate::agent::{LiveAgent, Pinned};
use crate::arguments;
use crate::clock::{Clock, NotBefore};
use crate::live::Deltas;
use crate::model::{Model, ModelAnswer, ModelRequest};
use crate::plugin::Subject;
use crate::store::{Lease, Store};

/// A longer answer counts as a failure.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

struct ModelTask {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    pinned: Arc<Pinned>,
    /// The current configuration, whose tools validate the arguments.
    agent: Option<Arc<LiveAgent>>,
    model: Option<Arc<dyn Model>>,
    hooks: Hooks,
    ask_first: Vec<Phase>,
    not_before: Option<NotBefore>,
    timeout: Duration,
    request: ModelRequest,
    /// Every message before the request, if all were read.
    thread: Option<Messages>,
    /// Set to the limit if the thread has more bytes than this: the model is not called.
    too_long: Option<usize>,
    deltas: Deltas,
}

impl Worker {
    pub(super) async fn begin_model_call(&mut self, effect: Effect) -> Result<(), Stop> {
        let Effect::CallModel { step, attempt, not_before, ask_first, adjusted_by, .. } = &effect else {
            return Err(Stop::Broken(format!("{effect:?} is no model call")));
        };
        let (step, attempt, not_before) = (*step, *attempt, *not_before);
        let ask_first = self.plugins.phases_to_ask(step, attempt, ask_first);
        let adjustments = self.adjustments(adjusted_by).await?;
        let hooks = self.hooks().await?;
        let agents = self.node.agents();
        let trim = self.pinned.trim;
        let (ordinal, messages, thread, is_too_long) = {
            let history = self.history().await?;
            (history.ordinal(), history.messages(&trim), history.thread(), history.is_too_long())
        };
        let message_id = assistant_message_id(&self.lease.run, step);
        let request = ModelRequest {
            tenant: self.lease.tenant.clone(),
            thread: self.lease.thread.clone(),
            run: self.lease.run.clone(),
            step,
            attempt,
            ordinal,
            message_id: message_id.clone(),
            instructions: self.pinned.instructions.clone(),
            messages,
            tools: self.pinned.tools.clone(),
            output_schema: self.pinned.output.as_ref().map(|output| output.schema.clone()),
            params: Vec::new(),
        };
        let task = ModelTask {
            store: self.node.store.clone(),
            clock: self.node.clock.clone(),
            lease: self.lease.clone(),
            pinned: self.pinned.clone(),
            agent: agents.by_name.get(&self.pinned.agent).cloned(),
            model: agents.model(&self.pinned.agent, &self.pinned.model),
            hooks,
            ask_first,
            not_before: self.not_before(not_before),
            timeout: self.node.settings.model_timeout,
            request: adjusted(request, &adjustments),
            thread,
            too_long: is_too_long.then_some(self.node.settings.thread_bytes_max),
            deltas: Deltas::new(self.live_output(step), message_id, attempt),
        };
        let at_hand =
            task.ask_first.is_empty() && task.model.as_ref().is_some_and(|model| model.answers_at_once());
        if at_hand {
            if let Some(finished) = self.tasks.poll_then_spawn(effect, task.work()).await {
                self.receive_result(finished);
            }
        } else {
            self.tasks.spawn(effect, move |_| task.work());
        }
        Ok(())
    }

    /// The recorded actions of hooks before this model call.
    async fn adjustments(&self, adjusted_by: &[u64]) -> Result<Vec<Action>, Stop> {
        let mut adjustments = Vec::new();
        for seq in adjusted_by {
            let event = self.event(*seq).await?;
            if let Fact::PhaseAnswered { actions, .. } = &event.fact {
                adjustments.extend(actions.iter().cloned());
            }
        }
        Ok(adjustments)
    }

    /// Whether a call id that an unstored answer wants was taken after the lookup. The answer then knows the taken ids,
    /// and the call gets another one.
    pub(super) async fn ids_were_taken_since(&mut self) -> Result<bool, Stop> {
        let mut taken_since = false;
        for body in &mut self.unstored {
            let TaskResult::Input(input) = body else { continue };
            let Input::ModelAnswered(answered) = &mut **input else { continue };
            let asked: Vec<String> = answered.calls.iter().map(|call| call.id.clone()).collect();
            let taken = self.node.store.taken_call_ids(&self.lease, &asked).await?;
            taken_since |= taken != answered.taken;
            answered.taken = taken;
        }
        Ok(taken_since)
    }
}

fn adjusted(mut request: ModelRequest, adjustments: &[Action]) -> ModelRequest {
    for action in adjustments {
        match action {
            Action::AddInstruction { text } => {
                let joined = if request.instructions.is_empty() {
                    text.clone()
                } else {
                    format!("{}\n{text}", request.instructions)
                };
                request.instructions = Arc::from(joined);
            }
            Action::HideTool { tool } => request.tools.retain(|known| known.name != *tool),
            Action::SetParam { name, value } => {
                request.params.retain(|(known, _)| known != name);
                request.params.push((name.clone(), value.clone()));
            }
            Action::ReplaceMessage { message, text } => {
                request.messages =
                    request.messages.iter().map(|known| replaced(known, message, text)).collect();
            }
            Action::SetState { .. }
            | Action::End
            | Action::SkipInference
            | Action::DropCall { .. }
            | Action::SetArguments { .. }
            | Action::Block { .. }
            | Action::Suspend(_)
            | Action::SetResult(_)
            | Action::AddNote { .. } => {}
        }
    }
    request
}

/// Only in this request: the log keeps the original message.
fn replaced(message: &ModelMessage, wanted: &machine::id::MessageId, with: &str) -> ModelMessage {
    if !message.has_id(wanted) {
        return message.clone();
    }
    let text = with.to_owned();
    match message {
        ModelMessage::User { id, by, .. } => {
            ModelMessage::User { id: id.clone(), content: Arc::new(Value::from(text)), by: by.clone() }
        }
        ModelMessage::Assistant { id, reasoning, calls, .. } => ModelMessage::Assistant {
            id: id.clone(),
            text,
            reasoning: reasoning.clone(),
            calls: calls.clone(),
            sealed: None,
        },
        ModelMessage::Tool { call, .. } => ModelMessage::Tool { call: call.clone(), text },
        ModelMessage::Note { id, call, .. } => {
            ModelMessage::Note { id: id.clone(), call: call.clone(), text }
        }
        ModelMessage::Notice { .. } => ModelMessage::Notice { text },
    }
}

impl ModelTask {
    async fn work(self) -> TaskOutput {
        for phase in &self.ask_first {
            let (mut hooks, guard) = self.hooks.ask(subject_before(*phase, &self.request.messages)).await;
            hooks.answers.iter_mut().for_each(|answer| self.check_replaced(answer));
            if !is_silent(&hooks) {
                let said = Input::PhaseAnswered { phase: *phase, hooks };
                return TaskOutput { body: TaskResult::Input(Box::new(said)), guard: Some(guard) };
            }
        }
        if let Some(not_before) = self.not_before {
            not_before.wait(&*self.clock).await;
        }
        let (step, attempt) = (self.request.step, self.request.attempt);
        let (said, guard) = match self.call().await {
            Ok((answered, guard)) => (Input::ModelAnswered(answered), guard),
            Err(failure) => (Input::ModelFailed { step, attempt, failure }, None),
        };
        TaskOutput { body: TaskResult::Input(Box::new(said)), guard }
    }

    /// A hook cannot replace a message that does not exist; a plugin that wants to hide a message must not believe that
    /// it succeeded. A message that the request leaves out is already hidden.
    fn check_replaced(&self, answer: &mut HookAnswer) {
        let HookOutcome::Actions(actions) = &answer.outcome else { return };
        let unknown = actions.iter().find_map(|action| match action {
            Action::ReplaceMessage { message, .. } => {
                let thread = self.thread.as_ref()?;
                (!thread.iter().any(|known| known.has_id(message))).then(|| message.clone())
            }
            Action::SetState { .. }
            | Action::End
            | Action::AddInstruction { .. }
            | Action::HideTool { .. }
            | Action::SetParam { .. }
            | Action::SkipInference
            | Action::DropCall { .. }
            | Action::SetArguments { .. }
            | Action::Block { .. }
            | Action::Suspend(_)
            | Action::SetResult(_)
            | Action::AddNote { .. } => None,
        });
        if let Some(message) = unknown {
            let why = format!("replace_message names {message}, and the thread has no such message");
            answer.outcome = HookOutcome::Failed(why);
        }
    }

    async fn call(mut self) -> Result<(ModelAnswered, Option<PluginLockGuard>), ModelFailure> {
        if let Some(bytes_max) = self.too_long {
            return Err(permanent(format!(
                "the thread has more than {bytes_max} bytes, and no model is shown that much; begin another, or give the \
                 agent a `trim`"
            )));
        }
        let Some(model) = self.model.take() else {
            return Err(permanent(format!("model {} is not configured any more", self.pinned.model)));
        };
        let (step, attempt) = (self.request.step, self.request.attempt);
        let (request, deltas) = (self.request.clone(), self.deltas.clone());
        let answer = catch_panic(async move { model.answer(request, deltas).await });
        let answer = match tokio::time::timeout(self.timeout, answer).await {
            Ok(answered) => {
                answered.unwrap_or_else(|panic| Err(permanent(format!("the model panicked: {panic}"))))?
            }
            Err(_) => return Err(timed_out(self.timeout)),
        };
        if size(&answer) > ANSWER_BYTES_MAX {
            return Err(permanent(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        let mut calls = Vec::new();
        for call in &answer.calls {
            let call = self.requested_call(call);
            // Validating against an inline schema takes a few tenths of a second at worst; let other tasks run in
            // between.
            if self.pinned.inline_tool(&call.tool).is_some() {
                tokio::task::yield_now().await;
            }
            calls.push(call);
        }
        let asked: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        let taken = if asked.is_empty() {
            Ok(std::collections::BTreeSet::new())
        } else {
            self.store.taken_call_ids(&self.lease, &asked).await
        };
        let taken = taken.map_err(|refused| ModelFailure {
            message: format!("the answer came, but {refused}"),
            retryable: true,
            retry_after_ms: None,
        })?;
        let (hooks, guard) = self.after_inference(&answer).await.unzip();
        let answered = ModelAnswered {
            step,
            attempt,
            matched: self.pinned.matched_stop_conditions(&answer.text),
            output: self.pinned.output.as_ref().map(|output| output.judge(&answer.text)),
            text: answer.text,
            reasoning: answer.reasoning,
            calls,
            usage: answer.usage,
            origin: answer.origin,
            taken,
            hooks: hooks.unwrap_or_default(),
        };
        Ok((answered, guard))
    }

    fn requested_call(&self, call: &crate::model::ModelCall) -> RequestedCall {
        let tool = ToolName::from(call.tool.as_str());
        RequestedCall {
            id: call.id.clone(),
            arguments: arguments::from_text(&call.arguments, self.schema(&tool)),
            tool,
        }
    }

    fn schema(&self, tool: &ToolName) -> Option<&arguments::Schema> {
        self.pinned.live(self.agent.as_deref(), tool).map(|live| &live.schema)
    }

    /// Arguments set by a hook are validated like the model's own. None if no plugin is asked.
    async fn after_inference(&self, answer: &ModelAnswer) -> Option<(HookAnswers, PluginLockGuard)> {
        if !self.hooks.subscribed(Phase::AfterInference) {
            return None;
        }
        let shared = Arc::new(answer.clone());
        let (mut hooks, guard) = self.hooks.ask(Subject::AfterInference { answer: shared }).await;
        for one in &mut hooks.answers {
            let HookOutcome::Actions(actions) = &mut one.outcome else { continue };
            for action in actions {
                if let Action::SetArguments { index, arguments } = action
                    && let Arguments::Valid { value, .. } = arguments
                {
                    let tool = answer.calls.get(usize::from(*index)).map(|call| ToolName::from(&*call.tool));
                    let schema = tool.as_ref().and_then(|tool| self.schema(tool));
                    *arguments = arguments::from_value(value.clone(), schema);
                }
            }
        }
        Some((hooks, guard))
    }
}

fn subject_before(phase: Phase, messages: &Messages) -> Subject {
    if phase == Phase::BeforeInference {
        Subject::BeforeInference { messages: messages.clone() }
    } else {
        Subject::StepStart
    }
}

fn timed_out(after: Duration) -> ModelFailure {
    ModelFailure { message: format!("no answer within {after:?}"), retryable: true, retry_after_ms: None }
}

const fn permanent(message: String) -> ModelFailure {
    ModelFailure { message, retryable: false, retry_after_ms: None }
}

fn size(answer: &ModelAnswer) -> usize {
    let calls: usize = answer.calls.iter().map(|call| call.arguments.len() + call.tool.len()).sum();
    let sealed = answer.origin.sealed.as_ref().map_or(0, |sealed| sealed.content.len());
    answer.text.len() + answer.reasoning.as_ref().map_or(0, String::len) + calls + sealed
}
