//! Random schedules, said to PostgreSQL and to the store in memory.

use crate::fixture::Fixture;
use crate::postgres_fixture::Postgres;
use crate::twins::both_say_and_show_the_same;

const SEEDS: u64 = 6;

#[tokio::test]
async fn both_stores_say_and_show_the_same() {
    for seed in 0..SEEDS {
        let (_fixture, world) = Postgres::open().await;
        both_say_and_show_the_same(world, seed).await;
    }
}
