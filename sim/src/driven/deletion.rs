//! A thread is deleted while a client writes to it.

use std::time::Duration;

use engine::posting::{Message, PostError, ThreadTarget};
use engine::store::Tenant;
use machine::id::ThreadId;
use serde_json::Value;

use super::context::WorldContext;
use super::people::{answer_name, expected};
use super::world::EngineWorld;

/// A message is judged and stored within about this time.
const WITHIN_MS: usize = 40;

impl EngineWorld {
    /// Either the message or the deletion wins. A deleted thread never comes back.
    pub(super) fn post_beside_a_deletion(&mut self, mut message: Message) {
        let thread = ThreadId::from(format!("passing_{}", self.message_count));
        message.thread = ThreadTarget::Existing(thread.clone());
        message.after = None;
        self.send(move |stage, engine, _| async move {
            let put =
                stage.disk.ask(None, |store| store.put_thread(&Tenant::default(), &thread, &Value::Null));
            if put.is_err() {
                return;
            }
            let wait_ms = stage.draw(|tape| tape.pick(WITHIN_MS));
            let deletes = async {
                tokio::time::sleep(Duration::from_millis(wait_ms as u64)).await;
                stage.delete_unused(&thread);
            };
            let (posted, ()) = tokio::join!(engine.post(message), deletes);
            stage.count("message", answer_name(&posted));
            let words = format!("a client posts to {thread}, which is being deleted");
            stage.tell(|| format!("{words}: {posted:?}"));
            if let Err(PostError::Store(refused)) = &posted {
                stage.check(expected(refused, &words));
            }
        });
    }
}

impl WorldContext {
    /// Deletes at once and without trouble, as a sweep outside the server would. A thread that has a run stays, because
    /// its run is checked to the end.
    fn delete_unused(&self, thread: &ThreadId) {
        if self.book().runs.iter().any(|run| run.thread == *thread) {
            return;
        }
        if self
            .disk
            .ask(None, |store| store.delete_thread(&Tenant::default(), thread, &"tester".into()))
            .is_ok()
        {
            self.book().gone.insert(thread.clone());
        }
    }
}
