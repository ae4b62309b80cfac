//! Which runs have something held, or held no longer: told to whoever shows what people have to answer.

use machine::id::RunId;
use tokio::sync::{broadcast, watch};

use crate::store::Tenant;

/// News that one reader may have unread. Whoever falls behind further starts over.
const UNREAD_MAX: usize = 1_024;

/// What has become of what people have to answer. A hint: it may come twice, or for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalNews {
    /// Something of this run is held, or is held no longer: look at its approvals again.
    Run { tenant: Tenant, run: RunId },
    /// More happened than was told: look at everything again.
    Missed,
}

/// The news from the moment of its making on. Whoever lists what there is makes it first.
#[derive(Debug)]
pub struct ApprovalFeed {
    receiver: broadcast::Receiver<ApprovalNews>,
}

impl ApprovalFeed {
    /// None once the engine is gone. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Option<ApprovalNews> {
        match self.receiver.recv().await {
            Ok(news) => Some(news),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(ApprovalNews::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where the news is told.
pub(crate) struct ApprovalBell {
    /// For whoever only wants to know that something is new.
    count: watch::Sender<u64>,
    news: broadcast::Sender<ApprovalNews>,
}

impl Default for ApprovalBell {
    fn default() -> Self {
        Self { count: watch::Sender::new(0), news: broadcast::Sender::new(UNREAD_MAX) }
    }
}

impl ApprovalBell {
    pub(crate) fn changed(&self, tenant: &Tenant, run: &RunId) {
        self.tell(ApprovalNews::Run { tenant: tenant.clone(), run: run.clone() });
    }

    pub(crate) fn missed(&self) {
        self.tell(ApprovalNews::Missed);
    }

    fn tell(&self, news: ApprovalNews) {
        // An error says that nobody listens.
        let _ = self.news.send(news);
        self.count.send_modify(|count| *count += 1);
    }

    pub(crate) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub(crate) fn feed(&self) -> ApprovalFeed {
        ApprovalFeed { receiver: self.news.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a failing test may stop in the plainest way there is")]

    use super::*;

    #[tokio::test]
    async fn whoever_falls_behind_is_told_so_and_goes_on_with_the_latest() {
        let bell = ApprovalBell::default();
        let tenant = Tenant::default();
        let mut feed = bell.feed();
        let mut count = bell.count();
        for number in 0..=UNREAD_MAX {
            bell.changed(&tenant, &RunId::from(format!("run_{number}")));
        }
        assert_eq!(feed.next().await, Some(ApprovalNews::Missed));
        let oldest = ApprovalNews::Run { tenant, run: RunId::from("run_1") };
        assert_eq!(feed.next().await, Some(oldest), "what is left is told in its order");
        assert_eq!(*count.borrow_and_update(), UNREAD_MAX as u64 + 1);
        drop(bell);
        let mut rest = 0;
        while feed.next().await.is_some() {
            rest += 1;
        }
        assert_eq!(rest, UNREAD_MAX - 1, "and then it is over");
    }
}
