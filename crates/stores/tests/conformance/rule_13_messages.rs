//! Rule 13: the messages of a thread are listed in the order in which they joined it.

use engine::store::{Claim, MessageOrder, MessageView, Page, StoreError};
use machine::Input;
use machine::event::{Fact, InterruptCause, Message};
use machine::inbox::Item;
use machine::policy::OnBusy;
use serde_json::Value;

use crate::fixture::{Fixture, World};
use crate::worker::{Worker, creation, enqueued, held, order, queued, started};

async fn listed(
    world: &World,
    thread: &str,
    page: &Page,
) -> Result<(Vec<MessageView>, Option<String>), StoreError> {
    let order = MessageOrder::OldestFirst;
    let listed = world.store.messages(&world.tenant, &thread.into(), order, page).await?;
    Ok((listed.items, listed.next))
}

async fn listed_newest_first(
    world: &World,
    thread: &str,
    page: &Page,
) -> Result<(Vec<MessageView>, Option<String>), StoreError> {
    let order = MessageOrder::NewestFirst;
    let listed = world.store.messages(&world.tenant, &thread.into(), order, page).await?;
    Ok((listed.items, listed.next))
}

/// All of them, in pages of this size.
async fn all(world: &World, thread: &str, limit: usize) -> Vec<MessageView> {
    let mut page = Page { cursor: None, limit };
    let mut found = Vec::new();
    loop {
        let (items, next) = listed(world, thread, &page).await.unwrap();
        assert!(items.len() <= limit, "a page has more than was asked for");
        found.extend(items);
        match next {
            Some(cursor) => page.cursor = Some(cursor),
            None => return found,
        }
    }
}

fn names(messages: &[MessageView]) -> Vec<&str> {
    messages.iter().map(|view| view.id.as_str()).collect()
}

/// Claims the run that now holds the thread, and starts it.
async fn starts(world: &World, run: &str) -> Worker {
    let asked = Claim::Run { tenant: world.tenant.clone(), run: run.into() };
    let claimed = world.store.claim(asked).await.unwrap().remove(0);
    let after = claimed.loaded.as_ref().unwrap().begins_after.clone();
    let mut worker = Worker::from_claim(world, claimed);
    worker.take_over();
    worker.apply_input(&Input::Start { after });
    worker.commit(world).await.unwrap();
    worker
}

pub(crate) async fn rule_13_messages_are_listed_as_they_joined_in_pages<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    // The ids of the runs and of their messages do not follow the order.
    for run in ["z", "a", "m"] {
        let mut worker = started(&world, "thr", run).await;
        let (first, second) = (format!("y_{run}"), format!("x_{run}"));
        worker.asks(&[(&first, "echo"), (&second, "echo")]);
        worker.commit(&world).await.unwrap();
        worker.succeeds(&first);
        worker.succeeds(&second);
        worker.finish_with("done");
        worker.commit(&world).await.unwrap();
    }
    started(&world, "elsewhere", "other").await;
    let told: Vec<String> = ["z", "a", "m"]
        .into_iter()
        .flat_map(|run| {
            [
                format!("msg_user_{run}"),
                format!("msg_{run}_1"),
                format!("msg_y_{run}"),
                format!("msg_x_{run}"),
                format!("msg_{run}_2"),
            ]
        })
        .collect();
    let everything = all(&world, "thr", 100).await;
    assert_eq!(names(&everything), told);
    for limit in [1, 2, 7, 15] {
        assert_eq!(all(&world, "thr", limit).await, everything);
    }
    for view in &everything {
        let log = world.store.events(&world.tenant, &view.run, view.seq - 1, 1).await.unwrap();
        let Fact::MessageAdded(message) = &log[0].readable().unwrap().event.fact else {
            panic!("this event adds no message")
        };
        let said = view.said.as_ref().unwrap();
        assert_eq!(
            (message, log[0].readable().unwrap().event.at),
            (&said.message, said.at),
            "the listed message is the one in the log"
        );
        assert_eq!(*message.id(), view.id);
    }
    let runs: Vec<&str> = everything.iter().map(|view| view.run.as_str()).collect();
    assert_eq!(runs, [["z"; 5], ["a"; 5], ["m"; 5]].concat(), "one run after the other");
    let roles: Vec<&str> =
        everything.iter().take(5).map(|view| role(&view.said.as_ref().unwrap().message)).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { .. } => "tool",
        Message::Note { .. }
        | Message::Correction { .. }
        | Message::CallsDropped { .. }
        | Message::Interruption { .. } => "note",
    }
}

pub(crate) async fn rule_13_what_waits_to_join_is_not_there_yet<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut front = held(&world, "thr", "front", "transfer").await;
    let pushy = creation(&world, order("thr", "pushy"), OnBusy::Interrupt, false).await;
    world.store.create(pushy).await.unwrap();
    enqueued(&world, "thr", "patient").await;
    let first = ["msg_user_front", "msg_front_1"];
    assert_eq!(names(&all(&world, "thr", 10).await), first);
    let before = listed(&world, "thr", &Page { cursor: None, limit: 1 }).await.unwrap();
    front.reload(&world).await;
    assert_eq!(front.inbox.len(), 1);
    front.drain();
    front.commit(&world).await.unwrap();
    let mut pushy = starts(&world, "pushy").await;
    pushy.finish_with("first");
    pushy.commit(&world).await.unwrap();
    starts(&world, "patient").await;
    let behind = Page { cursor: before.1, limit: 100 };
    let (rest, end) = listed(&world, "thr", &behind).await.unwrap();
    assert_eq!(end, None);
    let of_user: Vec<&str> = names(&rest).into_iter().filter(|id| id.starts_with("msg_user")).collect();
    assert_eq!(of_user, ["msg_user_pushy", "msg_user_patient"], "each joined as its run started");
    assert_eq!(before.0.len() + rest.len(), all(&world, "thr", 100).await.len(), "no page omits a message");
}

pub(crate) async fn rule_13_a_thread_without_messages_is_not_a_thread_that_is_not_there<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    world.store.put_thread(&world.tenant, &"empty".into(), &Value::Null).await.unwrap();
    queued(&world, "thr", "run").await;
    let page = Page::default();
    assert_eq!(listed(&world, "empty", &page).await, Ok((Vec::new(), None)));
    assert_eq!(listed(&world, "thr", &page).await, Ok((Vec::new(), None)), "its message waits to join");
    assert_eq!(listed(&world, "nowhere", &page).await, Err(StoreError::NotFound));
    assert_eq!(listed(&world.for_tenant("thief"), "thr", &page).await, Err(StoreError::NotFound));
    let bad = Page { cursor: Some("yesterday".into()), limit: 10 };
    assert!(matches!(listed(&world, "thr", &bad).await, Err(StoreError::Impossible(_))));
    let mut worker = starts(&world, "run").await;
    let (messages, next) = listed(&world, "thr", &page).await.unwrap();
    assert_eq!((names(&messages), next), (vec!["msg_user_run"], None));
    worker.accept(Item::Interrupt { cause: InterruptCause::Person("bob".into()) });
    worker.commit(&world).await.unwrap();
    world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await.unwrap();
    assert_eq!(listed(&world, "thr", &page).await, Err(StoreError::NotFound));
}

pub(crate) async fn rule_13_newest_first_is_the_reverse_and_stays_so_while_messages_join<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let mut first = started(&world, "thr", "z").await;
    first.finish_with("done");
    first.commit(&world).await.unwrap();
    let mut second = started(&world, "thr", "a").await;
    second.asks(&[("one", "echo"), ("two", "echo")]);
    second.commit(&world).await.unwrap();
    let before = all(&world, "thr", 100).await;
    let mut newest = before.clone();
    newest.reverse();
    assert_eq!(listed_newest_first(&world, "thr", &Page::default()).await, Ok((newest.clone(), None)));
    let (page, cursor) = listed_newest_first(&world, "thr", &Page { cursor: None, limit: 1 }).await.unwrap();
    assert_eq!(page, newest[..1]);
    // More messages join between the first page and the next ones.
    second.succeeds("one");
    second.succeeds("two");
    second.finish_with("done");
    second.commit(&world).await.unwrap();
    assert!(all(&world, "thr", 100).await.len() > before.len());
    for limit in [1, 2, 3] {
        let (mut cursor, mut found) = (cursor.clone(), page.clone());
        while cursor.is_some() {
            let (items, next) = listed_newest_first(&world, "thr", &Page { cursor, limit }).await.unwrap();
            found.extend(items);
            cursor = next;
        }
        assert_eq!(found, newest, "in pages of {limit}");
    }
    let page = Page::default();
    assert_eq!(listed_newest_first(&world, "nowhere", &page).await, Err(StoreError::NotFound));
    assert_eq!(
        listed_newest_first(&world.for_tenant("thief"), "thr", &page).await,
        Err(StoreError::NotFound)
    );
}
