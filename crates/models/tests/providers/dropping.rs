//! Dropping a call closes the provider's socket: no output is paid for that the caller does not read.

use std::time::Duration;

use engine::live::Deltas;
use engine::model::Model;
use models::providers::{Provider, Timeouts};
use serde_json::json;
use tokio::time::Instant;

use crate::dialects::{ALL, StreamEvent, encode};
use crate::fake::{ConnectionScript, Fake, FakeEvent, Step};
use crate::table::{model, request, user};

/// How long after the call was dropped the provider saw its socket closed.
async fn closed_after(provider: Provider, script: ConnectionScript) -> Duration {
    let mut fake = Fake::serving(vec![script]).await;
    let model = model(provider, &fake.url, Timeouts::default());
    let call =
        tokio::spawn(
            async move { model.answer(request([user(json!("Hello"))]), Deltas::discarding()).await },
        );
    let FakeEvent::Hanging = fake.next_event().await else { panic!("closed before it was dropped") };
    let dropped = Instant::now();
    call.abort();
    let FakeEvent::Closed(closed) = fake.next_event().await else { panic!("it hangs once") };
    assert!(call.await.expect_err("it was dropped").is_cancelled());
    closed.saturating_duration_since(dropped)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_closes_the_socket_of_its_provider() {
    // Wide enough for a machine that does ten other things; the promise of 200 ms is kept by a hundredth of it.
    let deadline = Duration::from_secs(2);
    for provider in ALL {
        let kind = if provider == Provider::Ollama { "application/x-ndjson" } else { "text/event-stream" };
        let head = Step::Head(200, format!("content-type: {kind}\r\n"));
        let words = Step::Body(
            encode(provider, &[StreamEvent::Begin, StreamEvent::Text("Hel")]).concat().into_bytes(),
        );
        for (what, script) in [
            ("before the head", vec![Step::Hang]),
            ("before the first word", vec![head.clone(), Step::Hang]),
            ("in the middle", vec![head, words, Step::Hang]),
        ] {
            let after = closed_after(provider, script).await;
            println!("{provider:?}, dropped {what}: closed after {after:?}");
            assert!(after < deadline, "{provider:?}, dropped {what}: closed after {after:?}");
        }
    }
}
