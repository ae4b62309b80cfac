//! The store's contract, each call sent to whoever serves it.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{
    Append, Appended, ApprovalFilter, AutoApproval, Census, Claim, Claimed, Countable, Counts, Create,
    Created, GrantFilter, GrantView, Lease, Listed, Loaded, Logged, MessagePlace, MessageView, Page, Refused,
    Remembered, RunFilter, RunView, StateView, Store, SuspensionView, Task, Tenant, ThreadView,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::event::Event;
use machine::grant::Grant;
use machine::id::{
    AgentName, CallId, DecisionId, Digest, GrantId, MessageId, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::projection_rows::StateRow;
use rusqlite::Connection;
use serde_json::Value;

use super::births::Creation;
use super::claim::{Claims, Released};
use super::handover::{Handover, Receipt};
use super::trouble::Stop;
use super::{
    SqliteStore, append, approvals, births, claim, grants, inboxes, keys, messages, retention, revisions,
    stored_run, thread, undecoded, views,
};
use crate::entry::{Ends, Entry, Written};
use crate::lane::POINT_EVENT_COUNT_MAX;

impl SqliteStore {
    fn claims<T>(&self, work: impl FnOnce(&Claims<'_>) -> Result<T, Stop>) -> Result<T, Refused> {
        let now = self.now();
        self.point(|connection| {
            let shared = &self.shared;
            work(&Claims { connection, leases: &shared.leases, turn: &shared.turn, now })
        })
    }

    /// A read for whoever holds the run.
    fn held<T>(
        &self,
        lease: &Lease,
        read: impl FnOnce(&Connection, i64) -> Result<T, Stop>,
    ) -> Result<T, Refused> {
        if !self.may_send(lease) {
            return Err(Refused::Fenced);
        }
        self.point(|connection| read(connection, lease.row))
    }
}

fn done<'a, T: Send + 'a>(result: Result<T, Refused>) -> Task<'a, Result<T, Refused>> {
    Box::pin(std::future::ready(result))
}

impl Store for SqliteStore {
    fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> Task<'_, Result<bool, Refused>> {
        if let Err(refused) = crate::check_metadata(metadata) {
            return Box::pin(std::future::ready(Err(refused)));
        }
        let (tenant, thread, metadata) = (tenant.clone(), thread.clone(), metadata.to_string());
        Box::pin(self.route.send(move |desk| thread::put_thread(desk, tenant.as_str(), &thread, &metadata)))
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>> {
        done(self.point(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let view = thread::thread_view(connection, tenant.as_str(), thread)?;
            drop(snapshot);
            Ok(view)
        }))
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>> {
        let (tenant, page) = (tenant.clone(), page.clone());
        Box::pin(self.list(move |connection| views::threads(connection, &tenant, &page)))
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
    ) -> Task<'_, Result<(), Refused>> {
        let (tenant, thread, given) = (tenant.clone(), thread.clone(), given.cloned());
        Box::pin(
            self.route.send(move |desk| grants::set_auto_approve(desk, &tenant, &thread, given.as_ref())),
        )
    }

    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Vec<Grant>, Refused>> {
        done(self.held(lease, |connection, run| grants::for_tool(connection, run, tool)))
    }

    fn grant(&self, tenant: &Tenant, id: &GrantId) -> Task<'_, Result<Option<GrantView>, Refused>> {
        done(self.point(|connection| grants::one(connection, tenant, id)))
    }

    fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<GrantView>, Refused>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| grants::list(connection, &tenant, &filter, &page)))
    }

    fn revoke_grant(&self, tenant: &Tenant, id: &GrantId) -> Task<'_, Result<(), Refused>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        Box::pin(self.route.send(move |desk| grants::revoke(desk, &tenant, &id)))
    }

    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>> {
        let (tenant, thread) = (tenant.clone(), thread.clone());
        Box::pin(self.route.send(move |desk| retention::delete_family(desk, &tenant, &thread)))
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        let (digest, text) = (*digest, text.to_owned());
        Box::pin(self.route.send(move |desk| revisions::put(desk, &digest, &text)))
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> Task<'_, Result<Option<String>, Refused>> {
        done(self.point(|connection| revisions::of_thread(connection, tenant, thread, digest)))
    }

    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> Task<'_, Result<Option<StoredCallbackKeys>, Refused>> {
        Box::pin(self.route.send(move |desk| keys::callback_keys(desk, drawn)))
    }

    fn rotate_callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<KeyRotation, Refused>> {
        Box::pin(self.route.send(move |desk| keys::rotate_callback_key(desk, drawn)))
    }

    fn remove_callback_keys(&self, which: KeysToRemove) -> Task<'_, Result<bool, Refused>> {
        Box::pin(self.route.send(move |desk| keys::remove_callback_keys(desk, which)))
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        match Creation::of(create) {
            Ok(creation) => Box::pin(async move {
                let handover = Handover::default();
                let receipt = Receipt::new(&self.route, handover.clone());
                let created = self.route.send(move |desk| births::create(desk, &creation, &handover)).await;
                receipt.sign();
                created
            }),
            Err(refused) => done(Err(refused)),
        }
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        // Only once somebody waits for it: a run must not be given to nobody.
        Box::pin(async move { self.claims(|claims| claims.claim(&claim)) })
    }

    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>> {
        done(self.point(|connection| claim::load(connection, &self.shared.leases, lease)))
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        // A worker that lost its run has nothing to say about what its rows look like.
        if !self.may_send(lease) {
            return done(Err(Refused::Fenced));
        }
        let lease = lease.clone();
        let expected_seq = append.expected_seq;
        match Entry::of(append) {
            Ok(entry) => Box::pin(self.route.send(move |desk| append::append(desk, &lease, &entry))),
            // Whoever is fenced hears that first, whatever its commit looks like.
            Err(refused) => done(
                self.point(|connection| append::check_seq(connection, lease.row, expected_seq))
                    .and(Err(refused)),
            ),
        }
    }

    fn end_undecoded(&self, lease: &Lease) -> Task<'_, Result<Appended, Refused>> {
        if !self.may_send(lease) {
            return done(Err(Refused::Fenced));
        }
        let lease = lease.clone();
        Box::pin(async move {
            let by_control = lease.clone();
            match self.route.send(move |desk| undecoded::end(desk, &by_control, Ends::ByControl)).await {
                // The rows contradict the control: the columns alone count.
                Err(Refused::Impossible(_)) => {
                    self.route.send(move |desk| undecoded::end(desk, &lease, Ends::ByColumns)).await
                }
                ended => ended,
            }
        })
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        let lease = lease.clone();
        Box::pin(async move {
            let released =
                self.point(|connection| claim::release(connection, &self.shared.leases, &lease))?;
            match released {
                Released::Yes => Ok(true),
                Released::No => Ok(false),
                Released::NeedsCommit => {
                    self.route.send(move |desk| claim::release_unfinished(desk, &lease)).await
                }
            }
        })
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.shared.leases.is_current(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        match Written::of(item) {
            Ok(written) => {
                Box::pin(self.route.send(move |desk| inboxes::submit(desk, &tenant, &run, &written)))
            }
            Err(refused) => done(Err(refused)),
        }
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        done(self.claims(|claims| claims.next_wake()))
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> Task<'_, Result<Option<Decision>, Refused>> {
        done(self.point(|connection| views::decision(connection, tenant, run, id)))
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>> {
        done(self.point(|connection| views::run(connection, tenant, run)))
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| views::runs(connection, &tenant, &filter, &page)))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Logged>, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        let read = move |connection: &Connection| {
            let row = views::row_of(connection, &tenant, &run)?.ok_or(Refused::NotFound)?;
            stored_run::events_after(connection, row, after, limit)
        };
        if limit <= POINT_EVENT_COUNT_MAX { done(self.point(read)) } else { Box::pin(self.log(read)) }
    }

    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>> {
        done(self.held(lease, |connection, run| stored_run::event_at(connection, run, seq)))
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>> {
        done(self.point(|connection| views::message(connection, tenant, thread, message)))
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        let (tenant, thread, page) = (tenant.clone(), thread.clone(), page.clone());
        Box::pin(self.list(move |connection| messages::messages(connection, &tenant, &thread, &page)))
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        done(self.point(|connection| keys::posted(connection, tenant.as_str(), thread, scope)))
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        if let Err(refused) = answer.check(scope) {
            return done(Err(refused));
        }
        let (tenant, run, scope) = (tenant.clone(), run.clone(), scope.to_owned());
        Box::pin(self.route.send(move |desk| keys::remember(desk, &tenant, &run, &scope, answer)))
    }

    fn remembered(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> Task<'_, Result<Option<Remembered>, Refused>> {
        done(self.point(|connection| keys::remembered(connection, tenant, run, scope)))
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateView>, Refused>> {
        done(self.point(|connection| {
            let row = views::row_of(connection, tenant, run)?.ok_or(Refused::NotFound)?;
            views::state(connection, row)
        }))
    }

    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>> {
        done(self.held(lease, |connection, run| views::taken_call_ids(connection, run, asked)))
    }

    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        done(self.held(lease, views::plugin_state))
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>> {
        done(self.point(|connection| approvals::suspension(connection, tenant, id)))
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        Box::pin(self.list(move |connection| approvals::approvals(connection, &tenant, &filter, &page)))
    }

    fn count_up_to(&self, tenant: &Tenant, what: Countable, max: u64) -> Task<'_, Result<u64, Refused>> {
        let tenant = tenant.clone();
        Box::pin(self.list(move |connection| views::count_up_to(connection, &tenant, what, max)))
    }

    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> Task<'_, Result<bool, Refused>> {
        done(self.point(|connection| views::has_other_agents(connection, tenant, thread, agents)))
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        Box::pin(self.list(views::census))
    }

    fn counts(&self) -> Counts {
        self.shared.tally.counts()
    }
}
