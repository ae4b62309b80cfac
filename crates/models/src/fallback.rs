//! Several models for one agent: when one has used up its tries, the next one answers the same step.
//!
//! The attempt number determines the model, so nothing has to be stored between attempts, and a worker that takes over
//! a run continues with the same model. Each step begins with the first model.
//!
//! ```
//! use std::sync::Arc;
//! use models::fallback::FallbackModel;
//! use models::scripted::{Reply, ScriptedModel};
//!
//! let main = Arc::new(ScriptedModel::replying([Reply::error(503, "overloaded")]));
//! let backup = Arc::new(ScriptedModel::replying([Reply::text("Good morning.")]));
//! let model = FallbackModel::new(3, ("main".to_owned(), main), [("backup".to_owned(), backup as _)]);
//! // For the limits of the agent: three of each.
//! assert_eq!(model.try_count(), 6);
//! ```

use std::sync::Arc;

use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::store::BoxFuture;

/// A model with its name in the log.
pub type NamedModel = (String, Arc<dyn Model>);

/// The first model, and the fallback models in order.
#[derive(Debug)]
pub struct FallbackModel {
    /// At least one.
    models: Vec<NamedModel>,
    tries_each: u32,
}

impl FallbackModel {
    /// `tries_each`: how often one model may fail before the next one is asked; at least once.
    pub fn new(tries_each: u32, first: NamedModel, then: impl IntoIterator<Item = NamedModel>) -> Self {
        Self { models: [first].into_iter().chain(then).collect(), tries_each: tries_each.max(1) }
    }

    /// How often all models together may fail.
    #[must_use]
    pub fn try_count(&self) -> u32 {
        self.tries_each.saturating_mul(u32::try_from(self.models.len()).unwrap_or(u32::MAX))
    }

    /// Index of the model for an attempt; attempts are counted from 1.
    fn model_index(&self, attempt: u32) -> usize {
        let last = self.models.len().saturating_sub(1);
        usize::try_from(attempt.saturating_sub(1) / self.tries_each).map_or(last, |index| index.min(last))
    }
}

impl Model for FallbackModel {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let index = self.model_index(request.attempt);
            let (now, next) =
                (self.models.get(index), self.models.get(self.model_index(request.attempt + 1)));
            let (Some((name, model)), Some((next, _))) = (now, next) else {
                let message = "there is no model to ask".to_owned();
                return Err(ModelFailure { message, retryable: false, retry_after_ms: None });
            };
            let is_last = index + 1 == self.models.len();
            let failure = match model.answer(request, deltas).await {
                Ok(mut answer) => {
                    answer.origin.model = Some(name.clone());
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let message = format!("{name}: {}", failure.message);
            Err(if is_last {
                ModelFailure { message, ..failure }
            } else if next == name {
                // An error that is permanent for one model may not occur with the next, so the failure is retryable.
                ModelFailure { message, retryable: true, ..failure }
            } else {
                // The requested delay does not apply, because another model is asked next.
                let message = format!("{message}; {next} is asked next");
                ModelFailure { message, retryable: true, retry_after_ms: None }
            })
        })
    }
}
