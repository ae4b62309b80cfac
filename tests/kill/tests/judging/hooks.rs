//! What the judge finds in the questions that the hook was asked.

use std::sync::OnceLock;

use kill::evidence::Evidence;
use kill::judge::Rule;
use kill::people::People;
use machine::event::Fact;
use machine::id::RunId;

use super::{played, remove_events, rules};

/// A world in which the process was killed after the hook had answered, before the answer was stored.
fn asked_again() -> (Evidence, People) {
    static WORLD: OnceLock<(Evidence, People)> = OnceLock::new();
    let found = WORLD.get_or_init(|| {
        let worlds = (1..40).map(|boundary| played(format!("hook-gates:1/{boundary}")));
        let worlds = worlds.map(|world| (world.evidence.expect("it was read"), world.people));
        let is_repeated = |(evidence, _): &(Evidence, People)| {
            let keys: Vec<_> = evidence.questions.iter().map(|asked| &asked.key).collect();
            keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key))
        };
        worlds.into_iter().find(is_repeated).expect("a boundary is between an answer and its commit")
    });
    found.clone()
}

#[test]
fn an_unrecorded_answer_may_be_asked_for_again_and_a_recorded_one_may_not() {
    let (mut evidence, people) = asked_again();
    assert_eq!(rules(&evidence, &people), []);
    let mut repeated = evidence.questions[0].clone();
    repeated.is_recorded = true;
    evidence.questions.push(repeated);
    assert_eq!(rules(&evidence, &people), [Rule::HookAnswerIsKept]);
}

#[test]
fn an_answer_that_nobody_gave_or_that_is_not_recorded_is_found() {
    let (evidence, people) = asked_again();
    let mut unasked = evidence.clone();
    let first = unasked.questions[0].key.clone();
    unasked.questions.retain(|asked| asked.key != first);
    assert_eq!(rules(&unasked, &people), [Rule::HookAnswerIsKept]);
    let mut strange = evidence.clone();
    strange.questions[0].run = RunId::from("run_of_nobody");
    assert!(rules(&strange, &people).contains(&Rule::HookAnswerIsKept));
    let mut unrecorded = evidence;
    remove_events(&mut unrecorded, |fact| matches!(fact, Fact::PhaseAnswered { .. }));
    assert!(rules(&unrecorded, &people).contains(&Rule::HookAnswerIsKept));
}

#[test]
fn a_call_that_the_hook_blocked_and_that_ran_is_found() {
    let (mut evidence, people) = asked_again();
    remove_events(&mut evidence, |fact| matches!(fact, Fact::ExecutionFailed { .. }));
    assert!(rules(&evidence, &people).contains(&Rule::HookAnswerIsKept));
}
