//! A store in front of another one, which refuses one commit of a story in one way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::store::{
    Append, Appended, BoxFuture, Create, Created, Lease, Store, StoreError, StoreFailure, Tenant, Wrapper,
};
use machine::id::RunId;
use machine::inbox::{Item, Verdict};

/// What happens to the commit.
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

    /// Whether the run has made at least this number of commits.
    pub(crate) fn was_reached(&self) -> bool {
        self.commits.load(Ordering::Acquire) >= self.number
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Acquire)
    }

    /// An append has a lease that can be lost; other commits have none.
    async fn commit<T>(
        &self,
        lease: Option<&Lease>,
        work: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.commits.fetch_add(1, Ordering::AcqRel) + 1 != self.number {
            return work().await;
        }
        let refused = match self.fate {
            Fate::Unreachable => StoreFailure::Unavailable("the line is cut".into()).into(),
            Fate::Full => StoreFailure::Full("database or disk is full".into()).into(),
            Fate::AnswerLost => {
                work().await?;
                StoreFailure::Unavailable("the line was cut".into()).into()
            }
            Fate::Fenced => match lease {
                Some(lease) if self.inner.release(lease).await == Ok(true) => StoreError::Fenced,
                // A run with an item in its inbox cannot be let go.
                Some(_) | None => return work().await,
            },
        };
        self.has_refused.store(true, Ordering::Release);
        Err(refused)
    }
}

impl Wrapper for RefusingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(self.commit(None, async move || {
            let created = self.inner.create(create).await?;
            if let (Fate::AnswerLost, Some(lease)) = (self.fate, &created.lease)
                && self.is_at_the_number()
            {
                // No store keeps a lease for a worker that never got the answer.
                self.inner.release(lease).await?;
            }
            Ok(created)
        }))
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        Box::pin(
            async move { self.commit(Some(&lease), async || self.inner.append(&lease, append).await).await },
        )
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        Box::pin(
            async move { self.commit(None, async || self.inner.submit(&tenant, &run, item).await).await },
        )
    }
}
