//! Events and deltas: how to watch a run, live and after a reconnect.
//!
//! A run is a log of [`Event`](crate::event::Event)s. Each has a number (`seq`, dense from 1), a time, and a
//! [`Fact`](crate::event::Fact) in the past tense. An event is shown after it was stored, never before, so what you have
//! seen has happened. The last event of every log is `run.ended`; a subscription is over after it.
//!
//! A [`Subscription`](crate::event::Subscription) begins behind any number. Whoever reconnects with the last number they
//! saw gets exactly the rest, from memory or from the store; there is no window after which it is gone.
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
//! Skip facts that you do not know: later versions tell more. A fact is serialised as `{"type": "tool.approved",
//! "payload": {…}}`; [`Fact::name`](crate::event::Fact::name) is the `type`.
//!
//! # Deltas
//!
//! What a model says word by word is not stored. It comes as [`LiveItem`](crate::event::LiveItem)s between the events,
//! to whoever is watching: a [`Delta`](crate::event::Delta) says which part of which message it continues and at which
//! offset; `Reset` says that an attempt was given up and what was shown of it counts for nothing; `Note` is progress of a
//! tool. The event that follows, `message.added`, carries the whole text. So show deltas while they come, and replace
//! them when the event does.
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
//! Nobody is sent anything: a watcher reads at a pace of its own, so a slow one, or a thousand, cost the run nothing. One
//! that is far behind gets what it missed in one piece.
//!
//! # Without watching
//!
//! | call | comes back |
//! |---|---|
//! | [`Engine::post`](crate::Engine::post) | when the run exists |
//! | [`Engine::run`](crate::Engine::run) | when it ends, or nothing of it executes and something is held |
//! | [`Engine::follow`](crate::Engine::follow) | the same, for a run that exists, judging events behind a number; [`RunReport::last_seq`](crate::RunReport::last_seq) is the one to go on with |
//! | [`Engine::wait_until_ended`](crate::Engine::wait_until_ended) | when it ends, however often something is held on the way |
//! | [`Engine::view`](crate::Engine::view) | at once, with where the run stands |
