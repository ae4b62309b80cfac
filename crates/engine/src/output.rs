//! The output that a run has to end with: its schema, what the model is told of it, and whether an answer fits.

use std::sync::Arc;

use machine::depth::too_deep;
use machine::event::{Fact, Message};
use machine::id::RunId;
use machine::output::{JudgedOutput, OutputFit, object_in};
use serde_json::Value;

use crate::arguments::Schema;
use crate::engine::Engine;
use crate::store::{Refused, Tenant};

/// Of a schema that comes with a message.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// A compiled schema beside its text.
pub(crate) struct WantedOutput {
    pub(crate) schema: Arc<Value>,
    compiled: Schema,
}

impl WantedOutput {
    pub(crate) fn compile(schema: &Arc<Value>) -> Result<Self, String> {
        let compiled = Schema::compile(schema).map_err(|why| format!("this is no JSON Schema: {why}"))?;
        Ok(Self { schema: schema.clone(), compiled })
    }

    pub(crate) fn judge(&self, text: &str) -> OutputFit {
        OutputFit::of(text, |value| self.compiled.fault(value))
    }

    /// Behind the agent's own instructions: not every provider has another place for it, and none has one that makes
    /// saying it superfluous.
    pub(crate) fn told_after(&self, instructions: &str) -> Arc<str> {
        let told = format!(
            "Your last answer must be JSON that fits this JSON Schema, and nothing else: {}",
            self.schema
        );
        Arc::from(if instructions.is_empty() { told } else { format!("{instructions}\n\n{told}") })
    }
}

/// Whether a schema that somebody sent may be looked at at all.
pub(crate) fn check_size(schema: &Value) -> Result<(), String> {
    if too_deep(schema) || schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(format!("it is nested too deeply, or has more than {SCHEMA_BYTES_MAX} bytes"));
    }
    Ok(())
}

impl Engine {
    /// The output of a run that ended with the one that was wanted. None of any other run.
    pub async fn output(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Value>, Refused> {
        let Some(view) = self.view(tenant, run).await? else { return Err(Refused::NotFound) };
        let (Some(_), Some(JudgedOutput::Fits { seq })) = (view.control.ended(), &view.control.output) else {
            return Ok(None);
        };
        let events = self.store().events(tenant, run, seq.saturating_sub(1), 1).await?;
        let Some(Fact::MessageAdded(Message::Assistant { text, .. })) =
            events.first().map(|committed| &committed.event.fact)
        else {
            return Err(Refused::Impossible(format!("event {seq} of run {run} is no answer")));
        };
        Ok(object_in(text).ok())
    }
}
