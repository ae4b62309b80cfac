//! Everything that a server accepts has a limit: requests, streams, bytes, and the time that a client may take.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::store::Tenant;

use crate::error::{ApiError, Code};

/// Limits of one server. The defaults are generous for well-behaved clients.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections_max: usize,
    /// Per address; per /64 prefix with IPv6. None: no limit, for a server behind a proxy, where all connections come
    /// from one address.
    pub connections_per_address_max: Option<usize>,
    /// Requests that are processed at the same time; half as many per tenant. A stream counts only until it has begun.
    /// A request does not count while its body is arriving or while it waits for a run.
    pub requests_max: usize,
    /// How long a request may wait for a permit when a limit is reached.
    pub permit_timeout: Duration,
    pub streams_per_tenant_max: usize,
    /// Requests that wait for a run (`?wait=`). They hold no request permit and no memory of their body.
    pub waits_per_tenant_max: usize,
    pub body_bytes_max: usize,
    /// All bodies that have arrived or are arriving, together; half as much per tenant.
    pub bodies_bytes_max: usize,
    /// Memory for the values parsed from bodies that contain many of them, together; half as much per tenant. A short
    /// text can need a hundred times its length.
    pub values_bytes_max: usize,
    /// The largest response that shows a whole run without pages.
    pub whole_run_bytes_max: usize,
    /// All large responses that are being built or that clients have not read yet, together; half as much per tenant.
    /// At least as much as one whole run.
    pub responses_bytes_max: usize,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may read nothing of what is sent to it before it is disconnected.
    pub stall_timeout: Duration,
    /// Requests per key: this many in a burst, and then `requests_per_second_max`.
    pub burst_max: u32,
    pub requests_per_second_max: u32,
    /// Time between two keep-alive comments on a stream.
    pub keep_alive_interval: Duration,
    /// How long a decision waits for the commit that holds its call again because the tool has changed, and how long a
    /// callback waits for the commit that holds its call.
    pub decision_timeout: Duration,
    /// Maximum age of the run counts in the metrics.
    pub run_counts_age_max: Duration,
    /// How long open responses may continue after the server was asked to stop.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            connections_per_address_max: Some(3_072),
            requests_max: 256,
            permit_timeout: Duration::from_secs(5),
            streams_per_tenant_max: 2_048,
            waits_per_tenant_max: 1_024,
            body_bytes_max: 2 * 1024 * 1024,
            bodies_bytes_max: 128 * 1024 * 1024,
            values_bytes_max: 64 * 1024 * 1024,
            whole_run_bytes_max: 64 * 1024 * 1024,
            responses_bytes_max: 256 * 1024 * 1024,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(30),
            burst_max: 10_000,
            requests_per_second_max: 5_000,
            keep_alive_interval: Duration::from_secs(15),
            decision_timeout: Duration::from_secs(5),
            run_counts_age_max: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(1),
        }
    }
}

/// The rate limit of one key: a token bucket that refills at an even pace. Its state is one number, the time at which
/// the bucket would be full, so that two concurrent requests cannot both take the last token.
pub(crate) struct TokenBucket {
    started_at: Instant,
    full_at_ns: AtomicU64,
    token_ns: u64,
    burst_ns: u64,
}

impl TokenBucket {
    pub(crate) fn new(limits: &Limits) -> Self {
        let token_ns = 1_000_000_000 / u64::from(limits.requests_per_second_max.max(1));
        Self {
            started_at: Instant::now(),
            full_at_ns: AtomicU64::new(0),
            token_ns,
            burst_ns: token_ns * u64::from(limits.burst_max.max(1)),
        }
    }

    /// Takes one token; false if there is none right now.
    pub(crate) fn try_take(&self) -> bool {
        self.try_take_at(u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn try_take_at(&self, now_ns: u64) -> bool {
        let taken = self.full_at_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |full_at_ns| {
            let next = full_at_ns.max(now_ns).saturating_add(self.token_ns);
            (next - now_ns <= self.burst_ns).then_some(next)
        });
        taken.is_ok()
    }
}

/// When a client that was refused may retry.
pub(crate) const RETRY_SECONDS: u64 = 1;

/// The refusal when a limit is reached. Nothing was done, and the client may send the same request again.
pub(crate) fn rate_limited(what: &str) -> ApiError {
    ApiError::new(
        Code::RateLimited,
        format!("{what}, and this request was not processed; send it again in {RETRY_SECONDS} s"),
    )
    .with("retry_after_seconds", RETRY_SECONDS)
}

/// Counts something that a tenant has open, such as streams. One tenant's do not count against another's limit.
#[derive(Default)]
pub(crate) struct TenantCounter {
    open: Mutex<BTreeMap<Tenant, usize>>,
}

/// Counts as one until it is dropped.
pub(crate) struct TenantCount {
    counter: Arc<TenantCounter>,
    tenant: Tenant,
}

impl TenantCounter {
    /// None if the tenant has `count_max` open.
    pub(crate) fn open(self: &Arc<Self>, tenant: &Tenant, count_max: usize) -> Option<TenantCount> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(tenant.clone()).or_default();
        if *count >= count_max {
            return None;
        }
        *count += 1;
        Some(TenantCount { counter: self.clone(), tenant: tenant.clone() })
    }

    pub(crate) fn total(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for TenantCount {
    fn drop(&mut self) {
        let mut open = self.counter.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_one_at_a_time() {
        let limits = Limits { burst_max: 3, requests_per_second_max: 10, ..Limits::default() };
        let bucket = TokenBucket::new(&limits);
        let tenth_ns = 100_000_000;
        assert_eq!((0..9).filter(|_| bucket.try_take_at(0)).count(), 3);
        assert!(!bucket.try_take_at(tenth_ns - 1));
        assert!(bucket.try_take_at(tenth_ns));
        assert!(!bucket.try_take_at(tenth_ns), "one token, not two");
        assert_eq!((0..9).filter(|_| bucket.try_take_at(100 * tenth_ns)).count(), 3, "never more than full");
    }

    #[test]
    fn what_a_tenant_has_open_is_counted_until_it_is_dropped() {
        let streams = Arc::new(TenantCounter::default());
        let (one, other) = (Tenant::from("one"), Tenant::from("other"));
        let first = streams.open(&one, 1);
        assert!(first.is_some());
        assert!(streams.open(&one, 1).is_none());
        assert!(streams.open(&other, 1).is_some(), "another tenant has its own limit");
        drop(first);
        assert!(streams.open(&one, 1).is_some());
        assert_eq!(streams.total(), 0);
    }
}
