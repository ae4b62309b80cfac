//! Random schedules, run against PostgreSQL and against the memory store.

use crate::differential::assert_stores_agree;
use crate::fixture::Fixture;
use crate::postgres_fixture::Postgres;

const SEEDS: u64 = 6;

#[tokio::test]
async fn both_stores_agree() {
    for seed in 0..SEEDS {
        let (_fixture, world) = Postgres::open().await;
        assert_stores_agree(world, seed).await;
    }
}
