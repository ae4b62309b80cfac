//! A store that stops on either side of whatever changes it, rings when it has changed, and else does as it is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::callback::CallbackKey;
use engine::clock::Clock;
use engine::store::{
    Append, Appended, ApprovalFilter, Census, Claim, Claimed, Committed, Counts, Create, Created, Lease,
    Listed, Loaded, MessagePlace, MessageView, Page, Refused, Remembered, Ring, RunFilter, RunView, Said,
    Store, SuspensionView, Task, Tenant, ThreadView,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::event::{Event, Fact};
use machine::id::{
    CallId, DecisionId, Digest, MessageId, Principal, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::rows::StateRow;
use machine::tool::Leave;
use serde_json::Value;
use tokio::sync::Notify;

use super::say;
use super::stops::Stops;
use crate::wire::{Line, Passage, Side};

pub(super) struct StoppingStore<S> {
    pub(super) store: S,
    pub(super) stops: Stops,
    /// Something may have changed.
    pub(super) changed: Arc<Notify>,
}

impl<S: Store> StoppingStore<S> {
    /// The work is asked for between the two sides, not before.
    fn through<'a, T: Send + 'a>(
        &'a self,
        passage: Passage,
        work: impl FnOnce(&'a S) -> Task<'a, T> + Send + 'a,
    ) -> Task<'a, T> {
        Box::pin(async move {
            self.stops.cross(Side::Before, passage).await;
            let done = work(&self.store).await;
            self.stops.cross(Side::After, passage).await;
            self.changed.notify_one();
            done
        })
    }
}

impl<S: Store> Store for StoppingStore<S> {
    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        let (digest, text) = (*digest, text.to_owned());
        self.through(Passage::PutRevision, move |store| store.put_revision(&digest, &text))
    }

    fn callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<CallbackKey, Refused>> {
        self.store.callback_key(drawn)
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        self.through(Passage::Create, move |store| {
            Box::pin(async move {
                let created = store.create(create).await;
                if store.is_shared() {
                    created.iter().filter_map(|created| created.lease.as_ref()).for_each(say_claimed);
                }
                created
            })
        })
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        self.through(Passage::Claim, move |store| {
            Box::pin(async move {
                let claimed = store.claim(claim).await;
                if store.is_shared() {
                    claimed.iter().flatten().for_each(|claimed| say_claimed(&claimed.lease));
                }
                claimed
            })
        })
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        let lease = lease.clone();
        let starts = append.events.iter().any(|event| matches!(event.fact, Fact::ExecutionStarted { .. }));
        let passage = if starts { Passage::Start } else { Passage::Append };
        self.through(passage, move |store| {
            Box::pin(async move {
                let count = append.events.len() as u64;
                let seq = append.expected_seq + count;
                let appended = store.append(&lease, append).await;
                if store.is_shared() && count > 0 {
                    say_stored(&lease, seq, &appended);
                }
                appended
            })
        })
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        let lease = lease.clone();
        self.through(Passage::Release, move |store| store.release(&lease))
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.through(Passage::Submit, move |store| store.submit(&tenant, &run, item))
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> Task<'_, Result<bool, Refused>> {
        self.store.put_thread(tenant, thread, metadata)
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>> {
        self.store.thread(tenant, thread)
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>> {
        self.store.threads(tenant, page)
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        by: Option<&Principal>,
    ) -> Task<'_, Result<(), Refused>> {
        self.store.set_auto_approve(tenant, thread, by)
    }

    fn leave(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Leave, Refused>> {
        self.store.leave(lease, tool)
    }

    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>> {
        self.store.delete_thread(tenant, thread)
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> Task<'_, Result<Option<String>, Refused>> {
        self.store.revision(tenant, thread, digest)
    }

    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>> {
        self.store.load(lease)
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.store.may_send(lease)
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        self.store.next_wake()
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> Task<'_, Result<Option<Decision>, Refused>> {
        self.store.decision(tenant, run, id)
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>> {
        self.store.run(tenant, run)
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        self.store.runs(tenant, filter, page)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Committed>, Refused>> {
        self.store.events(tenant, run, after, limit)
    }

    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>> {
        self.store.event(lease, seq)
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>> {
        self.store.message(tenant, thread, message)
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        self.store.messages(tenant, thread, page)
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        self.store.posted(tenant, thread, scope)
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        self.store.remember(tenant, run, scope, answer)
    }

    fn remembered(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> Task<'_, Result<Option<Remembered>, Refused>> {
        self.store.remembered(tenant, run, scope)
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.store.state(tenant, run)
    }

    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>> {
        self.store.taken_call_ids(lease, asked)
    }

    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.store.plugin_state(lease)
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>> {
        self.store.suspension(tenant, id)
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        self.store.approvals(tenant, filter, page)
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        self.store.census()
    }

    fn counts(&self) -> Counts {
        self.store.counts()
    }

    fn rung(&self) -> Task<'_, Ring> {
        Box::pin(async move {
            let ring = self.store.rung().await;
            self.changed.notify_one();
            ring
        })
    }

    fn watch(&self, run: &RunId) {
        self.store.watch(run);
    }

    fn tell(&self, run: &RunId, after: u64, said: Vec<Said>) {
        self.store.tell(run, after, said);
    }

    fn hand_over(&self) -> Task<'_, Result<(), Refused>> {
        self.store.hand_over()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
}

fn say_claimed(lease: &Lease) {
    say(&Line::Claimed { run: lease.run.clone(), epoch: lease.epoch });
}

fn say_stored(lease: &Lease, seq: u64, appended: &Result<Appended, Refused>) {
    let (run, epoch) = (lease.run.clone(), lease.epoch);
    say(&match appended {
        Ok(_) => Line::Stored { run, epoch, seq },
        Err(_) => Line::NotStored { run, epoch },
    });
}
