//! Rule 20: every process uses the callback key that was offered first, until it is rotated or removed.

use std::collections::BTreeSet;

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};

use crate::fixture::Fixture;

fn key(byte: u8) -> CallbackKey {
    CallbackKey::from([byte; 32])
}

fn only(byte: u8) -> StoredCallbackKeys {
    StoredCallbackKeys::first(key(byte))
}

fn rotated(current: u8, previous: u8) -> StoredCallbackKeys {
    StoredCallbackKeys { current: key(current), previous: Some(key(previous)) }
}

pub(crate) async fn rule_20_the_first_key_is_kept_over_a_crash<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    let commits = world.store.metrics().commits;
    assert_eq!(world.store.callback_keys(None).await, Ok(None), "a read stores no key");
    assert_eq!(world.store.callback_keys(Some(key(7))).await, Ok(Some(only(7))));
    assert_eq!(world.store.callback_keys(Some(key(8))).await, Ok(Some(only(7))));
    assert_eq!(world.store.metrics().commits, commits, "storing a key is not a commit of a run");
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_keys(Some(key(9))).await, Ok(Some(only(7))));
}

pub(crate) async fn rule_20_a_removed_key_is_gone_and_another_one_can_be_kept<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    assert_eq!(world.store.remove_callback_keys(KeysToRemove::All).await, Ok(false));
    assert_eq!(world.store.callback_keys(Some(key(7))).await, Ok(Some(only(7))));
    assert_eq!(world.store.remove_callback_keys(KeysToRemove::All).await, Ok(true));
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_keys(None).await, Ok(None));
    assert_eq!(world.store.callback_keys(Some(key(8))).await, Ok(Some(only(8))));
}

pub(crate) async fn rule_20_a_rotated_key_is_kept_as_the_previous_one_until_it_is_removed<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    assert_eq!(world.store.rotate_callback_key(key(7)).await, Ok(KeyRotation::NoKey));
    assert_eq!(world.store.callback_keys(None).await, Ok(None), "nothing was changed");
    world.store.callback_keys(Some(key(7))).await.unwrap();
    assert_eq!(world.store.remove_callback_keys(KeysToRemove::Previous).await, Ok(false));
    assert_eq!(world.store.rotate_callback_key(key(8)).await, Ok(KeyRotation::Rotated));
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_keys(Some(key(9))).await, Ok(Some(rotated(8, 7))));
    assert_eq!(world.store.rotate_callback_key(key(9)).await, Ok(KeyRotation::PreviousIsKept));
    assert_eq!(world.store.callback_keys(None).await, Ok(Some(rotated(8, 7))), "nothing was changed");
    assert_eq!(world.store.remove_callback_keys(KeysToRemove::Previous).await, Ok(true));
    let world = fixture.crash(world).await;
    assert_eq!(world.store.callback_keys(None).await, Ok(Some(only(8))));
    assert_eq!(world.store.rotate_callback_key(key(9)).await, Ok(KeyRotation::Rotated));
    assert_eq!(world.store.callback_keys(None).await, Ok(Some(rotated(9, 8))));
    assert_eq!(world.store.remove_callback_keys(KeysToRemove::All).await, Ok(true), "both are gone");
    assert_eq!(world.store.callback_keys(Some(key(1))).await, Ok(Some(only(1))));
}

pub(crate) async fn rule_20_concurrent_keys_all_return_the_same<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let tasks: Vec<_> = (0..50_u8)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.store.callback_keys(Some(key(number))).await })
        })
        .collect();
    let mut told = BTreeSet::new();
    for task in tasks {
        told.insert(*task.await.unwrap().unwrap().unwrap().current.as_bytes());
    }
    assert_eq!(told.len(), 1);
}

pub(crate) async fn rule_20_of_many_rotations_at_once_one_is_made<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.callback_keys(Some(key(7))).await.unwrap();
    let tasks: Vec<_> = (10..30_u8)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.store.rotate_callback_key(key(number)).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += usize::from(task.await.unwrap().unwrap() == KeyRotation::Rotated);
    }
    assert_eq!(made, 1);
    let kept = world.store.callback_keys(None).await.unwrap().unwrap();
    assert_eq!(kept.previous, Some(key(7)));
}
