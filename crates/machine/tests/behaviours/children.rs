//! A call that a child run works on: spawn, grant, depth, the child's end, and interrupts in both directions.

use std::sync::Arc;

use machine::delivery::{Delivery, Spawn, deliveries, spawns};
use machine::event::{CallErrorCode, Fact, InterruptCause, Parent, Usage};
use machine::id::{CallId, Principal, RunId};
use machine::inbox::Item;
use machine::input::{ChildEnd, ChildEnded, ModelFailure};
use machine::policy::{OnReject, Policy};
use machine::revision::{Limits, Revision, StopCondition};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::termination::{Cancelled, StopCode, Termination};
use machine::tool::{EffectClass, Performer, Tool};
use machine::{Event, Input, InputOutcome, Rejection};
use serde_json::json;

use crate::story::{Story, cancel, names, order, resume_with};

fn used(total: u64) -> Usage {
    Usage { input_tokens: total, output_tokens: 0 }
}

fn limited(max_total: u64) -> Revision {
    Revision { stop: vec![StopCondition::TokenBudget { max_total }], ..Revision::default() }
}

fn delegating(revision: Revision) -> Story {
    let mut story = Story::begin_with(revision);
    story.asks_for(&[("A", "researcher")]);
    story
}

#[track_caller]
fn child_of(story: &Story, call: &str) -> RunId {
    match &story.call(call).suspension().unwrap().held {
        Held::ChildRun { run, .. } => run.clone(),
        other => panic!("held as {other:?}"),
    }
}

fn ended(story: &Story, call: &str, end: ChildEnd) -> Input {
    let run = child_of(story, call);
    Input::ChildEnded(ChildEnded { call: CallId::from(call), run, end, usage: used(40), descendants: 0 })
}

fn completed(answer: &str) -> ChildEnd {
    ChildEnd::Completed { answer: Arc::new(json!(answer)) }
}

fn grants(events: &[Event]) -> Vec<Option<u64>> {
    spawns(events).into_iter().map(|spawn| spawn.grant_tokens).collect()
}

#[test]
fn a100_one_append_starts_the_child_and_holds_the_call_for_it() {
    let mut story = Story::begin();
    let events = story.asks_for(&[("A", "researcher")]);
    let started = names(&events);
    assert_eq!(started[2..], ["tool.execution_started", "child.started", "tool.suspended", "run.waiting"]);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Tool));
    let spawn = spawns(&events).remove(0);
    assert_eq!(
        spawn,
        Spawn {
            call: CallId::from("A"),
            run: child_of(&story, "A"),
            thread: spawn.thread.clone(),
            agent: "research".into(),
            depth: 1,
            grant_tokens: None,
            grant_descendants: 42,
        }
    );
    assert!(spawn.run.as_str().starts_with("run_") && spawn.thread.as_str().starts_with("thr_"));
    // Derived: a worker that decides it again makes the same child.
    assert_eq!(spawns(&delegating(Revision::default()).log), [spawn]);
}

#[test]
fn a100_the_childs_end_settles_the_call() {
    let mut story = delegating(Revision::default());
    let input = ended(&story, "A", completed("found it"));
    let events = story.ok(input);
    assert_eq!(
        names(&events),
        [
            "child.ended",
            "tool.resumed",
            "run.resumed",
            "tool.execution_succeeded",
            "message.added",
            "step.ended",
            "step.started"
        ]
    );
    assert_eq!(story.tool_text("A"), "found it");
    assert_eq!(story.run.control.usage, Usage { input_tokens: 50, output_tokens: 5 });
    let mut story = delegating(Revision::default());
    let input = ended(&story, "A", ChildEnd::Failed { message: "no model".into() });
    let events = story.ok(input);
    assert!(matches!(
        &events[3].fact,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::ChildFailed
    ));
    assert_eq!(story.tool_text("A"), "Error: no model");
    let mut story = delegating(Revision::default());
    let input = ended(&story, "A", ChildEnd::Interrupted);
    assert_eq!(names(&story.ok(input))[..3], ["child.ended", "tool.cancelled", "run.resumed"]);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect", "some of its work may be done");
    let mut story = Story::begin();
    story.tools.get_mut("researcher").unwrap().class = EffectClass::Read;
    story.asks_for(&[("A", "researcher")]);
    let input = ended(&story, "A", ChildEnd::Interrupted);
    story.ok(input);
    assert_eq!(story.tool_text("A"), "Cancelled: the child run was interrupted");
    assert_eq!(story.run_status(), &RunStatus::Running);
}

#[test]
fn b28_the_end_of_an_unknown_or_already_processed_child_changes_nothing() {
    let mut story = delegating(Revision::default());
    let first = ended(&story, "A", completed("found it"));
    let other = Input::ChildEnded(ChildEnded {
        call: CallId::from("A"),
        run: RunId::from("run_of_somebody_else"),
        end: completed("no"),
        usage: used(1),
        descendants: 0,
    });
    assert_eq!(story.ok(other), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    assert_eq!(story.status("A"), CallStatus::Suspended);
    story.ok(first.clone());
    assert_eq!(story.ok(first), []);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));
    assert_eq!(story.run.control.usage.total(), 55);
}

#[test]
fn b32_a_decision_cannot_answer_for_a_child() {
    let mut story = delegating(Revision::default());
    for action in [resume_with(json!("mine")), cancel()] {
        let decision = story.decision("A", action);
        let refused = story.refused(Input::Decide(decision));
        let why = "a child run works on this call; decide the calls that it holds".into();
        assert_eq!(refused, Rejection::Invalid { call: CallId::from("A"), why });
    }
    assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::ChildRun);
}

#[test]
fn a125_a_grant_is_what_is_asked_and_left_and_the_rest_comes_back() {
    let mut story = Story::begin_with(limited(1_000));
    let asks = |story: &mut Story, limit| {
        let tool = story.tools["researcher"].clone();
        let performer = Performer::Agent { agent: "research".into(), budget_tokens_max: limit };
        story.tools.insert("researcher".into(), Tool { performer, ..tool });
    };
    asks(&mut story, Some(600));
    let calls = ["A", "B", "C"].map(|id| (id, "researcher", json!({"of": id})));
    let answered = story.answer("", &calls);
    story.model_answers(answered);
    // 15 tokens are used. A gets what it asks for, B what is left, and C would be granted nothing: it never starts.
    let events = story.pass_gates();
    assert_eq!(grants(&events), [Some(600), Some(385)]);
    assert_eq!(story.status("C"), CallStatus::Failed);
    assert_eq!(story.run.control.reserved_tokens, 985);
    let input = ended(&story, "A", completed("cheap"));
    story.ok(input);
    assert_eq!(story.run.control.reserved_tokens, 385);
    assert_eq!(story.run.control.usage.total(), 55);
    // Without any limit there is nothing to grant from.
    assert_eq!(grants(&delegating(Revision::default()).log), [None]);
}

#[test]
fn a125_the_grant_of_a_child_comes_back_however_the_child_ends() {
    let failed = ChildEnd::Failed { message: "no model".into() };
    for end in [ChildEnd::Interrupted, failed, completed("cheap")] {
        let mut story = Story::begin_with(limited(1_000));
        story.asks_for(&[("A", "researcher"), ("B", "transfer")]);
        assert_eq!(story.run.control.reserved_tokens, 985, "the model call has used 15");
        let input = ended(&story, "A", end.clone());
        story.ok(input);
        assert_eq!(story.run.control.reserved_tokens, 0, "{end:?}");
        // The child has used 40 and the next answer of the model uses 15: all else is there for the next child.
        story.denies("B", Some(OnReject::Continue));
        assert_eq!(grants(&story.asks_for(&[("C", "researcher")])), [Some(930)], "{end:?}");
    }
}

#[test]
fn a125_a_second_end_of_a_child_costs_nothing_and_gives_nothing_back() {
    let mut story = Story::begin_with(limited(1_000));
    let tool = story.tools["researcher"].clone();
    let performer = Performer::Agent { agent: "research".into(), budget_tokens_max: Some(300) };
    story.tools.insert("researcher".into(), Tool { performer, ..tool });
    story.asks_for(&[("A", "researcher"), ("B", "researcher")]);
    let input = ended(&story, "A", completed("cheap"));
    for _ in 0..3 {
        story.ok(input.clone());
        assert_eq!((story.run.control.reserved_tokens, story.run.control.usage.total()), (300, 55));
    }
}

/// What its own children used is what it used.
#[test]
fn a125_a_child_stops_when_its_own_children_have_spent_its_grant() {
    let mut order = order(Revision::default().policy);
    let (run_id, call_id) = (RunId::from("run_parent"), CallId::from("P"));
    order.parent =
        Some(Parent { run_id, call_id, depth: 1, grant_tokens: Some(50), grant_descendants: None });
    let mut story = Story::queued_with(Revision::default(), order);
    story.ok(Input::Start { after: None });
    assert_eq!(grants(&story.asks_for(&[("A", "researcher")])), [Some(35)]);
    let input = ended(&story, "A", completed("expensive"));
    story.ok(input);
    let Some(Termination::Stopped(stopped)) = story.run.control.ended() else {
        panic!("the run has not ended")
    };
    assert_eq!(stopped.detail.as_deref(), Some("55 of the 50 tokens granted by the parent"));
}

#[test]
fn a125_a_child_stops_when_its_grant_is_spent_and_grants_no_more_than_it_has() {
    let parent = Parent {
        run_id: RunId::from("run_parent"),
        call_id: CallId::from("P"),
        depth: 1,
        grant_tokens: Some(20),
        grant_descendants: None,
    };
    let child = || {
        let mut order = order(Revision::default().policy);
        order.parent = Some(parent.clone());
        let mut story = Story::queued_with(Revision::default(), order);
        story.ok(Input::Start { after: None });
        story
    };
    let mut story = child();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    assert_eq!(story.run_status(), &RunStatus::Running);
    story.asks_for(&[("B", "echo")]);
    story.succeeds("B");
    let Some(Termination::Stopped(stopped)) = story.run.control.ended() else {
        panic!("the run has not ended")
    };
    assert_eq!(stopped.code, StopCode::TokenBudget);
    assert_eq!(stopped.detail.as_deref(), Some("30 of the 20 tokens granted by the parent"));
    let mut story = child();
    assert_eq!(grants(&story.asks_for(&[("A", "researcher")])), [Some(5)]);
}

#[test]
fn a93_the_depth_and_the_number_of_children_are_limited() {
    let limits = Limits { depth_max: 1, children_max: 2, ..Limits::default() };
    let revision = Revision { limits, ..Revision::default() };
    let mut story = Story::begin_with(revision.clone());
    story.asks_for(&[("A", "researcher"), ("B", "researcher"), ("C", "researcher")]);
    let statuses = ["A", "B", "C"].map(|id| story.status(id));
    assert_eq!(statuses, [CallStatus::Suspended, CallStatus::Suspended, CallStatus::Failed]);
    assert!(story.log.iter().any(|event| matches!(
        &event.fact,
        Fact::ExecutionFailed { call_id, error, .. }
            if call_id.as_str() == "C" && error.code == CallErrorCode::TooManyChildren
    )));
    assert_eq!(story.tool_text("C"), "Error: 2 delegated runs are open, and no more may be at the same time");
    let mut deep = order(revision.policy);
    let (run_id, call_id) = (RunId::from("run_parent"), CallId::from("P"));
    deep.parent = Some(Parent { run_id, call_id, depth: 1, grant_tokens: None, grant_descendants: None });
    let mut story = Story::queued_with(revision, deep);
    story.ok(Input::Start { after: None });
    let events = story.asks_for(&[("A", "researcher")]);
    assert!(events.iter().any(|event| matches!(
        &event.fact,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::TooDeep
    )));
    assert_eq!(story.tool_text("A"), "Error: agents may delegate 1 levels deep, and this is the last one");
    assert!(spawns(&story.log).is_empty());
}

#[test]
fn b49_interrupting_a_run_interrupts_its_open_children_and_no_ended_one() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "researcher"), ("B", "researcher"), ("C", "transfer")]);
    let (a, b) = (child_of(&story, "A"), child_of(&story, "B"));
    let input = ended(&story, "A", completed("done"));
    story.ok(input);
    let before = story.run.control.clone();
    let cause = InterruptCause::Person(Principal::from("ana"));
    let events = story.ok(Input::Interrupt { cause });
    let cause = InterruptCause::Parent(before.run.clone());
    let wanted = [Delivery { to: b, item: Item::Interrupt { cause } }];
    assert_eq!(deliveries(Some(&before), &events, "").unwrap(), wanted);
    assert_ne!(a, wanted[0].to);
}

#[test]
fn b49_a_child_that_was_interrupted_is_not_interrupted_back() {
    let mut story = delegating(Revision::default());
    let before = story.run.control.clone();
    let input = ended(&story, "A", ChildEnd::Interrupted);
    let events = story.ok(input);
    assert!(names(&events).contains(&"tool.cancelled".into()));
    assert_eq!(deliveries(Some(&before), &events, "").unwrap(), []);
}

#[test]
fn b49_end_run_closes_a_child_too() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "researcher"), ("B", "transfer")]);
    let child = child_of(&story, "A");
    let before = story.run.control.clone();
    let events = story.denies("B", Some(OnReject::EndRun));
    let cause = InterruptCause::Parent(before.run.clone());
    let wanted = [Delivery { to: child, item: Item::Interrupt { cause } }];
    assert_eq!(deliveries(Some(&before), &events, "").unwrap(), wanted);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
}

#[test]
fn a124_a_childs_end_is_delivered_to_its_parent_with_its_final_answer_and_its_usage() {
    let mut order = order(Revision::default().policy);
    let (run_id, call_id) = (RunId::from("run_parent"), CallId::from("P"));
    order.parent = Some(Parent {
        run_id: run_id.clone(),
        call_id,
        depth: 1,
        grant_tokens: None,
        grant_descendants: None,
    });
    let child = || {
        let mut story = Story::queued_with(Revision::default(), order.clone());
        story.ok(Input::Start { after: None });
        story
    };
    let end_of = |before: &Story, events: &[Event]| {
        let sent = deliveries(Some(&before.run.control), events, "the answer").unwrap();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].to, run_id);
        let Item::ChildEnded(ended) = sent[0].item.clone() else { panic!("not an end") };
        assert_eq!((ended.call.as_str(), ended.run.as_str()), ("P", "run_1"));
        (ended.end, ended.usage)
    };
    let (before, mut story) = (child(), child());
    let events = story.says("the answer");
    let usage = Usage { input_tokens: 10, output_tokens: 5 };
    assert_eq!(end_of(&before, &events), (completed("the answer"), usage));
    let (before, mut story) = (child(), child());
    let cause = InterruptCause::Parent(run_id.clone());
    let events = story.ok(Input::Interrupt { cause });
    assert_eq!(end_of(&before, &events), (ChildEnd::Interrupted, Usage::default()));
    assert_eq!(story.run_status(), &RunStatus::Done(Termination::Cancelled(Cancelled::ByParent)));
    let (before, mut story) = (child(), child());
    let failure = ModelFailure { message: "no such model".into(), retryable: false, retry_after_ms: None };
    let events = story.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    let failed = ChildEnd::Failed { message: "no such model".into() };
    assert_eq!(end_of(&before, &events), (failed, Usage::default()));
    // A run that ends while it is queued tells its parent too.
    let mut story = Story::queued_with(Revision::default(), order.clone());
    let before = Story::queued_with(Revision::default(), order.clone());
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Parent(run_id.clone()) });
    assert_eq!(end_of(&before, &events).0, ChildEnd::Interrupted);
}

#[test]
fn b6_x2_a_child_that_was_refused_or_cut_short_reaches_its_parent_as_a_failure() {
    let mut order = order(Revision::default().policy);
    let (run_id, call_id) = (RunId::from("run_parent"), CallId::from("P"));
    order.parent = Some(Parent { run_id, call_id, depth: 1, grant_tokens: None, grant_descendants: None });
    let end_of = |revision: Revision, last_text: &str, ends: &dyn Fn(&mut Story) -> Vec<Event>| {
        let mut story = Story::queued_with(revision, order.clone());
        story.ok(Input::Start { after: None });
        let before = story.run.control.clone();
        let seq = story.log.len();
        ends(&mut story);
        let sent = deliveries(Some(&before), &story.log[seq..], last_text).unwrap();
        let Some(Item::ChildEnded(ended)) = sent.last().map(|one| one.item.clone()) else {
            panic!("the run has not ended: {sent:?}")
        };
        ended.end
    };
    let failed = |message: &str| ChildEnd::Failed { message: message.into() };
    let refused = |story: &mut Story| {
        story.asks_for(&[("A", "transfer")]);
        story.denies("A", Some(OnReject::EndRun))
    };
    assert_eq!(
        end_of(Revision::default(), "I pay Bob now.", &refused),
        failed(
            "the delegated run was stopped before it was done: rejected: no\nIt said last: I pay Bob now."
        )
    );
    let one_round = |story: &mut Story| {
        story.asks_for(&[("A", "echo")]);
        story.succeeds("A")
    };
    let stopping = |condition| Revision { stop: vec![condition], ..Revision::default() };
    assert_eq!(
        end_of(stopping(StopCondition::MaxRounds { rounds: 1 }), "", &one_round),
        failed("the delegated run was stopped before it was done: max_rounds: 1 of 1 rounds")
    );
    // To stop at this tool is what the agent is configured for: the work is done.
    let at_echo = StopCondition::StopOnTool { tool_name: "echo".into() };
    assert_eq!(end_of(stopping(at_echo), "the answer", &one_round), completed("the answer"));
}

#[test]
fn a125_with_nothing_left_to_grant_no_child_starts() {
    let mut story = Story::begin_with(limited(15));
    let events = story.asks_for(&[("A", "researcher"), ("B", "transfer")]);
    // The model call alone has used all 15 tokens.
    assert!(spawns(&events).is_empty());
    assert!(events.iter().any(|event| matches!(
        &event.fact,
        Fact::ExecutionFailed { error, .. } if error.code == CallErrorCode::BudgetSpent
    )));
    assert!(!names(&events).contains(&"tool.execution_started".into()));
    assert_eq!((story.status("A"), story.status("B")), (CallStatus::Failed, CallStatus::Suspended));
    assert_eq!(story.tool_text("A"), "Error: the budget of tokens has nothing left for a delegated run");
}

#[test]
fn c33_a_budget_of_zero_is_no_budget_and_limits_no_child() {
    assert_eq!(grants(&delegating(limited(0)).log), [None]);
}

fn descendants(events: &[Event]) -> Vec<u32> {
    spawns(events).into_iter().map(|spawn| spawn.grant_descendants).collect()
}

fn bounded_tree(descendants_max: u32) -> Revision {
    let policy = Policy { descendants_max, ..Policy::default() };
    Revision { policy, ..Revision::default() }
}

fn researchers(story: &mut Story, count: usize) -> Vec<Event> {
    let ids: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
    let calls: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "researcher")).collect();
    story.asks_for(&calls)
}

/// A child run with this grant, at this depth.
fn granted(grant_descendants: u32, depth: u16) -> Story {
    let mut order = order(Policy::default());
    order.parent = Some(Parent {
        run_id: RunId::from("run_parent"),
        call_id: CallId::from("P"),
        depth,
        grant_tokens: None,
        grant_descendants: Some(grant_descendants),
    });
    let mut story = Story::queued_with(Revision::default(), order);
    story.ok(Input::Start { after: None });
    story
}

#[test]
fn grants_of_descendants_never_add_up_to_more_than_the_run_may_start() {
    for max in [1_u32, 2, 3, 7, 16, 17, 40, 100, 1_000] {
        let mut story = Story::begin_with(bounded_tree(max));
        let given = descendants(&researchers(&mut story, 16));
        let total = given.iter().map(|grant| 1 + grant).sum::<u32>();
        assert!(total <= max, "{given:?} of {max}");
        assert_eq!(story.run.control.descendants, total);
    }
    // By default as many children may be open together as the other limit allows, and the first can delegate widely.
    let mut story = Story::begin();
    let given = descendants(&researchers(&mut story, 16));
    assert_eq!((given.len(), given[0]), (16, 42));
}

#[test]
fn a_default_tree_can_delegate_down_to_the_last_level() {
    let mut grant = descendants(&delegating(Revision::default()).log)[0];
    for depth in 1..Limits::default().depth_max {
        let mut story = granted(grant, depth);
        let events = story.asks_for(&[("A", "researcher")]);
        assert_eq!(descendants(&events).len(), 1, "a run at depth {depth} with {grant} may delegate");
        grant = descendants(&events)[0];
    }
    assert_eq!(grant, 0, "a run on the last level cannot delegate, and is granted nothing");
}

#[test]
fn a_call_that_finds_no_descendant_left_fails_and_says_why() {
    let mut story = Story::begin_with(bounded_tree(2));
    let events = researchers(&mut story, 3);
    assert_eq!(descendants(&events), [0, 0]);
    assert!(story.log.iter().any(|event| matches!(
        &event.fact,
        Fact::ExecutionFailed { call_id, error, .. }
            if call_id.as_str() == "c2" && error.code == CallErrorCode::TooManyDescendants
    )));
    assert_eq!(
        story.tool_text("c2"),
        "Error: this run may start 2 runs in all, those that they start included, and none is left; do the rest \
         without delegating"
    );
    let mut none = granted(0, 1);
    none.asks_for(&[("A", "researcher")]);
    assert_eq!(
        none.tool_text("A"),
        "Error: this run may start 0 runs in all, those that they start included, and none is left; do the rest \
         without delegating"
    );
}

#[test]
fn a_child_that_ends_gives_back_what_it_did_not_start_and_its_own_run_stays_counted() {
    let mut story = Story::begin_with(bounded_tree(10));
    let events = story.asks_for(&[("A", "researcher")]);
    let [grant] = descendants(&events)[..] else { panic!("{events:?}") };
    assert!(grant >= 2, "{grant}");
    let run = child_of(&story, "A");
    let end = completed("done");
    story.ok(Input::ChildEnded(ChildEnded { call: "A".into(), run, end, usage: used(1), descendants: 2 }));
    assert_eq!(story.run.control.descendants, 3);
    // Ten runs in all, one after the other: none of them brings a new allowance.
    for n in 0..7 {
        let id = format!("r{n}");
        story.asks_for(&[(&id, "researcher")]);
        let input = ended(&story, &id, completed("done"));
        story.ok(input);
    }
    assert_eq!(story.run.control.descendants, 10);
    let events = story.asks_for(&[("last", "researcher")]);
    assert!(spawns(&events).is_empty());
}

#[test]
fn a_child_reports_every_run_that_counts_against_its_grant() {
    let mut story = granted(9, 1);
    story.asks_for(&[("A", "researcher")]);
    let counted = story.run.control.descendants;
    assert!(counted > 1, "{counted}");
    let before = story.run.control.clone();
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) });
    let sent = deliveries(Some(&before), &events, "").unwrap();
    let Some(Item::ChildEnded(end)) = sent.last().map(|one| one.item.clone()) else { panic!("{sent:?}") };
    assert_eq!(end.descendants, counted, "an open grandchild may still start what it was granted");
}

#[test]
fn a_child_of_an_older_log_without_a_grant_has_what_its_policy_says() {
    let parent = json!({"run_id": "run_parent", "call_id": "P", "depth": 1, "grant_tokens": null});
    let mut order = order(Policy { descendants_max: 1, ..Policy::default() });
    order.parent = Some(serde_json::from_value(parent).unwrap());
    let mut story = Story::queued_with(Revision::default(), order);
    story.ok(Input::Start { after: None });
    story.asks_for(&[("A", "researcher"), ("B", "researcher")]);
    assert_eq!(["A", "B"].map(|id| story.status(id)), [CallStatus::Suspended, CallStatus::Failed]);
}

#[test]
fn a_call_that_a_child_works_on_is_held_until_the_childs_answer_becomes_its_result() {
    let mut story = delegating(Revision::default());
    let opened = story.log.iter().find_map(|event| match &event.fact {
        Fact::ToolSuspended(opened) => Some((opened.mode, opened.expiry, opened.held.kind())),
        _ => None,
    });
    let expected = (ResumeMode::UseDecisionAsToolResult, None, SuspensionKind::ChildRun);
    assert_eq!(opened, Some(expected));
    let call = story.run.control.calls[0].id.to_string();
    let end = ended(&story, &call, completed("42"));
    story.ok(end);
    assert_eq!(story.tool_text(&call), "42");
}
