//! A store in front of another one, which refuses one commit of a story in one way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::callback::CallbackKey;
use engine::store::{
    Append, Appended, ApprovalFilter, Census, Claim, Claimed, Committed, Counts, Create, Created, Lease,
    Listed, Loaded, MessagePlace, MessageView, Page, Refused, Remembered, RunFilter, RunView, Store,
    SuspensionView, Task, Tenant, ThreadView, Trouble,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::event::Event;
use machine::id::{
    CallId, DecisionId, Digest, MessageId, Principal, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::rows::StateRow;
use machine::tool::Leave;
use serde_json::Value;

/// What becomes of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing is stored: the store cannot be reached.
    Unreachable,
    /// Nothing is stored: there is no space.
    Full,
    /// It is stored, and the answer is lost.
    AnswerLost,
    /// Nothing is stored: the lease was taken away before, and the run may be claimed by anybody.
    Fenced,
}

impl Fate {
    pub(crate) const ALL: [Self; 4] = [Self::Unreachable, Self::Full, Self::AnswerLost, Self::Fenced];
}

pub(crate) struct RefusingStore {
    inner: Arc<dyn Store>,
    number: u64,
    fate: Fate,
    commits: AtomicU64,
    has_refused: AtomicBool,
}

impl RefusingStore {
    /// Refuses the commit of this number, counted from 1 over creations, appends and submitted items.
    pub(crate) fn new(inner: Arc<dyn Store>, number: u64, fate: Fate) -> Arc<Self> {
        let (commits, has_refused) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { inner, number, fate, commits, has_refused })
    }

    fn is_at_the_number(&self) -> bool {
        self.commits.load(Ordering::Acquire) == self.number
    }

    /// The story has had so many commits that the one of this number was among them.
    pub(crate) fn came_so_far(&self) -> bool {
        self.commits.load(Ordering::Acquire) >= self.number
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Acquire)
    }

    /// An append has a lease that can be lost; other commits have none.
    async fn commit<T>(
        &self,
        lease: Option<&Lease>,
        work: impl AsyncFnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if self.commits.fetch_add(1, Ordering::AcqRel) + 1 != self.number {
            return work().await;
        }
        let refused = match self.fate {
            Fate::Unreachable => Trouble::Unavailable("the line is cut".into()).into(),
            Fate::Full => Trouble::Full("database or disk is full".into()).into(),
            Fate::AnswerLost => {
                work().await?;
                Trouble::Unavailable("the line was cut".into()).into()
            }
            Fate::Fenced => match lease {
                Some(lease) if self.inner.release(lease).await == Ok(true) => Refused::Fenced,
                // A run with an item in its inbox cannot be let go.
                Some(_) | None => return work().await,
            },
        };
        self.has_refused.store(true, Ordering::Release);
        Err(refused)
    }
}

impl Store for RefusingStore {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> Task<'_, Result<bool, Refused>> {
        self.inner.put_thread(tenant, thread, metadata)
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>> {
        self.inner.thread(tenant, thread)
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>> {
        self.inner.threads(tenant, page)
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        by: Option<&Principal>,
    ) -> Task<'_, Result<(), Refused>> {
        self.inner.set_auto_approve(tenant, thread, by)
    }

    fn leave(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Leave, Refused>> {
        self.inner.leave(lease, tool)
    }

    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>> {
        self.inner.delete_thread(tenant, thread)
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        self.inner.put_revision(digest, text)
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> Task<'_, Result<Option<String>, Refused>> {
        self.inner.revision(tenant, thread, digest)
    }

    fn callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<CallbackKey, Refused>> {
        self.inner.callback_key(drawn)
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        Box::pin(self.commit(None, async move || {
            let created = self.inner.create(create).await?;
            if let (Fate::AnswerLost, Some(lease)) = (self.fate, &created.lease)
                && self.is_at_the_number()
            {
                // No store gives a run to somebody whom it cannot tell.
                self.inner.release(lease).await?;
            }
            Ok(created)
        }))
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        self.inner.claim(claim)
    }

    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>> {
        self.inner.load(lease)
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        let lease = lease.clone();
        Box::pin(
            async move { self.commit(Some(&lease), async || self.inner.append(&lease, append).await).await },
        )
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        self.inner.release(lease)
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.inner.may_send(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        Box::pin(
            async move { self.commit(None, async || self.inner.submit(&tenant, &run, item).await).await },
        )
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        self.inner.next_wake()
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> Task<'_, Result<Option<Decision>, Refused>> {
        self.inner.decision(tenant, run, id)
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>> {
        self.inner.run(tenant, run)
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        self.inner.runs(tenant, filter, page)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Committed>, Refused>> {
        self.inner.events(tenant, run, after, limit)
    }

    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>> {
        self.inner.event(lease, seq)
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>> {
        self.inner.message(tenant, thread, message)
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        self.inner.messages(tenant, thread, page)
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        self.inner.posted(tenant, thread, scope)
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        self.inner.remember(tenant, run, scope, answer)
    }

    fn remembered(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> Task<'_, Result<Option<Remembered>, Refused>> {
        self.inner.remembered(tenant, run, scope)
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.inner.state(tenant, run)
    }

    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>> {
        self.inner.taken_call_ids(lease, asked)
    }

    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.inner.plugin_state(lease)
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>> {
        self.inner.suspension(tenant, id)
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        self.inner.approvals(tenant, filter, page)
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        self.inner.census()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }
}
