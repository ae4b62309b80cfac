//! Feeds of runs, written as stories, and the streams that the encoder makes of them.

use protocols::ag_ui::{AgUiDialect, AgUiEncoder, AgUiEvent, AgUiRequest, AgUiSegment, AgUiVerifier};
use protocols::feed::{
    Body, CompletedReason, Item, RequestedCall, RunEnd, Suspension, SuspensionKind, Usage, WaitingOn,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::Client;

pub(crate) const DIALECTS: [AgUiDialect; 2] = [AgUiDialect::V1_0, AgUiDialect::Before];

/// The items of one run on thread `thr_1`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) items: Vec<Item>,
    seq: u64,
    step: Option<u32>,
}

pub(crate) fn call(id: &str, tool: &str, arguments: Value) -> RequestedCall {
    RequestedCall { call_id: id.into(), tool: tool.into(), arguments }
}

pub(crate) fn transfer(id: &str, to: &str) -> RequestedCall {
    call(id, "transfer", json!({"amount": 5, "to": to}))
}

pub(crate) fn suspension(id: &str, kind: SuspensionKind) -> Suspension {
    Suspension { id: id.into(), kind, question: None, schema: None, expires_at: None }
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.into()).unwrap()
}

impl Story {
    /// Queued, started and asked.
    pub(crate) fn begin(question: &str) -> Self {
        let mut story = Self::default();
        story.event(Body::RunQueued);
        story.event(Body::RunStarted);
        story.event(Body::UserMessage { id: "u1".into(), content: json!(question) });
        story
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn event(&mut self, body: Body) -> &mut Self {
        self.seq += 1;
        self.item(Some(self.seq), body)
    }

    pub(crate) fn live(&mut self, body: Body) -> &mut Self {
        self.item(None, body)
    }

    fn item(&mut self, seq: Option<u64>, body: Body) -> &mut Self {
        let at = 1_000 + i64::try_from(self.items.len()).unwrap();
        let (thread_id, run_id) = ("thr_1".into(), "run_1".into());
        self.items.push(Item { thread_id, run_id, seq, step: self.step, at, body });
        self
    }

    pub(crate) fn message_id(&self) -> String {
        format!("msg_run_1_{}", self.step.unwrap_or_default())
    }

    pub(crate) fn start_step(&mut self) -> &mut Self {
        self.step = Some(self.step.unwrap_or_default() + 1);
        let message_id = self.message_id();
        self.event(Body::StepStarted { message_id })
    }

    pub(crate) fn end_step(&mut self) -> &mut Self {
        let message_id = self.message_id();
        self.event(Body::StepEnded { message_id })
    }

    pub(crate) fn text_delta(&mut self, attempt: u32, offset: u64, text: &str) -> &mut Self {
        let message_id = self.message_id();
        self.live(Body::TextDelta { message_id, attempt, offset, text: text.into() })
    }

    pub(crate) fn reasoning_delta(&mut self, attempt: u32, offset: u64, text: &str) -> &mut Self {
        let message_id = self.message_id();
        self.live(Body::ReasoningDelta { message_id, attempt, offset, text: text.into() })
    }

    pub(crate) fn reset(&mut self, attempt: u32) -> &mut Self {
        let message_id = self.message_id();
        self.live(Body::StepReset { message_id, attempt })
    }

    /// The whole answer, and the request of each of its calls.
    pub(crate) fn answer(&mut self, text: &str, calls: &[RequestedCall]) -> &mut Self {
        self.answer_with_reasoning(text, None, calls)
    }

    pub(crate) fn answer_with_reasoning(
        &mut self,
        text: &str,
        reasoning: Option<&str>,
        calls: &[RequestedCall],
    ) -> &mut Self {
        let (id, reasoning) = (self.message_id(), reasoning.map(str::to_owned));
        self.event(Body::AssistantMessage { id, text: text.into(), reasoning, calls: calls.to_vec() });
        for call in calls {
            self.event(Body::CallRequested { call: call.clone() });
        }
        self
    }

    /// A last step without calls, and the end of the run.
    pub(crate) fn final_answer(&mut self, text: &str) -> &mut Self {
        self.start_step().answer(text, &[]).end_step().complete()
    }

    pub(crate) fn ask_approval(&mut self, call: &RequestedCall, approval_id: &str) -> &mut Self {
        let (call, approval_id) = (call.clone(), approval_id.into());
        self.event(Body::ApprovalRequested { call, approval_id, expires_at: None })
    }

    pub(crate) fn suspend(&mut self, call: &RequestedCall, id: &str, kind: SuspensionKind) -> &mut Self {
        self.event(Body::Suspended { call: call.clone(), suspension: suspension(id, kind) })
    }

    pub(crate) fn wait(&mut self, on: WaitingOn) -> &mut Self {
        self.event(Body::RunWaiting { on })
    }

    pub(crate) fn resume(&mut self) -> &mut Self {
        self.event(Body::RunResumed)
    }

    pub(crate) fn approve(
        &mut self,
        call: &RequestedCall,
        approval_id: &str,
        arguments: Option<Value>,
    ) -> &mut Self {
        let (call_id, tool, by) = (call.call_id.clone(), call.tool.clone(), "ana".into());
        let (approval_id, reason) = (approval_id.into(), "no reason given".into());
        self.event(Body::Approved { call_id, tool, approval_id, by, reason, arguments })
    }

    pub(crate) fn deny(
        &mut self,
        call: &RequestedCall,
        approval_id: &str,
        by: &str,
        reason: &str,
    ) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        let (approval_id, by, reason) = (approval_id.into(), by.into(), reason.into());
        self.event(Body::Denied { call_id, tool, approval_id, by, reason })
    }

    pub(crate) fn resume_call(&mut self, call: &RequestedCall, suspension_id: &str) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.event(Body::CallResumed { call_id, tool, suspension_id: suspension_id.into() })
    }

    pub(crate) fn execute(&mut self, call: &RequestedCall) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.event(Body::ExecutionStarted { call_id, tool, attempt: 1 })
    }

    pub(crate) fn succeed(&mut self, call: &RequestedCall, result: &str) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.event(Body::Succeeded { call_id, tool, result: raw(result), warning: None })
    }

    pub(crate) fn fail(&mut self, call: &RequestedCall, message: &str) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.event(Body::Failed { call_id, tool, message: message.into(), outcome_unknown: false })
    }

    pub(crate) fn cancel(&mut self, call: &RequestedCall, reason: &str) -> &mut Self {
        let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
        self.event(Body::Cancelled { call_id, tool, reason: reason.into(), outcome_unknown: false })
    }

    pub(crate) fn tool_message(&mut self, call: &RequestedCall, text: &str) -> &mut Self {
        let (id, call_id) = (format!("msg_{}", call.call_id), call.call_id.clone());
        self.event(Body::ToolMessage { id, call_id, text: text.into() })
    }

    pub(crate) fn complete(&mut self) -> &mut Self {
        self.step = None;
        let end = RunEnd::Completed { reason: CompletedReason::NaturalEnd, code: None, detail: None };
        self.event(Body::RunEnded { end, usage: Usage { input_tokens: 60, output_tokens: 27 } })
    }

    pub(crate) fn end(&mut self, end: RunEnd) -> &mut Self {
        self.event(Body::RunEnded { end, usage: Usage::default() })
    }
}

pub(crate) const fn version(dialect: AgUiDialect) -> Option<&'static str> {
    match dialect {
        AgUiDialect::V1_0 => Some("1.0"),
        AgUiDialect::Before => None,
    }
}

/// The segment for the next request of this client.
pub(crate) fn segment(client: &Client, dialect: AgUiDialect, run_id: &str, new_after: u64) -> AgUiSegment {
    let request = AgUiRequest::parse(&client.input(run_id, version(dialect))).unwrap();
    AgUiSegment { new_after, ..AgUiSegment::for_request(&request) }
}

/// A stream whose every event passed the verifier.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) encoder: AgUiEncoder,
    pub(crate) verifier: AgUiVerifier,
    pub(crate) events: Vec<Value>,
}

impl Stream {
    pub(crate) fn open(segment: AgUiSegment) -> Self {
        let verifier = AgUiVerifier::new(segment.dialect);
        let mut stream = Self { encoder: AgUiEncoder::new(segment), verifier, events: Vec::new() };
        let first = stream.encoder.start();
        stream.receive(first);
        stream
    }

    pub(crate) fn receive(&mut self, events: Vec<AgUiEvent>) {
        for event in events {
            let value = event.to_value();
            assert_eq!(value, serde_json::from_str::<Value>(&event.to_json()).unwrap());
            if let Err(fault) = self.verifier.check(&value) {
                panic!("{fault}\n{value:#}\nafter {:#?}", self.events);
            }
            self.events.push(value);
        }
    }

    pub(crate) fn push(&mut self, item: &Item) {
        let events = self.encoder.push(item);
        self.receive(events);
    }

    pub(crate) fn end_commit(&mut self) {
        let events = self.encoder.end_commit();
        self.receive(events);
    }

    pub(crate) fn push_all(&mut self, items: &[Item]) -> &mut Self {
        for item in items {
            self.push(item);
        }
        self
    }

    pub(crate) fn types(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    /// The events of one type.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    pub(crate) fn last(&self) -> &Value {
        self.events.last().unwrap()
    }

    pub(crate) fn assert_done(&self) {
        assert!(self.encoder.is_done(), "{:#?}", self.events);
        self.verifier.finish().unwrap();
    }
}

/// A whole segment, which has to end. The client applies it.
pub(crate) fn play(client: &mut Client, segment: AgUiSegment, items: &[Item]) -> Stream {
    let mut stream = Stream::open(segment);
    stream.push_all(items);
    stream.assert_done();
    client.apply_all(&stream.events);
    stream
}
