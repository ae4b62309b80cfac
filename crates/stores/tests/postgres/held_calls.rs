//! Lists every held call while a node runs: each with its revision, in the order of runs and calls.

use machine::suspension::SuspensionKind;
use stores::held_calls::SurveyedCall;
use stores::postgres::upkeep::Upkeep;

use crate::nodes::Cluster;
use crate::sample_data::{freeze_agent, populate};
use crate::worker::parked;

#[tokio::test]
async fn held_calls_are_found_with_what_they_were_held_with() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    populate(&node.world).await;
    let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.expect("upkeep opens");
    let found = upkeep
        .held_calls(
            |found| {
                let SurveyedCall::Call(held) = found else { panic!("{found:?} can be decoded") };
                let came_along = held.run.as_str() == "brought";
                assert_eq!(&*held.revision, if came_along { "what came along" } else { "revision" });
                assert_eq!(held.opened.call_id, held.call.id);
                (
                    held.tenant.to_string(),
                    held.run.to_string(),
                    held.call.id.to_string(),
                    held.opened.held.kind(),
                )
            },
            |_| {},
        )
        .await
        .unwrap();
    let client = cluster.client().await;
    let sql = "SELECT s.tenant, r.id, s.call, s.kind FROM suspensions s JOIN runs r ON r.run = s.run
        WHERE s.status = 'pending' ORDER BY s.run, s.call";
    let rows = client.query(sql, &[]).await.unwrap();
    let told: Vec<(String, String, String, SuspensionKind)> = rows
        .iter()
        .map(|row| {
            let kind: String = row.get(3);
            let kind = SuspensionKind::ALL.into_iter().find(|known| known.as_str() == kind).unwrap();
            (row.get(0), row.get(1), row.get(2), kind)
        })
        .collect();
    assert!(told.len() >= 6, "only {} calls are held", told.len());
    assert_eq!(found, told);
}

#[tokio::test]
async fn held_calls_over_several_snapshots_are_found_once_and_old_controls_rebuilt() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    freeze_agent(&node.world).await;
    for index in 0..150 {
        parked(&node.world, &format!("thr_{index}"), &format!("run_{index}"), "transfer").await;
    }
    // A stored control begins with the fold version.
    let client = cluster.client().await;
    let another = "UPDATE runs SET control = set_byte(control, 0, 99) WHERE id = 'run_7'";
    client.batch_execute(another).await.unwrap();
    let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.expect("upkeep opens");
    let mut heard = Vec::new();
    let found = upkeep
        .held_calls(
            |found| match found {
                SurveyedCall::Call(held) => held.run.to_string(),
                SurveyedCall::Unreadable(call) => panic!("{call:?} can be decoded"),
            },
            |seen| heard.push(seen),
        )
        .await
        .unwrap();
    let told: Vec<String> = (0..150).map(|index| format!("run_{index}")).collect();
    assert_eq!(found, told);
    assert_eq!(heard, [64, 128, 150]);
}
