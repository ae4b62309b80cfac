//! Models: how to add your own.
//!
//! A model is one function from a [`ModelRequest`](crate::model::ModelRequest) (the transcript and the tools) to a
//! [`ModelAnswer`](crate::model::ModelAnswer) (a text and the calls it asks for). The feature `providers` adds
//! `model::RemoteModel` for OpenAI, Anthropic, Gemini, Ollama and OpenAI-compatible servers. To write your own,
//! implement that function:
//!
//! ```
//! use holdpoint::prelude::*;
//!
//! struct Parrot;
//!
//! impl Model for Parrot {
//!     fn answer<'a>(
//!         &'a self,
//!         request: ModelRequest,
//!         deltas: Deltas,
//!     ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
//!         Box::pin(async move {
//!             let said = request.last_user_text().unwrap_or("nothing").to_owned();
//!             // Partial text is for subscribers; the answer carries the whole text.
//!             deltas.text(&said);
//!             Ok(ModelAnswer::text(said))
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::on(MemoryStore::new()).agent(Agent::new("parrot", Parrot)).start().await?;
//! assert_eq!(engine.run(Message::to("parrot", "hello")).await?.text, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! What an implementation has to translate:
//!
//! - [`instructions`](crate::model::ModelRequest::instructions) go where the provider expects the system prompt.
//! - [`messages`](crate::model::ModelRequest::messages) are valid as they are: every call that the model ever asked for
//!   has exactly one result, directly after the message that asked, even if the call was cancelled or denied. Send a
//!   [`Note`](crate::model::ModelMessage::Note) and a [`Notice`](crate::model::ModelMessage::Notice) in the user's
//!   role.
//! - [`tools`](crate::model::ModelRequest::tools) carry a name, a description and a JSON Schema.
//! - A call's id may be empty or repeat an earlier one; the engine makes it unique. Its arguments are text, whether
//!   valid JSON or not: invalid arguments fail the call, and the model reads why.
//! - Dropping the future cancels the call to the provider.
//!
//! # Failures
//!
//! A [`ModelFailure`](crate::model::ModelFailure) says whether a retry may help and, if the provider said so, when to
//! retry. A retryable failure is retried, up to three attempts in all unless [`Limits`](crate::agent::Limits) say
//! otherwise, and every retry is announced as `model.retrying`. After the last attempt, or at once if the failure is
//! permanent, the run ends with an error.
//!
//! # In tests
//!
//! [`ScriptedModel`](crate::model::ScriptedModel) answers the run's k-th call with the k-th reply and repeats the last
//! one, with deltas, delays and failures if you want them. A [script](crate::model::scripted) is the same as a JSON
//! file, with rules that match what the user said.
