//! Builds the items of one run, in the order in which the engine stores them.

use protocols::feed::{
    Body, CompletedReason, Item, RequestedCall, RunEnd, Suspension, SuspensionKind, Usage, WaitingOn,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) const RUN: &str = "run_1";
pub(crate) const MESSAGE: &str = "msg_run_1";

#[derive(Clone, Debug, Default)]
pub(crate) struct RunScript {
    pub(crate) items: Vec<Item>,
    /// For each time the run began to wait: the number of items up to then.
    pub(crate) waits: Vec<usize>,
    step: u32,
    seq: u64,
    text_offset: u64,
    reasoning_offset: u64,
    attempt: u32,
}

pub(crate) fn call(id: &str, tool: &str) -> RequestedCall {
    RequestedCall { call_id: id.into(), tool: tool.into(), arguments: json!({"of": id}) }
}

impl RunScript {
    /// A run that has just begun its first step.
    pub(crate) fn begun() -> Self {
        let mut script = Self::default();
        script.stored(Body::RunQueued);
        script.stored(Body::RunStarted);
        script.stored(Body::UserMessage { id: "user_1".into(), content: json!("hi") });
        script.step();
        script
    }

    pub(crate) fn stored(&mut self, body: Body) -> &mut Self {
        self.seq += 1;
        let seq = Some(self.seq);
        self.push(seq, body)
    }

    pub(crate) fn live(&mut self, body: Body) -> &mut Self {
        self.push(None, body)
    }

    fn push(&mut self, seq: Option<u64>, body: Body) -> &mut Self {
        let step = (self.step > 0).then_some(self.step);
        self.items.push(Item { thread_id: "thr_1".into(), run_id: RUN.into(), seq, step, at: 0, body });
        self
    }

    pub(crate) fn message_id(&self) -> String {
        format!("msg_{RUN}_{}", self.step)
    }

    pub(crate) fn step(&mut self) -> &mut Self {
        self.step += 1;
        (self.text_offset, self.reasoning_offset, self.attempt) = (0, 0, 1);
        let message_id = self.message_id();
        self.stored(Body::StepStarted { message_id })
    }

    pub(crate) fn step_ended(&mut self) -> &mut Self {
        let message_id = self.message_id();
        self.stored(Body::StepEnded { message_id })
    }

    pub(crate) fn delta(&mut self, text: &str) -> &mut Self {
        let offset = self.text_offset;
        self.text_offset += text.chars().count() as u64;
        self.delta_at(offset, text)
    }

    pub(crate) fn delta_at(&mut self, offset: u64, text: &str) -> &mut Self {
        let (message_id, attempt) = (self.message_id(), self.attempt);
        self.live(Body::TextDelta { message_id, attempt, offset, text: text.into() })
    }

    pub(crate) fn reasoning_delta(&mut self, text: &str) -> &mut Self {
        let (message_id, attempt, offset) = (self.message_id(), self.attempt, self.reasoning_offset);
        self.reasoning_offset += text.chars().count() as u64;
        self.live(Body::ReasoningDelta { message_id, attempt, offset, text: text.into() })
    }

    pub(crate) fn reset(&mut self) -> &mut Self {
        (self.text_offset, self.reasoning_offset) = (0, 0);
        self.attempt += 1;
        let (message_id, attempt) = (self.message_id(), self.attempt);
        self.stored(Body::ModelRetrying { attempt });
        self.live(Body::StepReset { message_id, attempt })
    }

    pub(crate) fn answer(&mut self, text: &str, calls: &[RequestedCall]) -> &mut Self {
        self.answer_with_reasoning(None, text, calls)
    }

    pub(crate) fn answer_with_reasoning(
        &mut self,
        reasoning: Option<&str>,
        text: &str,
        calls: &[RequestedCall],
    ) -> &mut Self {
        let (id, calls) = (self.message_id(), calls.to_vec());
        let reasoning = reasoning.map(str::to_owned);
        self.stored(Body::AssistantMessage { id, text: text.into(), reasoning, calls: calls.clone() });
        for call in calls {
            self.stored(Body::CallRequested { call });
        }
        self
    }

    pub(crate) fn ask(&mut self, call: &RequestedCall, approval_id: &str) -> &mut Self {
        self.stored(Body::ApprovalRequested {
            call: call.clone(),
            approval_id: approval_id.into(),
            expires_at: None,
        })
    }

    pub(crate) fn suspend(&mut self, call: &RequestedCall, id: &str, kind: SuspensionKind) -> &mut Self {
        let question = (kind == SuspensionKind::Question).then(|| "Which one?".to_owned());
        let schema = (kind == SuspensionKind::Question).then(|| json!({"type": "string"}));
        let suspension = Suspension { id: id.into(), kind, question, schema, expires_at: None };
        self.stored(Body::Suspended { call: call.clone(), suspension })
    }

    pub(crate) fn waits(&mut self, on: WaitingOn) -> &mut Self {
        self.stored(Body::RunWaiting { on });
        self.waits.push(self.items.len());
        self
    }

    pub(crate) fn waits_for_approval(&mut self) -> &mut Self {
        self.waits(WaitingOn::Approval)
    }

    pub(crate) fn resumed(&mut self) -> &mut Self {
        self.stored(Body::RunResumed)
    }

    pub(crate) fn approved(&mut self, call: &RequestedCall, approval_id: &str) -> &mut Self {
        self.approved_with(call, approval_id, None)
    }

    pub(crate) fn approved_with(
        &mut self,
        call: &RequestedCall,
        approval_id: &str,
        arguments: Option<Value>,
    ) -> &mut Self {
        self.stored(Body::Approved {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            approval_id: approval_id.into(),
            by: "ana".into(),
            reason: "no reason given".into(),
            arguments,
        })
    }

    pub(crate) fn denied(&mut self, call: &RequestedCall, approval_id: &str) -> &mut Self {
        self.stored(Body::Denied {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            approval_id: approval_id.into(),
            by: "ana".into(),
            reason: "not today".into(),
        })
    }

    pub(crate) fn executing(&mut self, call: &RequestedCall) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.stored(Body::ExecutionStarted { call_id, tool, attempt: 1 })
    }

    pub(crate) fn call_resumed(&mut self, call: &RequestedCall, suspension_id: &str) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.stored(Body::CallResumed { call_id, tool, suspension_id: suspension_id.into() })
    }

    pub(crate) fn succeeded(&mut self, call: &RequestedCall, result: &str) -> &mut Self {
        self.succeeded_with(call, result, None)
    }

    pub(crate) fn succeeded_with(
        &mut self,
        call: &RequestedCall,
        result: &str,
        warning: Option<&str>,
    ) -> &mut Self {
        self.stored(Body::Succeeded {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            result: RawValue::from_string(result.into()).unwrap(),
            warning: warning.map(str::to_owned),
        })
    }

    pub(crate) fn failed(&mut self, call: &RequestedCall, message: &str) -> &mut Self {
        self.stored(Body::Failed {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            message: message.into(),
            outcome_unknown: false,
        })
    }

    pub(crate) fn cancelled(&mut self, call: &RequestedCall, reason: &str) -> &mut Self {
        self.stored(Body::Cancelled {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            reason: reason.into(),
            outcome_unknown: false,
        })
    }

    /// Approved, executed and settled, in one go.
    pub(crate) fn runs_approved(&mut self, call: &RequestedCall, approval_id: &str) -> &mut Self {
        self.approved(call, approval_id).resumed().executing(call).succeeded(call, r#"{"sent":true}"#)
    }

    /// The step is over, and another one follows with the last answer.
    pub(crate) fn ends_with(&mut self, text: &str) -> &mut Self {
        self.step_ended().step().answer(text, &[]).step_ended().completed(CompletedReason::NaturalEnd)
    }

    pub(crate) fn completed(&mut self, reason: CompletedReason) -> &mut Self {
        let code = (reason == CompletedReason::Stopped).then(|| "max_rounds".to_owned());
        self.ended(RunEnd::Completed { reason, code, detail: None })
    }

    pub(crate) fn ended(&mut self, end: RunEnd) -> &mut Self {
        let usage = Usage { input_tokens: 10, output_tokens: 5 };
        self.step = 0;
        self.stored(Body::RunEnded { end, usage })
    }
}
