//! Capacity: how many requests are processed at the same time, and how much memory their bodies and responses use.
//!
//! No tenant gets more than half of any pool, so no tenant can lock the others out. A request permit is for work: a
//! request holds none while its body is still arriving, or while it waits for something outside it, such as a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::store::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;

/// Bodies and responses are counted in units of this many bytes.
const UNIT_BYTES: usize = 1024;

/// The pools that all tenants share.
pub(crate) struct Capacity {
    requests: Pool,
    bodies: Pool,
    values: Pool,
    responses: Pool,
    tenants: BTreeMap<Tenant, TenantCapacity>,
}

/// One tenant's share of the pools.
#[derive(Clone)]
pub(crate) struct TenantCapacity {
    requests: TenantPool,
    bodies: TenantPool,
    values: TenantPool,
    responses: TenantPool,
    /// How many long JSON texts of this tenant are parsed or written at the same time.
    long_json: Arc<Semaphore>,
    permit_timeout: Duration,
}

impl Capacity {
    pub(crate) fn new(limits: &Limits) -> Self {
        let body_units = units(limits.body_bytes_max);
        Self {
            requests: Pool::new(limits.requests_max, 1),
            bodies: Pool::new(units(limits.bodies_bytes_max), body_units),
            values: Pool::new(units(limits.values_bytes_max), 1),
            responses: Pool::new(units(limits.responses_bytes_max), units(limits.whole_run_bytes_max)),
            tenants: BTreeMap::new(),
        }
    }

    /// All keys of one tenant share the same capacity.
    pub(crate) fn for_tenant(&mut self, tenant: &Tenant, limits: &Limits) -> TenantCapacity {
        let new = || TenantCapacity {
            requests: self.requests.tenant_pool(),
            bodies: self.bodies.tenant_pool(),
            values: self.values.tenant_pool(),
            responses: self.responses.tenant_pool(),
            long_json: Arc::new(Semaphore::new(long_json_max())),
            permit_timeout: limits.permit_timeout,
        };
        self.tenants.entry(tenant.clone()).or_insert_with(new).clone()
    }
}

impl TenantCapacity {
    /// Reserves memory for a body for as long as it is kept. None if there is not enough in time.
    pub(crate) async fn reserve_body(&self, bytes: usize) -> Option<Permit> {
        self.with_timeout(self.bodies.acquire(units(bytes))).await
    }

    /// Reserves memory for parsed values while their request is processed. None if there is not enough in time. A
    /// request that needs more than the tenant's half takes the whole half.
    pub(crate) async fn reserve_values(&self, bytes: usize) -> Option<Permit> {
        self.with_timeout(self.values.acquire(units(bytes))).await
    }

    /// Reserves memory for a response until it is sent. None if there is not enough in time.
    pub(crate) async fn reserve_response(&self, bytes: usize) -> Option<Permit> {
        self.with_timeout(self.responses.acquire(units(bytes))).await
    }

    /// The tenant's turn to parse or write a long JSON text. Waits, without a timeout, for the tenant's other requests.
    pub(crate) async fn long_json_turn(&self) -> LongJsonTurn {
        LongJsonTurn { _permit: self.long_json.clone().acquire_owned().await.ok() }
    }

    /// None if no permit is free in time.
    pub(crate) async fn acquire_request(&self) -> Option<RequestPermit> {
        let permit = self.with_timeout(self.requests.acquire(1)).await?;
        let (capacity, permit) = (self.clone(), Mutex::new(Some(permit)));
        Some(RequestPermit { capacity, permit, body: Mutex::default() })
    }

    async fn with_timeout(&self, acquiring: impl Future<Output = Option<Permit>>) -> Option<Permit> {
        tokio::time::timeout(self.permit_timeout, acquiring).await.ok().flatten()
    }
}

/// The permit of one request.
pub(crate) struct RequestPermit {
    capacity: TenantCapacity,
    permit: Mutex<Option<Permit>>,
    /// Memory for the request's body and for the values that were parsed from it.
    body: Mutex<Vec<Permit>>,
}

impl RequestPermit {
    /// Releases the permit while the request waits, so that other requests can work. The result of `waiting` is
    /// returned even if no permit is free again in time.
    pub(crate) async fn release_while<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.release();
        let result = waiting.await;
        let permit = self.capacity.with_timeout(self.capacity.requests.acquire(1)).await;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        result
    }

    /// Keeps the memory that was reserved for the request's body until [`Self::release_body`].
    pub(crate) fn keep_body(&self, permits: impl IntoIterator<Item = Permit>) {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).extend(permits);
    }

    /// The body and everything parsed from it is dropped.
    pub(crate) fn release_body(&self) {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Reserves memory for a response of at most `bytes`, before it is built. None if there is not enough in time.
    pub(crate) async fn reserve_response(&self, bytes: usize) -> Option<Permit> {
        self.capacity.reserve_response(bytes).await
    }

    pub(crate) async fn long_json_turn(&self) -> LongJsonTurn {
        self.capacity.long_json_turn().await
    }

    pub(crate) fn release(&self) {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Held while a long JSON text is parsed or written. Released on drop.
pub(crate) struct LongJsonTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Half of the processors, so that other tenants' requests find a free one.
fn long_json_max() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

/// Released on drop.
pub(crate) struct Permit {
    tenant: OwnedSemaphorePermit,
    global: OwnedSemaphorePermit,
}

impl Permit {
    pub(crate) fn bytes(&self) -> usize {
        self.tenant.num_permits() * UNIT_BYTES
    }

    /// Releases the part that this many bytes do not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in [&mut self.tenant, &mut self.global] {
            drop(permit.split(permit.num_permits().saturating_sub(units(bytes))));
        }
    }
}

/// A shared pool. Each tenant may use half of it, but always enough for one request.
struct Pool {
    global: Arc<Semaphore>,
    tenant_max: usize,
}

#[derive(Clone)]
struct TenantPool {
    global: Arc<Semaphore>,
    tenant: Arc<Semaphore>,
    max: usize,
}

impl Pool {
    fn new(count: usize, min: usize) -> Self {
        let count = count.max(min);
        Self { global: Arc::new(Semaphore::new(count)), tenant_max: (count / 2).max(min) }
    }

    fn tenant_pool(&self) -> TenantPool {
        TenantPool {
            global: self.global.clone(),
            tenant: Arc::new(Semaphore::new(self.tenant_max)),
            max: self.tenant_max,
        }
    }
}

impl TenantPool {
    /// Acquires from the tenant's share first: a tenant that has used up its share does not queue for the shared pool.
    async fn acquire(&self, count: usize) -> Option<Permit> {
        let count = u32::try_from(count.min(self.max)).unwrap_or(u32::MAX);
        let tenant = self.tenant.clone().acquire_many_owned(count).await.ok()?;
        let global = self.global.clone().acquire_many_owned(count).await.ok()?;
        Some(Permit { tenant, global })
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant_capacities(limits: &Limits) -> (TenantCapacity, TenantCapacity) {
        let limits = &Limits { permit_timeout: Duration::from_millis(10), ..limits.clone() };
        let mut capacity = Capacity::new(limits);
        (capacity.for_tenant(&"one".into(), limits), capacity.for_tenant(&"other".into(), limits))
    }

    #[tokio::test]
    async fn no_tenant_has_more_than_half_of_the_permits() {
        let (one, other) = tenant_capacities(&Limits { requests_max: 4, ..Limits::default() });
        let (_first, _second) =
            (one.acquire_request().await.expect("free"), one.acquire_request().await.expect("free"));
        assert!(one.acquire_request().await.is_none(), "a third is refused, though two are free");
        assert!(other.acquire_request().await.is_some());
    }

    #[tokio::test]
    async fn a_request_that_waits_holds_no_permit() {
        let (one, other) = tenant_capacities(&Limits { requests_max: 1, ..Limits::default() });
        let permit = one.acquire_request().await.expect("free");
        assert!(other.acquire_request().await.is_none(), "the only permit is taken");
        let seen = permit.release_while(async { other.acquire_request().await.is_some() }).await;
        assert!(seen, "another request has the permit meanwhile");
        assert!(other.acquire_request().await.is_none(), "it is taken again");
        // Another request takes the permit first: the result of `waiting` is returned all the same.
        let mut theirs = None;
        permit.release_while(async { theirs = other.acquire_request().await }).await;
        assert!(theirs.is_some());
        drop(permit);
        assert!(one.acquire_request().await.is_none(), "a request without a permit gives none back");
    }

    #[tokio::test]
    async fn bodies_in_flight_are_limited_together() {
        let limits = Limits { body_bytes_max: 2 * 1024, bodies_bytes_max: 8 * 1024, ..Limits::default() };
        let (one, other) = tenant_capacities(&limits);
        let (_first, second) = (one.reserve_body(2 * 1024).await, one.reserve_body(2 * 1024).await);
        assert!(one.reserve_body(1).await.is_none(), "half of it is taken");
        assert!(other.reserve_body(2 * 1024).await.is_some());
        drop(second);
        assert!(one.reserve_body(1).await.is_some());
    }

    #[tokio::test]
    async fn long_json_texts_of_one_tenant_take_turns_and_delay_no_other_tenant() {
        let (one, other) = tenant_capacities(&Limits::default());
        let mut held = Vec::new();
        for _ in 0..long_json_max() {
            held.push(one.long_json_turn().await);
        }
        let soon = Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, one.long_json_turn()).await.is_err(), "every turn is taken");
        assert!(tokio::time::timeout(soon, other.long_json_turn()).await.is_ok());
        held.pop();
        assert!(tokio::time::timeout(soon, one.long_json_turn()).await.is_ok(), "one was given back");
    }
}
