//! Events and deltas: how to watch a run, live and after a reconnect.
//!
//! A run is a log of [`Event`](crate::event::Event)s. Each has a sequence number (`seq`, starting at 1, without gaps),
//! a time, and a [`Fact`](crate::event::Fact) in the past tense. An event is published only after it was stored, so
//! whatever you have seen has happened. The last event of every log is `run.ended`, and a subscription ends after it.
//!
//! A [`Subscription`](crate::event::Subscription) can start after any sequence number. Reconnect with the last number
//! you saw to receive exactly the events you missed, from memory or from the store. There is no
//! replay window after which they are gone.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clerk = Agent::new("clerk", ScriptedModel::replying([Reply::text("Good morning.")]));
//! # let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//! let (posted, mut events) = engine.stream(Message::to("clerk", "Hello")).await?;
//! let mut seen = Vec::new();
//! while let Some(item) = events.next().await {
//!     match item? {
//!         FeedItem::Event(committed) => seen.push((committed.event.seq, committed.event.fact.name())),
//!         FeedItem::Unreadable(_) | FeedItem::Live(_) => {}
//!     }
//! }
//! assert_eq!(seen.first(), Some(&(1, "run.queued")));
//! assert_eq!(seen.last().map(|(_, name)| *name), Some("run.ended"));
//!
//! // The connection was lost after event 3.
//! let mut rest = engine.subscribe(&Tenant::default(), &posted.run, 3);
//! let Some(Ok(FeedItem::Event(next))) = rest.next().await else { panic!("there is more") };
//! assert_eq!((next.event.seq, next.event.fact.name()), seen[3]);
//! # Ok(())
//! # }
//! ```
//!
//! Skip facts that you do not know: later versions add more. A fact is serialised as `{"type": "tool.approved",
//! "payload": {…}}`; [`Fact::name`](crate::event::Fact::name) is the `type`.
//!
//! # Deltas
//!
//! The text that a model streams is not stored. Subscribers receive it as [`LiveItem`](crate::event::LiveItem)s between
//! the events: a [`Delta`](crate::event::Delta) names the part of the message that it continues and the offset; `Reset`
//! means that an attempt was abandoned and its deltas must be discarded; `Note` is the progress of a tool. The event
//! that follows, `message.added`, carries the whole text. So show deltas as they arrive, and replace them when the
//! event arrives.
//!
//! ```
//! # use holdpoint::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let speech = Reply::text("Good morning.").delta_chars(5.try_into()?);
//! # let clerk = Agent::new("clerk", ScriptedModel::replying([speech]));
//! # let engine = Engine::on(MemoryStore::new()).agent(clerk).start().await?;
//! use holdpoint::event::StoredMessage;
//!
//! let (_, mut events) = engine.stream(Message::to("clerk", "Hello")).await?;
//! let mut shown = String::new();
//! while let Some(item) = events.next().await {
//!     match item? {
//!         FeedItem::Live(LiveItem::Delta(delta)) => shown.push_str(&delta.text),
//!         FeedItem::Live(LiveItem::Reset { .. }) => shown.clear(),
//!         FeedItem::Live(LiveItem::Note(_)) | FeedItem::Unreadable(_) => {}
//!         FeedItem::Event(committed) => {
//!             if let Fact::MessageAdded(StoredMessage::Assistant { text, .. }) = &committed.event.fact {
//!                 shown.clone_from(text);
//!             }
//!         }
//!     }
//! }
//! assert_eq!(shown, "Good morning.");
//! # Ok(())
//! # }
//! ```
//!
//! The engine never pushes to subscribers: each reads at its own pace, so a slow subscriber, or a thousand of them,
//! cost the run nothing. A subscriber that is far behind gets what it missed in one piece.
//!
//! # Without watching
//!
//! | call | returns |
//! |---|---|
//! | [`Engine::post`](crate::Engine::post) | when the run exists |
//! | [`Engine::run`](crate::Engine::run) | when the run ends, or when none of it executes and a call is held |
//! | [`Engine::follow`](crate::Engine::follow) | the same, for an existing run, considering only events after a sequence number; continue with [`RunReport::last_seq`](crate::RunReport::last_seq) |
//! | [`Engine::wait_until_ended`](crate::Engine::wait_until_ended) | when the run ends, however often calls are held on the way |
//! | [`Engine::view`](crate::Engine::view) | at once, with the current state of the run |
