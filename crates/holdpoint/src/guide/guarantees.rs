//! Guarantees: what you can rely on, and what you cannot.
//!
//! # Promised
//!
//! - **A call that must be held never runs without approval.** A missing, malformed, expired or late answer runs
//!   nothing.
//! - **What runs is what was approved**: these arguments, this tool definition, once. The engine checks again right
//!   before it sends the call.
//! - **The start of a call is stored before the call is sent.** So after a crash it is known which calls may have
//!   happened.
//! - **A tool with side effects is never repeated without asking.** If the call may have happened, a person is asked.
//! - **What was acknowledged survives**, as far as the store does: an accepted decision, a posted message, a seen
//!   event.
//! - **An event that you have seen is stored**, events have no gaps, and a run ends exactly once.
//! - **Calls are independent.** A held call does not delay its siblings, and a slow sibling does not delay a decision.
//! - **A transcript is always valid**: one result for each call, in order, whatever was denied, cancelled or lost.
//! - **Logs stay readable.** Every later version can read a log that an earlier version has written.
//!
//! # Not promised
//!
//! - **That an effect happens exactly once.** The intent is stored, then the call is sent; what happens between sending
//!   and answering is outside Holdpoint's control. What is promised is that a *person* decides whether a call with side
//!   effects is retried. If that person orders a retry although the call had taken effect, it takes effect twice,
//!   unless the tool honours its idempotency key.
//! - **Anything about a tool that ignores its idempotency key** and is declared `idempotent`. It is repeated after a
//!   crash, a timeout or a lost answer, as its declaration allows.
//! - **That a model is called once per step.** A call that fails or dies with its process is made again, and a provider
//!   may bill both. The tokens of an answer that was never received count against no budget.
//! - **Deltas.** They may be missed, and start over with another attempt. The event carries the whole text.
//! - **That a tool stops when it is cancelled.** An interrupted run does not wait for it. The tool may still act, and
//!   the log records that its outcome is unknown.
//! - **That hooks are called once.** A plugin whose answer was not stored is called again. Keep any side effects of its
//!   hooks harmless.
//! - **Order between siblings.** Parallel calls start and finish in any order; the transcript lists them in the model's
//!   order.
//! - **Secrets.** Arguments and results are stored as they are. Keep anything that must not be in the log out of them.
