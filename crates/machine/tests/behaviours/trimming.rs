//! What the model is shown of a long thread: whole turns, the newest ones, within a bound.

use std::sync::Arc;

use machine::id::Digest;
use machine::tool::Arguments;
use machine::transcript::{AssistantCall, Messages, ModelMessage};
use machine::trim::{ReadBack, Trim, char_count};
use serde_json::json;

fn user(id: usize, text: &str) -> ModelMessage {
    ModelMessage::User { id: format!("msg_{id}").into(), content: Arc::new(json!(text)), by: None }
}

fn assistant(id: usize, text: &str, calls: &[&str]) -> ModelMessage {
    let call = |id: &&str| AssistantCall {
        id: (*id).into(),
        tool: "echo".into(),
        arguments: Arguments::Valid { value: Arc::new(json!({})), digest: Digest::sha256(b"{}") },
    };
    ModelMessage::Assistant {
        id: format!("msg_{id}").into(),
        text: text.into(),
        reasoning: None,
        calls: calls.iter().map(call).collect(),
        sealed: None,
    }
}

fn tool(call: &str, text: &str) -> ModelMessage {
    ModelMessage::Tool { call: call.into(), text: text.into() }
}

fn notice(text: &str) -> ModelMessage {
    ModelMessage::Notice { text: text.into() }
}

fn listed(messages: &Messages) -> Vec<ModelMessage> {
    messages.iter().cloned().collect()
}

fn at_most(messages_max: u64) -> Trim {
    Trim { messages_max: Some(messages_max), ..Trim::default() }
}

/// Asked, looked, answered, asked again.
fn conversation() -> Vec<ModelMessage> {
    vec![
        user(0, "one"),
        assistant(1, "", &["a", "b"]),
        tool("a", "A"),
        tool("b", "B"),
        assistant(2, "answer one", &[]),
        user(3, "two"),
    ]
}

#[test]
fn without_a_bound_and_within_it_everything_is_shown() {
    let all: Messages = conversation().into_iter().collect();
    for trim in [Trim::default(), at_most(6), Trim { chars_max: Some(1_000), ..Trim::default() }] {
        assert_eq!(trim.apply(&all), all, "{trim:?}");
    }
}

#[test]
fn the_oldest_turns_are_left_out_and_a_line_says_how_many_messages_they_had() {
    let messages = conversation();
    let all: Messages = messages.clone().into_iter().collect();
    let rest = |from: usize, line: &str| [vec![notice(line)], messages[from..].to_vec()].concat();
    assert_eq!(listed(&at_most(5).apply(&all)), rest(1, "[1 earlier message left out]"));
    // Four would cut the answer off from its results, so neither is shown.
    assert_eq!(listed(&at_most(4).apply(&all)), rest(4, "[4 earlier messages left out]"));
    assert_eq!(listed(&at_most(2).apply(&all)), rest(4, "[4 earlier messages left out]"));
    assert_eq!(listed(&at_most(1).apply(&all)), rest(5, "[5 earlier messages left out]"));
}

#[test]
fn what_the_user_said_last_and_the_newest_turn_are_shown_however_long_they_are() {
    let long = "x".repeat(5_000);
    let all: Messages = vec![
        user(0, &long),
        assistant(1, "first", &["a"]),
        tool("a", "A"),
        assistant(2, "second", &["b"]),
        tool("b", &long),
    ]
    .into_iter()
    .collect();
    let trim = Trim { messages_max: Some(1), chars_max: Some(10) };
    let line = "[2 earlier messages left out]";
    let shown = [user(0, &long), notice(line), assistant(2, "second", &["b"]), tool("b", &long)];
    assert_eq!(listed(&trim.apply(&all)), shown);
}

#[test]
fn characters_are_counted_and_not_bytes_and_arguments_count_too() {
    assert_eq!(char_count(&user(0, "äöü")), 3);
    assert_eq!(char_count(&assistant(1, "ab", &["a"])), 2 + "echo".len() + "{}".len());
    let all: Messages = vec![user(0, "äöü"), assistant(1, "ab", &[]), user(2, "c")].into_iter().collect();
    let trim = |max| Trim { chars_max: Some(max), ..Trim::default() };
    assert_eq!(trim(6).apply(&all).len(), 3);
    assert_eq!(listed(&trim(5).apply(&all))[0], notice("[1 earlier message left out]"));
}

#[test]
fn a_correction_is_not_shown_without_the_answer_that_it_corrects() {
    let messages = vec![user(0, "one"), user(1, "two"), assistant(2, "words", &[]), notice("not JSON")];
    let all: Messages = messages.clone().into_iter().collect();
    let line = notice("[1 earlier message left out]");
    assert_eq!(listed(&at_most(1).apply(&all)), [vec![line], messages[1..].to_vec()].concat());
}

/// Numbers that look random and are the same in every process.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn text(&mut self) -> String {
        let length = usize::try_from(self.below(40)).unwrap();
        "ä".repeat(1 + length)
    }
}

/// Any conversation that a transcript could give: turns of every kind, in any order.
fn drawn(numbers: &mut Numbers) -> Vec<ModelMessage> {
    let mut messages = vec![user(0, &numbers.text())];
    for turn in 1..=usize::try_from(numbers.below(200)).unwrap() {
        match numbers.below(8) {
            0 => messages.push(user(turn, &numbers.text())),
            1 => messages.push(ModelMessage::Note {
                id: format!("late_late{turn}").as_str().into(),
                call: format!("late{turn}").as_str().into(),
                text: numbers.text(),
            }),
            2 => messages.extend([assistant(turn, &numbers.text(), &[]), notice(&numbers.text())]),
            3 => messages.push(assistant(turn, &numbers.text(), &[])),
            _ => {
                let ids: Vec<String> =
                    (0..=numbers.below(4)).map(|place| format!("c{turn}_{place}")).collect();
                let names: Vec<&str> = ids.iter().map(String::as_str).collect();
                messages.push(assistant(turn, "", &names));
                messages.extend(ids.iter().map(|id| tool(id, &numbers.text())));
            }
        }
    }
    messages
}

/// Where turns begin.
fn beginnings(messages: &[ModelMessage]) -> Vec<usize> {
    let joins =
        |message: &ModelMessage| matches!(message, ModelMessage::Tool { .. } | ModelMessage::Notice { .. });
    (0..messages.len()).filter(|index| !joins(&messages[*index])).collect()
}

/// Every call has its result directly after the message that asked, and no result is anywhere else.
fn check_results(shown: &[ModelMessage]) {
    let mut due: Vec<String> = Vec::new();
    for message in shown {
        match message {
            ModelMessage::Tool { call, .. } => assert_eq!(due.remove(0), call.as_str()),
            ModelMessage::Assistant { calls, .. } => {
                assert_eq!(due, [""; 0]);
                due = calls.iter().map(|call| call.id.to_string()).collect();
            }
            ModelMessage::User { .. } | ModelMessage::Note { .. } | ModelMessage::Notice { .. } => {
                assert_eq!(due, [""; 0]);
            }
        }
    }
    assert_eq!(due, [""; 0]);
}

fn fits(trim: &Trim, messages: &[&ModelMessage]) -> bool {
    let length: usize = messages.iter().map(|message| char_count(message)).sum();
    trim.messages_max.is_none_or(|max| messages.len() as u64 <= max)
        && trim.chars_max.is_none_or(|max| length as u64 <= max)
}

#[test]
fn of_any_conversation_as_many_whole_turns_are_shown_as_fit_and_no_more() {
    let mut numbers = Numbers(7);
    let mut shortened = 0;
    for round in 0..3_000 {
        let messages = drawn(&mut numbers);
        let all: Messages = messages.clone().into_iter().collect();
        let trim = Trim {
            messages_max: (round % 3 != 0).then(|| 1 + numbers.below(60)),
            chars_max: (round % 3 != 1).then(|| 1 + numbers.below(2_000)),
        };
        let shown = trim.apply(&all);
        assert_eq!(trim.apply(&all), shown, "the same twice");
        let shown = listed(&shown);
        check_results(&shown);
        // By brute force: the longest run of newest turns that fits beside what the user said last.
        let asked =
            messages.iter().rposition(|message| matches!(message, ModelMessage::User { .. })).unwrap();
        let starts = beginnings(&messages);
        let with_question = |from: usize| -> Vec<&ModelMessage> {
            messages
                .iter()
                .enumerate()
                .filter(|(at, _)| *at >= from || *at == asked)
                .map(|(_, one)| one)
                .collect()
        };
        let newest = *starts.last().unwrap();
        let from = starts.iter().copied().find(|from| fits(&trim, &with_question(*from))).unwrap_or(newest);
        let expected = with_question(from);
        let kept: Vec<&ModelMessage> = {
            let left_out = messages.len() - expected.len();
            let line = notice(&format!(
                "[{left_out} earlier message{} left out]",
                if left_out == 1 { "" } else { "s" }
            ));
            let place = shown.iter().position(|message| *message == line);
            assert_eq!(place.is_some(), left_out > 0, "{left_out} left out: {shown:?}");
            shortened += usize::from(left_out > 0);
            shown.iter().enumerate().filter(|(at, _)| Some(*at) != place).map(|(_, one)| one).collect()
        };
        assert_eq!(kept, expected, "{trim:?}");
    }
    assert!(shortened > 1_000, "only {shortened} were shortened");
}

#[test]
fn what_is_shown_is_shared_and_not_copied() {
    let all: Messages = (0..500).map(|id| user(id, "text")).collect();
    let shown = at_most(10).apply(&all);
    assert_eq!(shown.len(), 11);
    for index in 1..shown.len() {
        let (one, other) = (shown.get(index).unwrap(), all.get(489 + index).unwrap());
        assert!(Arc::ptr_eq(one, other), "message {index} was copied");
    }
}

#[test]
fn reading_back_stops_once_the_bound_is_passed_and_the_last_user_message_was_read() {
    let read = |messages: &[&[ModelMessage]]| {
        let mut read = ReadBack::default();
        messages.iter().for_each(|part| read.add(&part.iter().cloned().collect()));
        read
    };
    let answers = [assistant(1, "four", &[]), assistant(2, "four", &[])];
    let question = [user(0, "abcd")];
    let by_chars = |max| Trim { chars_max: Some(max), ..Trim::default() };
    // Read from the end back: three messages, twelve characters.
    let all = read(&[&answers, &question]);
    assert_eq!((at_most(3).is_filled_by(&all), at_most(2).is_filled_by(&all)), (false, true));
    assert_eq!((by_chars(12).is_filled_by(&all), by_chars(11).is_filled_by(&all)), (false, true));
    // An answer that comes before the question does not hide it.
    let all = read(&[&question, &answers]);
    assert!(at_most(2).is_filled_by(&all));
    // What the user said last is shown in any case, so it has to be found.
    assert!(!at_most(1).is_filled_by(&read(&[&answers])));
    assert!(!Trim::default().is_filled_by(&all));
}

#[test]
fn only_a_trim_without_any_bound_shows_everything() {
    let by_chars = Trim { chars_max: Some(1), ..Trim::default() };
    let both = Trim { messages_max: Some(1), ..by_chars };
    let shows = [Trim::default(), at_most(1), by_chars, both].map(|trim| trim.is_unlimited());
    assert_eq!(shows, [true, false, false, false]);
}

#[test]
fn messages_that_were_never_read_are_counted_among_those_left_out() {
    let mut all = Messages::after_omitted(7);
    all.extend(conversation());
    assert_eq!(listed(&at_most(5).apply(&all))[0], notice("[8 earlier messages left out]"));
    assert_eq!(listed(&at_most(6).apply(&all))[0], notice("[7 earlier messages left out]"));
    assert_eq!(Trim::default().apply(&all), all);
}

#[test]
fn a_list_that_begins_within_a_turn_is_shown_from_its_first_message() {
    let mut all = Messages::after_omitted(3);
    all.extend([tool("a", "A"), assistant(1, "answer", &[]), user(2, "next")]);
    let shown = listed(&at_most(3).apply(&all));
    assert_eq!(shown[0], notice("[3 earlier messages left out]"));
    assert_eq!(shown[1..], listed(&all));
}
