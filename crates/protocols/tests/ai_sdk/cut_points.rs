//! A connection that is lost after any chunk, and a stream that begins after any item, lose and repeat nothing.

use protocols::ai_sdk::{ChunkEncoder, ChunkVerifier};
use protocols::feed::SuspensionKind;

use crate::chat_client::{
    Accepted, ChatClient, client_tools, fold, fresh, fresh_until, normalized, stream, verify,
};
use crate::run_script::{MESSAGE, RunScript, call};

/// A run with every kind of hold.
fn long_run() -> RunScript {
    let calls = [
        call("a", "transfer"),
        call("b", "pick_file"),
        call("c", "ask_user"),
        call("d", "add"),
        call("e", "locate"),
    ];
    let [a, b, c, d, e] = &calls;
    let mut script = RunScript::begun();
    script.reasoning_delta("Let me ").reasoning_delta("think.").delta("I will ").delta("do it.");
    script.answer_with_reasoning(Some("Let me think."), "I will do it.", &calls);
    script.ask(a, "apr_a").executing(c).executing(d).ask(e, "apr_e");
    script.suspend(b, "sus_b", SuspensionKind::ClientTool).succeeded_with(d, "3", Some("slow"));
    script.suspend(c, "apr_c", SuspensionKind::Question).waits_for_approval();
    script.approved(a, "apr_a").resumed().executing(a).failed(a, "no funds").waits_for_approval();
    script.call_resumed(c, "apr_c").resumed().executing(c).succeeded(c, r#""blue""#).waits_for_approval();
    script
        .approved(e, "apr_e")
        .resumed()
        .suspend(e, "sus_e", SuspensionKind::ClientTool)
        .waits_for_approval();
    script.call_resumed(b, "sus_b").resumed().succeeded(b, "1").waits_for_approval();
    script.call_resumed(e, "sus_e").resumed().succeeded(e, "2").step_ended();
    script
        .step()
        .delta("Now ")
        .delta("the rest.")
        .answer("Now the rest.", std::slice::from_ref(&call("f", "transfer")));
    script.ask(&call("f", "transfer"), "apr_f").waits_for_approval();
    script.denied(&call("f", "transfer"), "apr_f").resumed().ends_with("Done.");
    script
}

#[test]
fn a_stream_may_be_cut_after_every_chunk() {
    let script = long_run();
    let whole = fresh(&script);
    let expected = normalized(&fold(&whole));
    for count in 1..=whole.len() {
        let mut client = ChatClient::of(&whole[..count]);
        client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
        assert_eq!(normalized(&client.message), expected, "cut after chunk {count}");
    }
}

#[test]
fn each_wait_is_continued_to_each_later_wait() {
    let script = long_run();
    let mut ends = script.waits.clone();
    ends.push(script.items.len());
    for (index, begin) in ends.iter().enumerate() {
        for end in &ends[index..] {
            let mut client = ChatClient::of(&fresh_until(&script, *begin));
            client.continue_over(&script, &Accepted::default(), *end, *end);
            let expected = normalized(&fold(&fresh_until(&script, *end)));
            assert_eq!(normalized(&client.message), expected, "from {begin} to {end}");
        }
    }
}

#[test]
fn a_continuation_that_is_cut_is_continued_again() {
    let script = long_run();
    let expected = normalized(&fold(&fresh(&script)));
    for wait in &script.waits {
        let mut client = ChatClient::of(&fresh_until(&script, *wait));
        let before = client.clone();
        let chunks =
            client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
        for count in 0..chunks.len() {
            let mut client = before.clone();
            client.receive(&chunks[..count]);
            client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
            assert_eq!(normalized(&client.message), expected, "wait {wait}, cut after chunk {count}");
        }
    }
}

#[test]
fn a_client_that_has_everything_is_sent_nothing() {
    let script = long_run();
    let mut ends = script.waits.clone();
    ends.push(script.items.len());
    for end in ends {
        let mut client = ChatClient::of(&fresh_until(&script, end));
        let before = client.message.clone();
        let seen = client.seen();
        let items = &script.items[..end];
        let chunks = stream(ChunkEncoder::continuing(client_tools(), seen.clone()), items, end);
        verify(ChunkVerifier::continuing(MESSAGE, &seen), &chunks);
        let kinds: Vec<&str> = chunks.iter().map(protocols::ai_sdk::Chunk::kind).collect();
        assert_eq!(kinds, ["start", "data-run", "finish"]);
        client.receive(&chunks);
        assert_eq!(client.message, before);
    }
}
