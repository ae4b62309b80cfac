//! The store between the engine and the real one: slow, refusing, and losing its process around commits.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{
    Append, Appended, ApprovalFilter, AuditFilter, AuditStore, AutoApproval, BoxFuture, Claim, Claimed,
    ClusterStore, ConfigurationRecord, Countable, Create, Created, Deleted, Deletion, GrantFilter, GrantView,
    Lease, Listed, Loaded, LogEntry, MessageOrder, MessagePosition, MessageView, Page, ResponseStore,
    RunCounts, RunFilter, RunStore, RunView, Sealed, StateView, Store, StoreError, StoreFailure,
    StoreMetrics, StoredResponse, SuspensionView, Tenant, TenantChain, ThreadView, ViewStore,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditEntry, SealedRecord};
use machine::chain::ChainHead;
use machine::decision::Decision;
use machine::event::Event;
use machine::grant::Grant;
use machine::id::{
    AgentName, CallId, DecisionId, Digest, GrantId, MessageId, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::projection_rows::StateRow;
use serde_json::Value;

use super::context::{Life, WorldContext};
use super::listener::{PLUG_PULLED, STORE_TAKEN};
use super::trouble::{Fate, Kind, Side};

/// The store as one process sees it.
pub struct FaultyStore {
    pub(crate) stage: Arc<WorldContext>,
    pub(crate) life: Arc<Life>,
    /// The process's own store, if it has one.
    pub(crate) own: Option<Arc<dyn Store>>,
}

impl FaultyStore {
    /// One call, with the planned trouble around it.
    async fn rough<T: Send>(
        &self,
        kind: Kind,
        ask: impl for<'s> FnOnce(&'s dyn Store) -> BoxFuture<'s, Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.rough_then(kind, ask, |_, _| {}).await
    }

    /// `then` is called at the very moment of the commit.
    async fn rough_then<T: Send>(
        &self,
        kind: Kind,
        ask: impl for<'s> FnOnce(&'s dyn Store) -> BoxFuture<'s, Result<T, StoreError>> + Send,
        then: impl FnOnce(&WorldContext, &T) + Send,
    ) -> Result<T, StoreError> {
        self.life.alive().await;
        let plan = self.stage.plan(&self.life, kind);
        self.life.pause(plan.before_ms).await;
        match plan.fate {
            Fate::Refused(Side::Before) => return Err(self.refused(Side::Before, kind)),
            Fate::Lost(Side::Before) => {
                self.stage.lose(&self.life, "before a commit");
                self.life.alive().await;
            }
            Fate::Plain | Fate::Refused(Side::After) | Fate::Lost(Side::After) => {}
        }
        let result = if self.life.is_fenced() && opens(kind) {
            Err(StoreFailure::Unavailable(STORE_TAKEN.into()).into())
        } else {
            self.stage.disk.ask(self.own.as_ref(), ask)
        };
        if let Ok(done) = &result {
            then(&self.stage, done);
        }
        self.count_answer(kind, &result);
        if plan.fate == Fate::Lost(Side::After) {
            self.stage.lose(&self.life, "after a commit");
        }
        self.life.pause(plan.after_ms).await;
        if plan.fate == Fate::Refused(Side::After) && result.is_ok() {
            return Err(self.refused(Side::After, kind));
        }
        result
    }

    fn refused(&self, side: Side, kind: Kind) -> StoreError {
        let name = match side {
            Side::Before => "unavailable before a call",
            Side::After => "unavailable after a commit",
        };
        self.stage.count("store", name);
        self.stage.tell(|| format!("process {}: {kind:?} is refused {side:?}", self.life.number));
        StoreFailure::Unavailable(PLUG_PULLED.into()).into()
    }

    fn count_answer<T>(&self, kind: Kind, result: &Result<T, StoreError>) {
        let Err(refused) = result else { return };
        let name = match refused {
            StoreError::Fenced => "fenced",
            StoreError::Behind => "behind",
            StoreError::Stale => "stale",
            StoreError::Busy(_) => "busy",
            StoreError::Impossible(_) => "impossible",
            StoreError::NotFound => "not found",
            StoreError::Failed(_) => "unavailable to an old process",
        };
        self.stage.count("store", name);
        if kind != Kind::Read {
            self.stage.tell(|| format!("process {}: {kind:?} is refused: {refused}", self.life.number));
        }
    }
}

/// Calls that only the process that has the store open may make.
const fn opens(kind: Kind) -> bool {
    match kind {
        Kind::Create { .. } | Kind::Submit | Kind::Claim | Kind::Preparation => true,
        Kind::Append | Kind::Release | Kind::Read => false,
    }
}

/// An append that has not returned.
struct Flight<'s> {
    stage: &'s WorldContext,
    run: Option<usize>,
}

impl<'s> Flight<'s> {
    fn begin(stage: &'s WorldContext, run: &RunId) -> Self {
        let mut book = stage.book();
        let run = book.find(run);
        if let Some(run) = run {
            book.runs[run].in_flight += 1;
        }
        Self { stage, run }
    }

    fn end(self, in_trouble: bool) {
        if let Some(run) = self.run {
            self.stage.book().runs[run].uncertain |= in_trouble;
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run {
            self.stage.book().runs[run].in_flight -= 1;
        }
    }
}

/// Methods that need nothing but the trouble around them.
macro_rules! rough {
    ($($kind:ident fn $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $method(&self, $($name: $type),*) -> BoxFuture<'_, Result<$answer, StoreError>> {
            $(let $name = $name.to_owned();)*
            Box::pin(self.rough(Kind::$kind, move |store| store.$method($(&$name),*)))
        }
    )*};
}

impl RunStore for FaultyStore {
    rough! {
        Read fn grants_for(lease: &Lease, tool: &ToolName) -> Vec<Grant>;
        Read fn revision(tenant: &Tenant, thread: &ThreadId, digest: &Digest) -> Option<String>;
        Read fn next_wake() -> Option<Timestamp>;
        Append fn end_undecoded(lease: &Lease) -> Appended;
        Read fn taken_call_ids(lease: &Lease, asked: &[String]) -> BTreeSet<CallId>;
        Read fn plugin_state(lease: &Lease) -> Vec<StateRow>;
    }

    fn now(&self) -> Timestamp {
        self.stage.now()
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (digest, text) = (*digest, text.to_owned());
        Box::pin(async move {
            let stored = text.clone();
            self.rough_then(
                Kind::Preparation,
                move |store| store.put_revision(&digest, &stored),
                move |stage, ()| {
                    let known = stage.book().know_revision(digest, &text);
                    stage.check(known);
                },
            )
            .await
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        let told = create.clone();
        Box::pin(self.rough_then(
            Kind::Create { lease: create.lease },
            move |store| store.create(create),
            move |stage, created| {
                let now = stage.now();
                let checked = stage.book().created(&told, created, now);
                stage.check(checked);
            },
        ))
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(self.rough_then(
            Kind::Claim,
            move |store| store.claim(claim),
            |stage, claimed| {
                let now = stage.now();
                for one in claimed {
                    let checked = stage.book().claimed(one, now);
                    stage.check(checked);
                }
            },
        ))
    }

    fn load(&self, lease: &Lease) -> BoxFuture<'_, Result<Loaded, StoreError>> {
        let (lease, run) = (lease.clone(), lease.run.clone());
        Box::pin(self.rough_then(
            Kind::Read,
            move |store| store.load(&lease),
            move |stage, _| stage.book().loaded(&run),
        ))
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let (lease, told, told_lease) = (lease.clone(), append.clone(), lease.clone());
        Box::pin(async move {
            let flight = Flight::begin(&self.stage, &lease.run);
            let result = self.rough_then(
                Kind::Append,
                move |store| store.append(&lease, append),
                move |stage, _| {
                    let now = stage.now();
                    let checked = stage.book().appended(&told_lease, &told, now);
                    stage.check(checked);
                },
            );
            let result = result.await;
            flight.end(matches!(result, Err(StoreError::Failed(_))));
            result
        })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (lease, told) = (lease.clone(), lease.clone());
        Box::pin(self.rough_then(
            Kind::Release,
            move |store| store.release(&lease),
            move |stage, released| {
                let now = stage.now();
                stage.book().released(&told, *released, now);
            },
        ))
    }

    fn may_send(&self, lease: &Lease) -> bool {
        let asked = self.stage.disk.glance(self.own.as_ref(), |store| store.may_send(lease));
        // If a process has its own store, its lease expires by its own clock no later than by the store's. That clock
        // runs in real time, so the world decides instead.
        let lapsed = self.own.is_some() && self.life.is_fenced();
        let may = asked.unwrap_or(false) && !lapsed;
        let percent = self.stage.book().temper.no_send;
        let denied = may && self.stage.draw(|tape| tape.chance(percent));
        if !may || denied {
            self.stage.count("store", if denied { "may not send, by chance" } else { "may not send" });
        }
        may && !denied && !self.life.is_dead()
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        let (told_run, told) = (run.clone(), item.clone());
        Box::pin(self.rough_then(
            Kind::Submit,
            move |store| store.submit(&tenant, &run, item),
            move |stage, verdict| {
                let now = stage.now();
                stage.book().submitted(&told_run, &told, verdict, now);
            },
        ))
    }

    fn event(&self, lease: &Lease, seq: u64) -> BoxFuture<'_, Result<Arc<Event>, StoreError>> {
        let lease = lease.clone();
        Box::pin(self.rough(Kind::Read, move |store| store.event(&lease, seq)))
    }
}

impl ViewStore for FaultyStore {
    rough! {
        Preparation fn put_thread(tenant: &Tenant, thread: &ThreadId, metadata: &Value) -> bool;
        Preparation fn delete_thread(tenant: &Tenant, thread: &ThreadId, deletion: &Deletion) -> Deleted;
        Read fn thread(tenant: &Tenant, thread: &ThreadId) -> ThreadView;
        Read fn threads(tenant: &Tenant, page: &Page) -> Listed<ThreadView>;
        Read fn grant(tenant: &Tenant, id: &GrantId) -> Option<GrantView>;
        Read fn grants(tenant: &Tenant, filter: &GrantFilter, page: &Page) -> Listed<GrantView>;
        Preparation fn revoke_grant(tenant: &Tenant, id: &GrantId, actor: &Actor) -> ();
        Read fn decision(tenant: &Tenant, run: &RunId, id: &DecisionId) -> Option<Decision>;
        Read fn run(tenant: &Tenant, run: &RunId) -> Option<RunView>;
        Read fn runs(tenant: &Tenant, filter: &RunFilter, page: &Page) -> Listed<RunView>;
        Read fn chain_head(tenant: &Tenant, run: &RunId) -> Option<ChainHead>;
        Read fn message(tenant: &Tenant, thread: &ThreadId, message: &MessageId) -> Option<MessagePosition>;
                Read fn posted(tenant: &Tenant, thread: &ThreadId, scope: &str) -> Option<(RunId, Digest)>;
        Read fn state(tenant: &Tenant, run: &RunId) -> Vec<StateView>;
        Read fn suspension(tenant: &Tenant, id: &SuspensionId) -> Option<SuspensionView>;
        Read fn approvals(tenant: &Tenant, filter: &ApprovalFilter, page: &Page) -> Listed<SuspensionView>;
        Read fn run_counts() -> RunCounts;
    }

    fn count_up_to(
        &self,
        tenant: &Tenant,
        what: Countable,
        max: u64,
    ) -> BoxFuture<'_, Result<u64, StoreError>> {
        let tenant = tenant.clone();
        Box::pin(self.rough(Kind::Read, move |store| store.count_up_to(&tenant, what, max)))
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        let (tenant, thread, page) = (tenant.clone(), thread.clone(), page.clone());
        Box::pin(self.rough(Kind::Read, move |store| store.messages(&tenant, &thread, order, &page)))
    }

    fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RunId>, StoreError>> {
        let (tenant, thread, after) = (tenant.clone(), thread.clone(), after.cloned());
        Box::pin(
            self.rough(Kind::Read, move |store| {
                store.runs_of_thread(&tenant, &thread, after.as_ref(), limit)
            }),
        )
    }

    fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (tenant, thread, agents) = (tenant.clone(), thread.clone(), agents.clone());
        Box::pin(self.rough(Kind::Read, move |store| store.has_other_agents(&tenant, &thread, &agents)))
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (tenant, thread, given) = (tenant.clone(), thread.clone(), given.cloned());
        let actor = actor.clone();
        Box::pin(self.rough(Kind::Preparation, move |store| {
            store.set_auto_approve(&tenant, &thread, given.as_ref(), &actor)
        }))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        Box::pin(self.rough(Kind::Read, move |store| store.events(&tenant, &run, after, limit)))
    }

    fn metrics(&self) -> StoreMetrics {
        self.stage.disk.glance(self.own.as_ref(), |store| store.metrics()).unwrap_or_default()
    }
}

impl ClusterStore for FaultyStore {
    fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> BoxFuture<'_, Result<Option<StoredCallbackKeys>, StoreError>> {
        Box::pin(self.rough(Kind::Preparation, move |store| store.callback_keys(drawn)))
    }

    fn rotate_callback_key(&self, drawn: CallbackKey) -> BoxFuture<'_, Result<KeyRotation, StoreError>> {
        Box::pin(self.rough(Kind::Preparation, move |store| store.rotate_callback_key(drawn)))
    }

    fn remove_callback_keys(&self, which: KeysToRemove) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.rough(Kind::Preparation, move |store| store.remove_callback_keys(which)))
    }

    fn release_all(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        // A dead process hands nothing over. Returning at once lets the waiting world continue.
        let handed_over = if self.life.is_dead() {
            Ok(())
        } else {
            self.stage.disk.ask(self.own.as_ref(), |store| store.release_all())
        };
        Box::pin(std::future::ready(handed_over))
    }
}

impl AuditStore for FaultyStore {
    rough! {
        Preparation fn record_audit(tenant: &Tenant, entry: &AuditEntry) -> ();
        Preparation fn record_configuration(records: &[ConfigurationRecord]) -> ();
        Preparation fn seal_audit() -> Sealed;
        Read fn audit_chains() -> Vec<TenantChain>;
        Read fn sink_progress(sink: &Digest, tenant: &Tenant) -> u64;
    }

    fn audit(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        Box::pin(self.rough(Kind::Read, move |store| store.audit(&tenant, &filter, after, limit)))
    }

    fn set_sink_progress(
        &self,
        sink: &Digest,
        tenant: &Tenant,
        seq: u64,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (sink, tenant) = (*sink, tenant.clone());
        Box::pin(self.rough(Kind::Preparation, move |store| store.set_sink_progress(&sink, &tenant, seq)))
    }

    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.rough(Kind::Preparation, move |store| store.prune_audit(older_than)))
    }
}

impl ResponseStore for FaultyStore {
    rough! {
        Read fn stored_response(tenant: &Tenant, run: &RunId, scope: &str) -> Option<StoredResponse>;
    }

    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        let (tenant, run, scope) = (tenant.clone(), run.clone(), scope.to_owned());
        Box::pin(
            self.rough(Kind::Preparation, move |store| store.store_response(&tenant, &run, &scope, answer)),
        )
    }
}
