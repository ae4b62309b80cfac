//! Places: how many requests are worked on at the same time, and how much of what they bring and get is in memory.
//!
//! No tenant has more than half of any, so nobody can keep the others out. A place is for work: nobody has one
//! while their body is on its way, or while they wait for somebody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::store::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;

/// Bodies and answers are counted in so many bytes.
const UNIT_BYTES: usize = 1024;

/// So much for all.
pub(crate) struct Places {
    requests: Pool,
    bodies: Pool,
    values: Pool,
    answers: Pool,
    shares: BTreeMap<Tenant, Share>,
}

/// What one tenant may have of it.
#[derive(Clone)]
pub(crate) struct Share {
    requests: Portion,
    bodies: Portion,
    values: Portion,
    answers: Portion,
    /// How many long JSON texts of the tenant are read or written at the same time.
    long_json: Arc<Semaphore>,
    turn_time: Duration,
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Self {
        let body_units = units(limits.body_bytes_max);
        Self {
            requests: Pool::new(limits.requests_max, 1),
            bodies: Pool::new(units(limits.bodies_bytes_max), body_units),
            values: Pool::new(units(limits.values_bytes_max), 1),
            answers: Pool::new(units(limits.answers_bytes_max), units(limits.whole_run_bytes_max)),
            shares: BTreeMap::new(),
        }
    }

    /// The same for all keys of one tenant.
    pub(crate) fn share(&mut self, tenant: &Tenant, limits: &Limits) -> Share {
        let new = || Share {
            requests: self.requests.portion(),
            bodies: self.bodies.portion(),
            values: self.values.portion(),
            answers: self.answers.portion(),
            long_json: Arc::new(Semaphore::new(long_json_max())),
            turn_time: limits.turn_time,
        };
        self.shares.entry(tenant.clone()).or_insert_with(new).clone()
    }
}

impl Share {
    /// Room for a body of so many bytes, for as long as it is kept; none where there is none in time.
    pub(crate) async fn room(&self, bytes: usize) -> Option<Taken> {
        self.in_time(self.bodies.take(units(bytes))).await
    }

    /// Room for values of that much memory, while their request is worked on; none where there is none in time. One that
    /// needs more than the tenant's half takes all of the half.
    pub(crate) async fn values_room(&self, bytes: usize) -> Option<Taken> {
        self.in_time(self.values.take(units(bytes))).await
    }

    /// Room for an answer of so many bytes, until it is sent; none where there is none in time.
    pub(crate) async fn answer_room(&self, bytes: usize) -> Option<Taken> {
        self.in_time(self.answers.take(units(bytes))).await
    }

    /// The tenant's turn to read or write a long JSON text. Waits as long as other requests of the tenant have it.
    pub(crate) async fn long_json_turn(&self) -> LongJsonTurn {
        LongJsonTurn { _permit: self.long_json.clone().acquire_owned().await.ok() }
    }

    /// None where no place is free in time.
    pub(crate) async fn place(&self) -> Option<Place> {
        let taken = self.in_time(self.requests.take(1)).await?;
        Some(Place { share: self.clone(), taken: Mutex::new(Some(taken)) })
    }

    async fn in_time(&self, taking: impl Future<Output = Option<Taken>>) -> Option<Taken> {
        tokio::time::timeout(self.turn_time, taking).await.ok().flatten()
    }
}

/// The place of one request.
pub(crate) struct Place {
    share: Share,
    taken: Mutex<Option<Taken>>,
}

impl Place {
    /// Waits for somebody else, and lets others work meanwhile. What was waited for is told afterwards, also where no
    /// place is free again in time.
    pub(crate) async fn away<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.leave();
        let told = waiting.await;
        let taken = self.share.in_time(self.share.requests.take(1)).await;
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = taken;
        told
    }

    /// Room for what is about to be put together, at most so many bytes; none where there is none in time.
    pub(crate) async fn answer_room(&self, bytes: usize) -> Option<Taken> {
        self.share.answer_room(bytes).await
    }

    pub(crate) async fn long_json_turn(&self) -> LongJsonTurn {
        self.share.long_json_turn().await
    }

    pub(crate) fn leave(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Held while a long JSON text is read or written. Given back when it is dropped.
pub(crate) struct LongJsonTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Half of the processors, so that the requests of other tenants find one that is free.
fn long_json_max() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

/// Given back when it is dropped.
pub(crate) struct Taken {
    own: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Taken {
    pub(crate) fn bytes(&self) -> usize {
        self.own.num_permits() * UNIT_BYTES
    }

    /// Gives back what so many bytes do not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in [&mut self.own, &mut self.of_all] {
            drop(permit.split(permit.num_permits().saturating_sub(units(bytes))));
        }
    }
}

/// So many for all, of which each tenant has a half, and not less than one request needs.
struct Pool {
    all: Arc<Semaphore>,
    half: usize,
}

#[derive(Clone)]
struct Portion {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    most: usize,
}

impl Pool {
    fn new(count: usize, least: usize) -> Self {
        let count = count.max(least);
        Self { all: Arc::new(Semaphore::new(count)), half: (count / 2).max(least) }
    }

    fn portion(&self) -> Portion {
        Portion { all: self.all.clone(), own: Arc::new(Semaphore::new(self.half)), most: self.half }
    }
}

impl Portion {
    /// First of one's own: whoever has enough already does not stand in line with the others.
    async fn take(&self, count: usize) -> Option<Taken> {
        let count = u32::try_from(count.min(self.most)).unwrap_or(u32::MAX);
        let own = self.own.clone().acquire_many_owned(count).await.ok()?;
        let of_all = self.all.clone().acquire_many_owned(count).await.ok()?;
        Some(Taken { own, of_all })
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limits: &Limits) -> (Share, Share) {
        let limits = &Limits { turn_time: Duration::from_millis(10), ..limits.clone() };
        let mut places = Places::new(limits);
        (places.share(&"one".into(), limits), places.share(&"other".into(), limits))
    }

    #[tokio::test]
    async fn no_tenant_has_more_than_half_of_the_places() {
        let (one, other) = shares(&Limits { requests_max: 4, ..Limits::default() });
        let (_first, _second) = (one.place().await.expect("free"), one.place().await.expect("free"));
        assert!(one.place().await.is_none(), "a third is refused, though two are free");
        assert!(other.place().await.is_some());
    }

    #[tokio::test]
    async fn whoever_waits_for_somebody_else_has_no_place_meanwhile() {
        let (one, other) = shares(&Limits { requests_max: 1, ..Limits::default() });
        let place = one.place().await.expect("free");
        assert!(other.place().await.is_none(), "there is one, and somebody has it");
        let seen = place.away(async { other.place().await.is_some() }).await;
        assert!(seen, "somebody else works meanwhile");
        assert!(other.place().await.is_none(), "it is taken again");
        // Somebody else is faster: what was waited for is told all the same.
        let mut theirs = None;
        place.away(async { theirs = other.place().await }).await;
        assert!(theirs.is_some());
        drop(place);
        assert!(one.place().await.is_none(), "whoever has no place gives none back");
    }

    #[tokio::test]
    async fn bodies_on_their_way_have_a_largest_size_together() {
        let limits = Limits { body_bytes_max: 2 * 1024, bodies_bytes_max: 8 * 1024, ..Limits::default() };
        let (one, other) = shares(&limits);
        let (_first, second) = (one.room(2 * 1024).await, one.room(2 * 1024).await);
        assert!(one.room(1).await.is_none(), "half of it is taken");
        assert!(other.room(2 * 1024).await.is_some());
        drop(second);
        assert!(one.room(1).await.is_some());
    }

    #[tokio::test]
    async fn long_json_texts_of_one_tenant_take_turns_and_delay_no_other_tenant() {
        let (one, other) = shares(&Limits::default());
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
