//! The messages of a thread are shared: what was read stays as it was read, and reading again copies no text.

use std::ptr;
use std::sync::Arc;

use machine::event::InterruptCause;
use machine::policy::{Continuation, Policy};
use machine::transcript::{CHUNK_MESSAGES, Messages, ModelMessage, Transcript};
use machine::{Event, Fact, Input, Revision};

use crate::plain_transcript::Compared;
use crate::story::{Story, order, unknown};

fn transcript_of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Transcript {
    let mut transcript = Transcript::default();
    events.into_iter().for_each(|event| transcript.push(event));
    transcript
}

fn eager() -> Story {
    Story::with_policy(Policy { continuation: Continuation::Eager, ..Policy::default() })
}

/// One call per step, which makes two messages.
fn take_steps(story: &mut Story, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let call = format!("call_{number}");
        story.asks_for(&[(&call, "echo")]);
        story.succeeds(&call);
    }
}

fn texts(messages: &Messages) -> Vec<String> {
    messages.iter().map(|message| format!("{message:?}")).collect()
}

fn user(number: usize) -> ModelMessage {
    ModelMessage::User { id: format!("msg_{number}").into(), content: Arc::default(), by: None }
}

#[test]
fn what_was_read_at_any_event_does_not_change_when_the_thread_continues() {
    let mut story = eager();
    story.asks_for(&[("A", "transfer"), ("B", "echo"), ("C", "post")]);
    story.succeeds("B");
    story.returns("C", unknown());
    story.approves("A");
    story.succeeds("A");
    take_steps(&mut story, 0..CHUNK_MESSAGES);
    let mut transcript = Transcript::default();
    let mut read: Vec<(Messages, Vec<String>)> = Vec::new();
    for event in &story.log {
        transcript.push(event);
        let messages = transcript.model_input();
        let as_read = texts(&messages);
        read.push((messages, as_read));
    }
    for (messages, as_read) in &read {
        assert_eq!(&texts(messages), as_read);
    }
    assert!(read.last().unwrap().0.len() > 2 * CHUNK_MESSAGES);
}

#[test]
fn reading_again_shares_every_message_and_every_full_chunk() {
    let mut story = Story::begin();
    take_steps(&mut story, 0..CHUNK_MESSAGES);
    let mut transcript = transcript_of(&story.log);
    let earlier = transcript.model_input();
    let before = story.log.len();
    take_steps(&mut story, CHUNK_MESSAGES..CHUNK_MESSAGES + 5);
    story.log.iter().skip(before).for_each(|event| transcript.push(event));
    let later = transcript.model_input();

    assert_eq!((earlier.len(), later.len()), (1 + 2 * CHUNK_MESSAGES, 11 + 2 * CHUNK_MESSAGES));
    for index in 0..earlier.len() {
        let (one, other) = (earlier.get(index).unwrap(), later.get(index).unwrap());
        assert!(Arc::ptr_eq(one, other), "message {index} was copied");
        // The pointers of a full chunk lie in one place for all, those of the tail in one place for each.
        assert_eq!(ptr::eq(one, other), index < 2 * CHUNK_MESSAGES, "{index}");
    }
}

#[test]
fn a_model_call_reads_shared_messages_even_while_calls_are_held() {
    let mut story = eager();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    let transcript = transcript_of(&story.log);
    let (one, other) = (transcript.model_input(), transcript.model_input());
    assert_eq!(one.len(), 4);
    assert!((0..4).all(|index| Arc::ptr_eq(one.get(index).unwrap(), other.get(index).unwrap())));
}

#[test]
fn what_is_kept_beside_the_messages_does_not_grow() {
    let kept = |story: &Story| {
        let transcript = transcript_of(&story.log);
        format!("{transcript:?}").len() - format!("{:?}", transcript.model_input()).len()
    };
    let mut story = eager();
    let nothing = kept(&story);
    take_steps(&mut story, 0..3);
    assert_eq!(kept(&story), nothing);
    for number in 10..30 {
        let (held, done) = (format!("held_{number}"), format!("call_{number}"));
        story.asks_for(&[(&held, "transfer"), (&done, "echo")]);
        story.succeeds(&done);
        assert!(kept(&story) > nothing, "the late result is still to come");
        story.approves(&held);
        story.succeeds(&held);
        // The model reads the late result in the step that follows.
        take_steps(&mut story, number * 100..number * 100 + 1);
        assert_eq!(kept(&story), nothing);
    }
}

#[test]
fn the_runs_of_a_thread_give_what_the_plain_transcript_gives() {
    let mut thread = Compared::default();
    for (number, continuation) in [Continuation::Eager, Continuation::AllSettled].into_iter().enumerate() {
        let policy = Policy { continuation, ..Policy::default() };
        let mut order = order(policy);
        order.run_id = format!("run_{number}").into();
        order.message.as_mut().unwrap().id = format!("msg_user_{number}").into();
        let mut story = Story::queued_with(Revision { policy, ..Revision::default() }, order);
        story.ok(Input::Start { after: None });
        let calls = [("held", "transfer"), ("done", "echo"), ("lost", "post")]
            .map(|(id, tool)| (format!("{id}_{number}"), tool));
        let [(held, _), (done, _), (lost, _)] = &calls;
        story.asks_for(&calls.each_ref().map(|(id, tool)| (id.as_str(), *tool)));
        story.succeeds(done);
        story.returns(lost, unknown());
        story.approves(held);
        story.ok(Input::Interrupt { cause: InterruptCause::Person("ana".into()) });
        assert!(matches!(story.log.last().unwrap().fact, Fact::RunEnded { .. }));
        story.log.iter().for_each(|event| thread.push(event));
    }
}

#[test]
fn a_list_of_messages_is_read_by_place_and_from_both_ends_whatever_its_length() {
    for count in [0, 1, CHUNK_MESSAGES - 1, CHUNK_MESSAGES, CHUNK_MESSAGES + 1, 3 * CHUNK_MESSAGES + 7] {
        let all: Vec<ModelMessage> = (0..count).map(user).collect();
        let messages: Messages = all.iter().cloned().collect();
        assert_eq!((messages.len(), messages.is_empty()), (count, count == 0));
        assert!(messages.iter().eq(&all));
        assert!(messages.iter().rev().eq(all.iter().rev()));
        assert!((0..count).all(|index| messages.get(index).map(|message| &**message) == all.get(index)));
        assert_eq!(messages.last().map(|message| &**message), all.last());
        for beyond in [count, count + 1, count + CHUNK_MESSAGES, usize::MAX] {
            assert_eq!(messages.get(beyond), None, "{count} {beyond}");
        }
        assert_eq!(format!("{messages:?}"), format!("{all:?}"));
        let mut longer = messages.clone();
        longer.push(user(count));
        assert_eq!((longer.len(), messages.len()), (count + 1, count));
        assert_ne!(longer, messages);
    }
}

#[test]
fn a_transcript_that_begins_after_given_messages_continues_them() {
    let story = Story::begin();
    let mut earlier = Messages::after_omitted(12);
    earlier.extend((0..3).map(user));
    let mut transcript = Transcript::after_messages(earlier.clone());
    story.log.iter().for_each(|event| transcript.push(event));
    let mut expected = earlier;
    expected.append(&transcript_of(&story.log).model_input());
    let read = transcript.model_input();
    assert_eq!((&read, read.left_out(), read.len()), (&expected, 12, 4));
    assert_eq!(read.last_user(), Some(3));
}

#[test]
fn a_message_is_found_by_the_id_that_the_log_shows() {
    let mut story = eager();
    story.asks_for(&[("A", "transfer"), ("B", "echo")]);
    story.succeeds("B");
    story.approves("A");
    story.succeeds("A");
    take_steps(&mut story, 0..1);
    let messages = transcript_of(&story.log).model_input();
    for event in &story.log {
        let Fact::MessageAdded(added) = &event.fact else { continue };
        let found = messages.iter().filter(|message| message.has_id(added.id())).count();
        assert_eq!(found, 1, "{added:?}");
    }
    let notice = ModelMessage::Notice { text: "msg_0".into() };
    assert!(!notice.has_id(&"msg_0".into()));
}
