//! Models: how to bring one.
//!
//! A model is one function from a [`ModelRequest`](crate::model::ModelRequest), the transcript and the tools, to a
//! [`ModelAnswer`](crate::model::ModelAnswer), a text and the calls it asks for. With the feature
//! `providers` there is `model::RemoteModel`, which speaks to OpenAI, Anthropic, Gemini, Ollama and whoever speaks like
//! OpenAI; a model of your own is one function:
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
//!             // Words on their way are for whoever watches; the answer carries the whole.
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
//! - [`instructions`](crate::model::ModelRequest::instructions) go where the provider wants the system prompt.
//! - [`messages`](crate::model::ModelRequest::messages) are valid as they are: every call that the model ever asked for
//!   has exactly one result, directly behind the message that asked, cancelled and denied calls too. A
//!   [`Note`](crate::model::ModelMessage::Note) and a [`Notice`](crate::model::ModelMessage::Notice) are sent in the
//!   user's role.
//! - [`tools`](crate::model::ModelRequest::tools) carry a name, a description and a JSON Schema.
//! - A call's id may be empty or repeat an earlier one; it is made unique. Its arguments are text, JSON or not: bad ones
//!   fail the call, and the model is told why.
//! - Dropping the future cancels the call to the provider.
//!
//! # Failures
//!
//! A [`ModelFailure`](crate::model::ModelFailure) says whether trying again may help and, if the provider said so, when.
//! A retryable one is tried again, three times in all unless [`Limits`](crate::agent::Limits) say otherwise, and every
//! retry is announced as `model.retrying`. Then, or for good at once, the run ends with an error.
//!
//! # In tests
//!
//! [`ScriptedModel`](crate::model::ScriptedModel) gives the run's k-th call the k-th reply and repeats the last one, with
//! deltas, delays and failures if you want them. A [script](crate::model::scripted) is the same as a JSON file, with
//! rules on what the user said.
