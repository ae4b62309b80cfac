//! Rule 20: the key of callbacks is the first one that was offered, for every process, until it is removed.

use std::collections::BTreeSet;

use engine::callback::CallbackKey;

use crate::fixture::Fixture;

pub(crate) async fn rule_20_the_first_key_is_kept_over_a_crash<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let first = CallbackKey::from([7; 32]);
    let commits = world.store.counts().commits;
    assert_eq!(world.store.callback_key(None).await, Ok(None), "looking keeps nothing");
    assert_eq!(world.store.callback_key(Some(first)).await, Ok(Some(first)));
    assert_eq!(world.store.callback_key(Some(CallbackKey::from([8; 32]))).await, Ok(Some(first)));
    assert_eq!(world.store.counts().commits, commits, "it is no commit of a run");
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_key(Some(CallbackKey::from([9; 32]))).await, Ok(Some(first)));
}

pub(crate) async fn rule_20_a_removed_key_is_gone_and_another_one_can_be_kept<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    assert_eq!(world.store.remove_callback_key().await, Ok(false));
    let (first, second) = (CallbackKey::from([7; 32]), CallbackKey::from([8; 32]));
    assert_eq!(world.store.callback_key(Some(first)).await, Ok(Some(first)));
    assert_eq!(world.store.remove_callback_key().await, Ok(true));
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_key(None).await, Ok(None));
    assert_eq!(world.store.callback_key(Some(second)).await, Ok(Some(second)));
}

pub(crate) async fn rule_20_of_many_keys_at_once_everybody_gets_the_same<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let tasks: Vec<_> = (0..50_u8)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.store.callback_key(Some(CallbackKey::from([number; 32]))).await })
        })
        .collect();
    let mut told = BTreeSet::new();
    for task in tasks {
        told.insert(*task.await.unwrap().unwrap().unwrap().as_bytes());
    }
    assert_eq!(told.len(), 1);
}
