//! Rules 15 and 16: data that is stored for a run besides its log, and that a caller without a lease can read.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::store::{ANSWER_BYTES_MAX, SCOPE_BYTES_MAX, STORED_RESPONSES_MAX, StoreError, StoredResponse};
use machine::id::{Digest, RunId};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Scope};
use serde_json::{Value, json};

use crate::fixture::{Fixture, World};
use crate::worker::{queued, started};

fn answer(body: &str, answer: &str) -> StoredResponse {
    StoredResponse { body: Digest::sha256(body.as_bytes()), status: 200, answer: answer.into() }
}

async fn remember(
    world: &World,
    run: &str,
    scope: &str,
    answer: StoredResponse,
) -> Result<StoredResponse, StoreError> {
    world.store.store_response(&world.tenant, &RunId::from(run), scope, answer).await
}

async fn remembered(world: &World, run: &str, scope: &str) -> Option<StoredResponse> {
    world.store.stored_response(&world.tenant, &RunId::from(run), scope).await.unwrap()
}

pub(crate) async fn rule_15_the_first_answer_under_a_scope_is_kept<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    queued(&world, "thr", "run").await;
    queued(&world, "thr_2", "run_2").await;
    assert_eq!(remembered(&world, "run", "k").await, None);
    let commits = world.store.metrics().commits;
    let first = StoredResponse { status: 202, ..answer("body", "{\"a\":\"\0ü\"}") };
    assert_eq!(remember(&world, "run", "k", first.clone()).await, Ok(first.clone()));
    assert_eq!(remember(&world, "run", "k", answer("other", "later")).await, Ok(first.clone()));
    assert_eq!(world.store.metrics().commits, commits, "storing a response is not a commit of the run");
    assert_eq!(remembered(&world, "run", "k").await, Some(first.clone()));
    assert_eq!(remembered(&world, "run", "k2").await, None);
    assert_eq!(remembered(&world, "run_2", "k").await, None, "a scope is valid within its run only");
    assert_eq!(remembered(&world.for_tenant("thief"), "run", "k").await, None);
    assert_eq!(
        remember(&world.for_tenant("thief"), "run", "k2", answer("b", "a")).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(remember(&world, "missing", "k", answer("b", "a")).await, Err(StoreError::NotFound));
    let world = fixture.crash(world).await;
    assert_eq!(remembered(&world, "run", "k").await, Some(first));
}

pub(crate) async fn rule_15_concurrent_answers_all_return_the_same<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    queued(&world, "thr", "run").await;
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move {
                remember(&world, "run", "k", answer("body", &number.to_string())).await.unwrap().answer
            })
        })
        .collect();
    let mut told = BTreeSet::new();
    for task in tasks {
        told.insert(task.await.unwrap());
    }
    assert_eq!(told.len(), 1);
    assert_eq!(remembered(&world, "run", "k").await.unwrap().answer, told.pop_first().unwrap());
}

pub(crate) async fn rule_17_an_answer_has_a_largest_size_and_goes_with_its_thread<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut worker = started(&world, "thr", "run").await;
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    let scope = "s".repeat(SCOPE_BYTES_MAX);
    let longest = answer("body", &"x".repeat(ANSWER_BYTES_MAX));
    let longer = StoredResponse { answer: format!("{}x", longest.answer), ..longest.clone() };
    assert!(matches!(remember(&world, "run", &scope, longer).await, Err(StoreError::Impossible(_))));
    let too_wide = format!("{scope}s");
    assert!(matches!(
        remember(&world, "run", &too_wide, answer("b", "a")).await,
        Err(StoreError::Impossible(_))
    ));
    assert_eq!(remembered(&world, "run", &scope).await, None);
    assert_eq!(remember(&world, "run", &scope, longest.clone()).await, Ok(longest));
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(remembered(&world, "run", &scope).await, None);
    // A later run with the same id is a different run.
    queued(&world, "thr", "run").await;
    assert_eq!(remembered(&world, "run", &scope).await, None);
}

pub(crate) async fn rule_17_remembered_answers_of_a_run_are_bounded<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    queued(&world, "thr", "run").await;
    queued(&world, "thr_2", "run_2").await;
    let scopes: Vec<String> = (0..STORED_RESPONSES_MAX).map(|number| format!("k{number}")).collect();
    let (first, last) = scopes.split_at(STORED_RESPONSES_MAX - 10);
    for some in first.chunks(64) {
        let tasks: Vec<_> = some
            .iter()
            .map(|scope| {
                let (world, scope) = (world.clone(), scope.clone());
                tokio::spawn(async move { remember(&world, "run", &scope, answer("body", &scope)).await })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().is_ok());
        }
    }
    for scope in last {
        assert!(remember(&world, "run", scope, answer("body", scope)).await.is_ok());
    }
    let refused = remember(&world, "run", "one more", answer("body", "a")).await;
    assert!(matches!(refused, Err(StoreError::Impossible(_))), "{refused:?}");
    assert_eq!(remembered(&world, "run", "one more").await, None);
    for scope in ["k0", "k1023"] {
        assert_eq!(remembered(&world, "run", scope).await, Some(answer("body", scope)));
        let again = remember(&world, "run", scope, answer("other", "later")).await;
        assert_eq!(again, Ok(answer("body", scope)), "stored responses are still returned");
    }
    assert!(remember(&world, "run_2", "k", answer("body", "a")).await.is_ok(), "another run has room");
}

pub(crate) async fn rule_16_what_plugins_keep_is_shown_without_a_lease<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let state = |run: &str| {
        let (world, run) = (world.clone(), RunId::from(run));
        async move { world.store.state(&world.tenant, &run).await }
    };
    let set =
        |key: &str, scope, value: Value| Action::SetState { key: key.into(), scope, value: Arc::new(value) };
    let mut worker = started(&world, "thr", "run").await;
    assert_eq!(state("run").await, Ok(Vec::new()));
    let actions = vec![
        set("b", Scope::Thread, json!({"n": 1})),
        set("z", Scope::Run, json!("own")),
        set("a", Scope::Run, json!("own too")),
    ];
    let answers = vec![HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(actions) }];
    let hooks = HookAnswers { answers, state_bytes_after: 10 };
    worker.asks_knowing(&[("a", "echo")], BTreeSet::new(), hooks);
    worker.commit(&world).await.unwrap();
    let shown = state("run").await.unwrap();
    let keys: Vec<(&str, Scope)> = shown.iter().map(|row| (row.key.as_str(), row.scope)).collect();
    assert_eq!(keys, [("a", Scope::Run), ("z", Scope::Run), ("b", Scope::Thread)]);
    let decoded: Vec<_> = shown.iter().map(|row| row.clone().decoded().unwrap()).collect();
    assert_eq!(world.store.plugin_state(&worker.lease).await.unwrap(), decoded, "the worker sees the same");
    worker.succeeds("a");
    worker.finish_with("done");
    worker.commit(&world).await.unwrap();
    assert_eq!(state("run").await.unwrap(), shown, "even after the run has ended");
    queued(&world, "thr", "later").await;
    assert_eq!(state("later").await.unwrap(), shown[2..], "every run sees the state of its thread");
    assert_eq!(state("missing").await, Err(StoreError::NotFound));
    assert_eq!(world.store.state(&"thief".into(), &"run".into()).await, Err(StoreError::NotFound));
}
