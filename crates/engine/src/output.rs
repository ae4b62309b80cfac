//! What a run ends with: its final answer, and the output that it has to end with: its schema, the instructions about it,
//! and whether an answer matches.

use std::sync::Arc;

use machine::event::{Fact, Message};
use machine::id::RunId;
use machine::output::{JudgedOutput, OutputFit, stored_output};
use machine::projection_rows::PublicRunStatus;
use serde_json::Value;

use crate::engine::Engine;
use crate::schema::Schema;
use crate::store::{LogEntry, RunView, StoreError, Tenant};

/// Events per read from the end of a log. The final answer is nearly always among the last few.
const TAIL_READ: u64 = 32;

/// A compiled schema with its text.
pub(crate) struct WantedOutput {
    pub(crate) schema: Arc<Value>,
    compiled: Schema,
}

impl WantedOutput {
    /// The agent's own schema.
    pub(crate) fn configured(schema: &Arc<Value>) -> Result<Self, String> {
        let compiled = Schema::compile(schema).map_err(|why| format!("this is no JSON Schema: {why}"))?;
        Ok(Self { schema: schema.clone(), compiled })
    }

    /// A schema that came with a message.
    pub(crate) fn sent(schema: &Arc<Value>) -> Result<Self, String> {
        let compiled =
            Schema::compile_sent(schema).map_err(|why| format!("this is no JSON Schema: {why}"))?;
        Ok(Self { schema: schema.clone(), compiled })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.compiled.bytes()
    }

    pub(crate) fn judge(&self, text: &str) -> OutputFit {
        OutputFit::check(text, |value| self.compiled.fault(value))
    }

    /// Appended to the agent's own instructions: not every provider has a separate field for the schema, and with none
    /// of them does that field make the instruction unnecessary.
    pub(crate) fn instructions_with_schema(&self, instructions: &str) -> Arc<str> {
        let sentence = format!(
            "Your last answer must be JSON that fits this JSON Schema, and nothing else: {}",
            self.schema
        );
        Arc::from(if instructions.is_empty() { sentence } else { format!("{instructions}\n\n{sentence}") })
    }
}

impl Engine {
    /// The output of a run that ended with the requested output. None for any other run.
    pub async fn output(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Value>, StoreError> {
        let Some(view) = self.view(tenant, run).await? else { return Err(StoreError::NotFound) };
        let control = view.decoded()?;
        let (Some(_), Some(JudgedOutput::Fits { seq })) = (control.ended(), &control.output) else {
            return Ok(None);
        };
        let events = self.store().events(tenant, run, seq.saturating_sub(1), 1).await?;
        let answer = events.first().map(LogEntry::decoded).transpose()?;
        let Some(Fact::MessageAdded(Message::Assistant { text, .. })) =
            answer.map(|committed| &committed.event.fact)
        else {
            return Err(StoreError::Impossible(format!("event {seq} of run {run} is no answer")));
        };
        Ok(stored_output(text))
    }

    /// The final answer of a completed run: the text of the last step, unless that step asked for calls. None for any
    /// other run. Reads the log from its end, and no further than the start of the last step.
    pub async fn final_text(&self, tenant: &Tenant, run: &RunView) -> Result<Option<String>, StoreError> {
        if run.status != PublicRunStatus::Completed {
            return Ok(None);
        }
        let mut until = run.seq;
        while until > 0 {
            let from = until.saturating_sub(TAIL_READ);
            let limit = usize::try_from(until - from).unwrap_or(usize::MAX);
            let events = self.store().events(tenant, &run.id, from, limit).await?;
            for entry in events.iter().rev() {
                let fact = &entry.decoded()?.event.fact;
                if let Fact::MessageAdded(Message::Assistant { text, calls, .. }) = fact {
                    return Ok(calls.is_empty().then(|| text.clone()));
                }
                if matches!(fact, Fact::ToolRequested { .. } | Fact::StepStarted { .. }) {
                    return Ok(None);
                }
            }
            until = from;
        }
        Ok(None)
    }
}
