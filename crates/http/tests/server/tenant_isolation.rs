//! Neighbours: what one tenant does is no trouble for another.

use std::time::Duration;

use engine::posting::Message;
use engine::store::Tenant;
use holdpoint_http::Role;

use crate::client::EventStream;
use crate::probe_store::BlockPoint;
use crate::test_server::{StoreKind, TestPlan};

const BOTH: &[Role] = &[Role::Run, Role::Approve];
const PATIENCE: Duration = Duration::from_secs(20);
/// More than one reader may have unread.
const MANY: u64 = 1_100;

async fn next_id(stream: &mut EventStream) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, stream.next()).await.expect("something comes in time")?;
    Some(frame.data["id"].as_str().expect("an approval has an id").to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_tenant_does_not_end_another_s_stream_of_approvals() {
    let keys = [("ann", "acme", BOTH), ("eve", "other", BOTH)];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    let ann = test_server.as_key("ann");
    let (_, first) = ann.begin_held_run("write it").await;
    let barrier = test_server.probe.block_at(BlockPoint::Approvals);
    let mut stream = ann.stream("/v1/approvals/stream", &[]).await;
    barrier.wait_for_arrival().await;
    test_server.probe.unblock();
    // The stream reads no changes while it lists what is pending.
    let mut changes = test_server.engine.approvals_changed();
    let before = *changes.borrow_and_update();
    for _ in 0..MANY {
        let message = Message::to("assistant", "write it").for_tenant(Tenant::from("other"));
        test_server.engine.post(message).await.expect("it is taken");
    }
    changes.wait_for(|count| *count >= before + MANY).await.expect("the engine is there");
    let (_, second) = ann.begin_held_run("write it").await;
    barrier.release_one();
    assert_eq!(next_id(&mut stream).await, Some(first));
    assert_eq!(next_id(&mut stream).await, Some(second), "the stream continues");
}
