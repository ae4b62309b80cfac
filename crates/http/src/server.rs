//! The server: the state that every route uses, and how it starts, drains and stops.

use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use engine::Engine;
use engine::store::{StoreError, Tenant, seal_all};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction};
use machine::id::Digest;
use machine::suspension::SuspensionKind;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::access::{Access, draining_error};
use crate::callback_auth::CallbackRateLimits;
use crate::connection::{self, Routers};
use crate::error::{ApiError, Code};
use crate::json_threads::JsonThreads;
use crate::lapsed_grants;
use crate::limits::{Limits, TenantCount, TenantCounter, rate_limited};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::recorded_configuration::{RecordedConfiguration, oldest_configuration};
use crate::refused_requests::RefusedRequests;
use crate::router;
use crate::setup::{AgentShown, Approvers, Auth, Reload, Reloaded, Setup, SinkFault};

/// Answers requests for one engine.
pub struct Server {
    pub(crate) engine: Engine,
    pub(crate) access: Access,
    pub(crate) approvers: Approvers,
    pub(crate) limits: Limits,
    pub(crate) json_threads: Arc<JsonThreads>,
    pub(crate) readiness: Readiness,
    pub(crate) streams: Arc<TenantCounter>,
    /// Requests that wait for a run.
    pub(crate) waits: Arc<TenantCounter>,
    pub(crate) metrics: Metrics,
    pub(crate) callback_rate_limits: CallbackRateLimits,
    sink_fault: SinkFault,
    pub(crate) refused_requests: RefusedRequests,
    reload: Reload,
    /// One reload at a time, so that the configuration that was read last is in force.
    reloading: Mutex<()>,
    agents: RwLock<Arc<Vec<AgentShown>>>,
    /// SHA-256 of the configuration file that is in force.
    file: RwLock<Option<Digest>>,
    pub(crate) draining: CancellationToken,
    /// Accepted requests that change something.
    in_flight: TaskTracker,
    stopped: CancellationToken,
}

impl Server {
    #[must_use]
    pub fn new(setup: Setup) -> Arc<Self> {
        Self::with_limits(setup, Limits::default())
    }

    #[must_use]
    pub fn with_limits(setup: Setup, limits: Limits) -> Arc<Self> {
        let (streams, waits) = (Arc::<TenantCounter>::default(), Arc::<TenantCounter>::default());
        Arc::new(Self {
            metrics: Metrics::new(&setup.engine, &streams, &waits, setup.log_lines_dropped),
            access: Access::new(setup.auth, setup.origins, &limits),
            approvers: setup.approvers,
            engine: setup.engine,
            readiness: Readiness::default(),
            limits,
            json_threads: Arc::default(),
            streams,
            waits,
            callback_rate_limits: CallbackRateLimits::default(),
            sink_fault: setup.sink_fault,
            refused_requests: RefusedRequests::default(),
            reload: setup.reload,
            reloading: Mutex::default(),
            agents: RwLock::new(Arc::new(setup.agents)),
            file: RwLock::default(),
            draining: CancellationToken::new(),
            in_flight: TaskTracker::new(),
            stopped: CancellationToken::new(),
        })
    }

    /// Every route, with its guards. A caller that serves it by other means has to limit the connections itself.
    pub fn router(self: &Arc<Self>) -> Router {
        router::api_router(self)
    }

    /// Serves this listener until [`Server::stop`], or until the future is dropped. From `draining` on, the server
    /// accepts nothing new and closes streams. It still answers reads and readiness checks while the engine drains.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, draining: CancellationToken) {
        let routers = Routers { normal: self.router(), overloaded: router::overload_router(&self) };
        let refused = self.metrics.connections_refused.clone();
        let answering =
            connection::accept_all(listener, routers, &self.limits, refused, self.stopped.clone());
        let draining = async {
            draining.cancelled().await;
            self.drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = answering => {}
            () = draining => {}
        }
    }

    /// Refuses a decision that the required sink of the audit record would not get.
    pub(crate) fn check_sink(&self, tenant: &Tenant) -> Result<(), ApiError> {
        (self.sink_fault)(tenant).map_or(Ok(()), |why| {
            let what = "decisions have to reach the sink of the audit record, which does not work now, so nothing was \
                decided";
            Err(ApiError::new(
                Code::AuditSinkDown,
                format!("{what} ({why}); send the request again once the operator has repaired it"),
            ))
        })
    }

    /// [`Server::check_sink`] for a decision about a call that is held as `kind`.
    pub(crate) fn check_sink_for(&self, tenant: &Tenant, kind: SuspensionKind) -> Result<(), ApiError> {
        if needs_sink(kind) { self.check_sink(tenant) } else { Ok(()) }
    }

    /// Accepts nothing new from now on, and closes every stream.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Waits until every request that was accepted before [`Server::drain`] has its response. Drain the engine after
    /// this, so that each of these responses says what happened.
    pub async fn wait_until_answered(&self) {
        self.in_flight.close();
        self.in_flight.wait().await;
    }

    /// Accepts a request that changes something; it is in flight until the token is dropped. A draining server accepts
    /// none.
    pub(crate) fn track_request(&self) -> Result<TaskTrackerToken, ApiError> {
        // Counted before the check: a request that does not see the drain is waited for.
        let token = self.in_flight.token();
        if self.is_draining() { Err(draining_error()) } else { Ok(token) }
    }

    pub(crate) fn open_stream(&self, tenant: &Tenant) -> Result<TenantCount, ApiError> {
        if self.is_draining() {
            return Err(draining_error());
        }
        let stream = self.streams.open(tenant, self.limits.streams_per_tenant_max);
        stream.ok_or_else(|| rate_limited("this tenant has too many open streams"))
    }

    /// Ends [`Server::serve`] as soon as open responses are sent, and after a short grace period at the latest.
    pub fn stop(&self) {
        self.drain();
        self.stopped.cancel();
    }

    /// Reloads the configuration with its agents and keys. A removed key is refused from the next request on, and its
    /// open streams end. If the configuration is not accepted, nothing has changed.
    pub async fn reload(&self, actor: &Actor) -> Result<(), String> {
        let _one_at_a_time = self.reloading.lock().await;
        let Reloaded { agents, auth, allow_origins, file, apply } = (self.reload)().await?;
        self.record(AuditAction::ConfigurationReloaded, &auth, file, actor).await.map_err(|refused| {
            tracing::error!(
                %refused,
                "the audit record of this reload cannot be written, so nothing was changed; reload again once the store \
                 works"
            );
            format!("the audit record of this reload cannot be written: {refused}")
        })?;
        apply();
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
        self.approvers.replace_auth(&auth);
        self.access.replace_auth(auth, &self.limits);
        self.access.replace_origins(allow_origins);
        self.revoke_lapsed_grants().await;
        Ok(())
    }

    /// Records the configuration and its keys. Call it at startup: keys may have changed since the server stopped.
    /// If that fails, the server must not serve.
    pub async fn record_started(&self, file: Option<Digest>) -> Result<(), StoreError> {
        self.record(AuditAction::ConfigurationLoaded, &self.approvers.auth(), file, &Actor::system()).await
    }

    async fn record(
        &self,
        action: AuditAction,
        auth: &Auth,
        file: Option<Digest>,
        actor: &Actor,
    ) -> Result<(), StoreError> {
        RecordedConfiguration { action, auth, file, actor }.write(&**self.engine.store()).await?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// Adds a sample of the requests that were refused since the last call to the audit record. Call it once a minute.
    pub async fn record_refusals(&self) -> Result<(), StoreError> {
        self.refused_requests.write(&**self.engine.store()).await
    }

    /// Deletes audit records that are older than this, a bounded number. Returns how many. First it records the
    /// configuration again if its last record would be among them: a prune never deletes that one.
    pub async fn prune_audit(&self, older_than: Timestamp) -> Result<u64, StoreError> {
        let _no_reload = self.reloading.lock().await;
        let store = self.engine.store();
        if oldest_configuration(&**store).await?.is_some_and(|oldest| oldest < older_than) {
            let file = *self.file.read().unwrap_or_else(PoisonError::into_inner);
            let auth = self.approvers.auth();
            self.record(AuditAction::ConfigurationRestated, &auth, file, &Actor::system()).await?;
            seal_all(&**store).await?;
        }
        store.prune_audit(older_than).await
    }

    /// Revokes the grants whose givers may no longer approve. Call it at startup, because the keys may have changed
    /// since the last one. Such grants have no effect even before; revoking them keeps them from taking effect again.
    pub async fn revoke_lapsed_grants(&self) {
        match lapsed_grants::revoke_lapsed(self).await {
            Ok(0) => {}
            Ok(revoked) => {
                tracing::info!(revoked, "revoked grants whose givers may no longer approve");
            }
            Err(refused) => tracing::warn!(
                %refused,
                "cannot revoke the grants of removed keys; they take effect again if a key of the same name is added. \
                 Reload the configuration to try again"
            ),
        }
    }

    pub(crate) fn agents(&self) -> Arc<Vec<AgentShown>> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }
}

/// Whether a decision of this kind may let a call run, so that it has to reach the sink of the audit record.
pub(crate) const fn needs_sink(kind: SuspensionKind) -> bool {
    match kind {
        SuspensionKind::Approval | SuspensionKind::InDoubt => true,
        SuspensionKind::Question
        | SuspensionKind::ClientTool
        | SuspensionKind::External
        | SuspensionKind::ChildRun => false,
    }
}
