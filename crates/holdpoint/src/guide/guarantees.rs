//! Promises: what you can build on, and what you cannot.
//!
//! # Promised
//!
//! - **Nothing runs that was to be held and was not allowed.** A missing, malformed, expired or late answer runs nothing.
//! - **What runs is what was approved**: these arguments, this definition of the tool, once. It is checked again right
//!   before it is sent.
//! - **The start of a call is stored before the call is sent.** So after a crash it is known which calls may have happened.
//! - **A tool with an effect is never repeated behind your back.** If it may have happened, a person is asked.
//! - **What was acknowledged survives**, as far as the store does: an accepted decision, a posted message, a seen event.
//! - **An event that you have seen is stored**, events have no gaps, and a run ends exactly once.
//! - **Calls are independent.** No held call delays a sibling, no slow sibling delays a decision.
//! - **A transcript is always valid**: one result for each call, in order, whatever was denied, cancelled or lost.
//! - **Logs stay readable.** A log that a version has written is read by every later one.
//!
//! # Not promised
//!
//! - **That an effect happens exactly once.** The intent is stored, then the call is sent; between sending and answering
//!   lies the world. What is promised is that a *person* decides whether a tool with an effect is tried again. Whoever
//!   tells the engine to try again, and was wrong, has two effects, unless the tool heeds its key.
//! - **Anything about a tool that ignores its idempotency key** and is declared `idempotent`. It is repeated after a crash,
//!   a timeout or a lost answer, as its declaration allows.
//! - **That a model is called once per step.** A call that dies with its process, or fails, is made again, and a provider
//!   may bill both. The tokens of an answer that nobody received count against no budget.
//! - **Deltas.** They may be missed, and start over with another attempt. The event carries the whole.
//! - **That a tool stops when it is told to.** An interrupted run does not wait for it; it may still act, and the log says
//!   that its outcome is unknown.
//! - **That hooks are asked once.** A plugin whose answer was not stored is asked again. Keep what it does outside of its
//!   answer harmless.
//! - **Order between siblings.** Parallel calls start and settle in any order; the transcript has them in the model's.
//! - **Secrets.** Arguments and results are stored as they are. What must not be in the log must not be in them.
