//! Sends sealed audit records to the configured sink, in order and at least once.

mod file_sink;
mod http_sink;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::store::{AUDIT_RECORDS_MAX, AuditFilter, StoreError, Tenant, TenantChain};
use holdpoint_http::SinkFault;
use machine::audit::SealedRecord;

use crate::cli::audit::SigningKey;
use crate::cli::config::{AuditSink, SinkTarget};
use file_sink::FileSink;
use http_sink::HttpSink;

/// A record that is older than this was not delivered in time.
const LATE: Duration = Duration::from_secs(5);

/// Whether everything that was sealed has been delivered.
#[derive(Clone)]
pub(super) struct SinkStatus(Arc<Mutex<StatusNow>>);

struct StatusNow {
    required: bool,
    fault: Option<String>,
    delivered_at: Instant,
    /// Tenants whose records cannot be sealed, so that they are not delivered either.
    stopped: BTreeSet<Tenant>,
}

impl SinkStatus {
    /// A required sink counts as down until its first delivery.
    pub(super) fn new(sink: Option<&AuditSink>) -> Self {
        Self(Arc::new(Mutex::new(StatusNow {
            required: sink.is_some_and(|sink| sink.required),
            fault: sink.map(|_| "it has not been reached since the start".to_owned()),
            delivered_at: Instant::now(),
            stopped: BTreeSet::new(),
        })))
    }

    fn now<T>(&self, read: impl FnOnce(&mut StatusNow) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why decisions of a tenant have to wait, if they have to.
    pub(super) fn for_server(&self) -> SinkFault {
        let status = self.clone();
        Arc::new(move |tenant| status.now(|now| now.required.then(|| now.fault_of(tenant)).flatten()))
    }

    /// Records that were not delivered must not be deleted.
    pub(super) fn has_fault(&self) -> bool {
        self.now(|now| now.fault.is_some())
    }
}

impl StatusNow {
    fn fault_of(&self, tenant: &Tenant) -> Option<String> {
        if self.stopped.contains(tenant) {
            return Some("the audit record of this tenant is broken".to_owned());
        }
        let late = || self.delivered_at.elapsed() > LATE;
        self.fault.clone().or_else(|| late().then(|| "it takes too long".to_owned()))
    }
}

enum Target {
    File(FileSink),
    Http(HttpSink),
}

/// Delivers what is sealed.
pub(super) struct SinkDelivery {
    engine: Engine,
    target: Target,
    key: Option<SigningKey>,
    status: SinkStatus,
}

/// Why nothing more was delivered.
enum DeliveryError {
    Sink(String),
    Store(StoreError),
}

impl From<StoreError> for DeliveryError {
    fn from(refused: StoreError) -> Self {
        Self::Store(refused)
    }
}

impl SinkDelivery {
    pub(super) fn new(engine: Engine, sink: &AuditSink, key: Option<SigningKey>, status: SinkStatus) -> Self {
        let target = match &sink.target {
            SinkTarget::File(path) => Target::File(FileSink::new(path.clone())),
            SinkTarget::Http { url, token } => Target::Http(HttpSink::new(url.clone(), token.clone())),
        };
        Self { engine, target, key, status }
    }

    /// Delivers everything that is sealed. `stopped` are the tenants whose records cannot be sealed.
    pub(super) async fn deliver(&mut self, stopped: &[Tenant]) {
        let failed = self.deliver_all().await.err().map(|failed| match failed {
            DeliveryError::Sink(why) => why,
            DeliveryError::Store(refused) => format!("the store cannot be read: {refused}"),
        });
        let before = self.status.now(|now| {
            now.stopped = stopped.iter().cloned().collect();
            if failed.is_none() {
                now.delivered_at = Instant::now();
            }
            std::mem::replace(&mut now.fault, failed.clone())
        });
        let required = self.status.now(|now| now.required);
        match &failed {
            Some(why) if before.as_ref() != Some(why) && required => tracing::error!(
                why,
                "the sink of the audit record does not work, so no decision is accepted until it does; records are kept \
                 and sent later"
            ),
            Some(why) if before.as_ref() != Some(why) => tracing::warn!(
                why,
                "the sink of the audit record does not work; records are kept and sent once it does"
            ),
            Some(_) => {}
            None if before.is_some() => {
                tracing::info!("the sink of the audit record works, and has every record")
            }
            None => {}
        }
    }

    async fn deliver_all(&mut self) -> Result<(), DeliveryError> {
        let store = self.engine.store().clone();
        let chains = store.audit_chains().await?;
        if let Target::File(file) = &mut self.target {
            file.open().map_err(DeliveryError::Sink)?;
        }
        for chain in chains {
            self.deliver_chain(&chain).await?;
        }
        Ok(())
    }

    async fn progress(&self, tenant: &Tenant) -> Result<u64, DeliveryError> {
        match &self.target {
            Target::File(file) => Ok(file.newest(tenant).map_or(0, |(seq, _)| seq)),
            Target::Http(http) => Ok(self.engine.store().sink_progress(&http.id(), tenant).await?),
        }
    }

    async fn deliver_chain(&mut self, chain: &TenantChain) -> Result<(), DeliveryError> {
        let store = self.engine.store().clone();
        let (tenant, mut after) = (&chain.tenant, self.progress(&chain.tenant).await?);
        self.check_same_record(chain, after).await?;
        while after < chain.head.seq {
            let records = store.audit(tenant, &AuditFilter::default(), after, AUDIT_RECORDS_MAX).await?;
            let (Some(first), Some(last)) = (records.first(), records.last()) else { break };
            if first.seq > after.saturating_add(1) {
                let (tenant, from, to) = (tenant.as_str(), after.saturating_add(1), first.seq);
                tracing::warn!(tenant, from, to, "records before `to` were deleted before the sink got them");
            }
            let mut lines: Vec<String> = records.iter().map(line).collect();
            if let (Some(key), true) = (&self.key, last.seq == chain.head.seq) {
                lines.push(key.head_line(tenant.as_str(), chain.head, store.now()));
            }
            let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            match &mut self.target {
                Target::File(file) => file.append(tenant, last, text).map_err(DeliveryError::Sink)?,
                Target::Http(http) => {
                    http.post(text).await.map_err(DeliveryError::Sink)?;
                    store.set_sink_progress(&http.id(), tenant, last.seq).await?;
                }
            }
            after = last.seq;
        }
        Ok(())
    }

    /// A file that has records which the store does not have shows that the store was set back. Without this check, the
    /// records that follow would be taken for those that the file has.
    async fn check_same_record(&self, chain: &TenantChain, after: u64) -> Result<(), DeliveryError> {
        let Target::File(file) = &self.target else { return Ok(()) };
        let Some((seq, hash)) = file.newest(&chain.tenant) else { return Ok(()) };
        if seq <= chain.pruned.seq {
            return Ok(());
        }
        let store = self.engine.store();
        let found = store.audit(&chain.tenant, &AuditFilter::default(), after.saturating_sub(1), 1).await?;
        if found.first().is_some_and(|record| record.seq == seq && record.hash == hash) {
            return Ok(());
        }
        Err(DeliveryError::Sink(format!(
            "{} has record {seq} of tenant {}, and the store has another one or none: the store was restored or changed; \
             verify it with `holdpoint audit verify --against` this file, then move the file away",
            file.name(),
            chain.tenant
        )))
    }
}

/// A record that was altered beyond recognition is sent as it is stored.
fn line(record: &SealedRecord) -> String {
    record.to_line().unwrap_or_else(|_| record.body.clone())
}
