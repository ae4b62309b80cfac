//! The judge is given a world that went well, with one thing changed at a time, and objects to each by its rule.

mod audit;
mod charges;
mod hooks;
mod shared_store;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use kill::driven_process::KillPlace;
use kill::evidence::{Complaint, Evidence};
use kill::judge::{Moment, Rule, Violation, judge};
use kill::matrix::{Order, run};
use kill::people::People;
use kill::stories::Ending;
use kill::wire::{Boundary, Operation, Response, Side};
use kill::world::Played;
use machine::event::{CancelReason, Event, Fact, Message};
use machine::id::{DecisionId, Principal, RunId, SuspensionId};
use machine::suspension::Held;
use machine::termination::{ErrorCode, RunError, Termination};

/// A world by its name. With this seed no process is killed again.
fn played(world: String) -> Played {
    let order = Order { kills: 0, seed: 3, stories: Vec::new(), only: Some(world), keep: false };
    let outcome = run(PathBuf::from(env!("CARGO_BIN_EXE_kill")), &order).expect("it can be played");
    outcome.last.expect("it went well")
}

/// A world without violations: a write was killed after its act, was in doubt, and was retried to the end.
fn went_well() -> &'static (Evidence, People) {
    static WORLD: OnceLock<(Evidence, People)> = OnceLock::new();
    WORLD.get_or_init(|| {
        let behind_its_act = KillPlace::At(Boundary { side: Side::After, operation: Operation::Act });
        let mut worlds = (10..30).map(|boundary| played(format!("write-retried:1/{boundary}")));
        let world = worlds.find(|world| world.kills == [behind_its_act]).expect("the act has a boundary");
        (world.evidence.expect("it was read"), world.people)
    })
}

/// The violations that the judge reports after this change.
fn objections(change: impl FnOnce(&mut Evidence, &mut People)) -> Vec<Rule> {
    let (mut evidence, mut people) = went_well().clone();
    change(&mut evidence, &mut people);
    rules(&evidence, &people)
}

fn rules(evidence: &Evidence, people: &People) -> Vec<Rule> {
    let mut rules: Vec<Rule> =
        judge(evidence, people, Moment::End).into_iter().map(|violation| violation.rule).collect();
    rules.dedup();
    rules
}

fn change_events(evidence: &mut Evidence, mut change: impl FnMut(&mut Event)) {
    for run in &mut evidence.runs {
        run.log.iter_mut().for_each(|event| change(Arc::make_mut(event)));
    }
}

fn remove_events(evidence: &mut Evidence, which: impl Fn(&Fact) -> bool) {
    let count = |evidence: &Evidence| evidence.runs.iter().map(|run| run.log.len()).sum::<usize>();
    let before = count(evidence);
    evidence.runs.iter_mut().for_each(|run| run.log.retain(|event| !which(&event.fact)));
    assert!(count(evidence) < before, "there is nothing to remove");
}

#[test]
fn a_world_that_went_well_is_not_objected_to() {
    assert_eq!(objections(|_, _| {}), []);
}

#[test]
fn an_accepted_decision_that_is_not_remembered_is_found() {
    let found = objections(|evidence, _| evidence.remembered.values_mut().for_each(|there| *there = false));
    assert_eq!(found, [Rule::AcceptedIsKept]);
}

#[test]
fn an_accepted_decision_that_was_never_heard_is_found() {
    let found = objections(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::ToolApproved { decision_id, .. } = &mut event.fact {
                *decision_id = None;
            }
        });
    });
    assert_eq!(found, [Rule::AcceptedIsKept, Rule::AuditIsExact]);
}

#[test]
fn a_decision_that_nobody_gave_is_found() {
    let found = objections(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::ToolResumed { decision_id, .. } = &mut event.fact {
                *decision_id = Some(DecisionId::from("made up"));
            }
        });
    });
    assert!(found.contains(&Rule::NothingIsMadeUp), "{found:?}");
}

#[test]
fn a_refused_decision_whose_question_stayed_open_is_found() {
    let found = objections(|evidence, people| {
        for decided in people.decisions.values_mut() {
            decided.responses = vec![Response::Refused { why: "not held".into() }];
        }
        evidence.remembered.values_mut().for_each(|there| *there = false);
    });
    assert!(found.contains(&Rule::NothingIsMadeUp) && found.contains(&Rule::AcceptedIsKept), "{found:?}");
}

#[test]
fn an_accepted_message_without_a_run_is_found() {
    let found =
        objections(|evidence, _| evidence.runs.iter_mut().for_each(|run| run.control.user_message = None));
    assert!(found.contains(&Rule::AcceptedIsKept), "{found:?}");
}

#[test]
fn an_accepted_interrupt_that_did_not_end_the_run_is_found() {
    let found = objections(|evidence, people| {
        people.interrupts.insert(evidence.runs[0].view.id.clone(), vec![Response::Accepted]);
    });
    assert_eq!(found, [Rule::AcceptedIsKept]);
}

#[test]
fn what_people_objected_to_themselves_is_heard() {
    let violation = Violation { rule: Rule::NothingIsMadeUp, what: "a repeat that was said once".into() };
    assert_eq!(objections(|_, people| people.objections.push(violation)), [Rule::NothingIsMadeUp]);
}

#[test]
fn an_act_without_a_stored_start_is_found() {
    let found = objections(|evidence, _| evidence.acts[0].attempt = 9);
    assert!(found.contains(&Rule::ActsOnlyAsStored), "{found:?}");
    let found = objections(|evidence, _| evidence.acts[0].run = RunId::from("run_of_nobody"));
    assert!(found.contains(&Rule::ActsOnlyAsStored), "{found:?}");
}

#[test]
fn an_attempt_that_acts_twice_is_found() {
    let found = objections(|evidence, _| evidence.acts.push(evidence.acts[0].clone()));
    assert!(found.contains(&Rule::ActsOnlyAsStored), "{found:?}");
    assert!(found.contains(&Rule::WriteHasItsApproval), "{found:?}");
}

#[test]
fn a_write_without_its_approval_is_found() {
    let found = objections(|evidence, _| {
        remove_events(evidence, |fact| matches!(fact, Fact::ToolApproved { .. }));
    });
    assert!(found.contains(&Rule::WriteHasItsApproval), "{found:?}");
}

#[test]
fn a_write_that_was_tried_again_unasked_is_found() {
    let found = objections(|evidence, _| {
        remove_events(evidence, |fact| {
            matches!(fact, Fact::ToolResumed { .. })
                || matches!(fact, Fact::ToolSuspended(opened) if matches!(opened.held, Held::InDoubt { .. }))
        });
    });
    assert!(found.contains(&Rule::WriteHasItsApproval), "{found:?}");
    assert!(found.contains(&Rule::DoubtIsSettledByRight), "{found:?}");
}

#[test]
fn a_doubt_that_nobody_settled_by_right_is_found() {
    let found = objections(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::ToolResumed { by, .. } = &mut event.fact {
                *by = Principal::system();
            }
        });
    });
    assert!(found.contains(&Rule::DoubtIsSettledByRight), "{found:?}");
}

/// The tool of this world sets no time for answers.
#[test]
fn a_doubt_that_expires_without_a_time_for_answers_is_found() {
    let found = objections(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::ToolResumed { call_id, suspension_id, .. } = &event.fact {
                event.fact = Fact::ToolCancelled {
                    call_id: call_id.clone(),
                    reason: CancelReason::Expired,
                    text: None,
                    by: Principal::system(),
                    decision_id: None,
                    outcome_unknown: true,
                    suspension_id: Some(suspension_id.clone()),
                };
            }
        });
    });
    assert!(found.contains(&Rule::DoubtIsSettledByRight), "{found:?}");
}

#[test]
fn a_repeat_with_another_key_or_other_arguments_is_found() {
    assert_eq!(
        objections(|evidence, _| evidence.acts[1].key = "another".into()),
        [Rule::RepeatsOnlyWhatWasLost]
    );
    let found = objections(|evidence, _| evidence.acts[1].arguments = serde_json::json!({"for": "b"}));
    assert_eq!(found, [Rule::RepeatsOnlyWhatWasLost]);
}

#[test]
fn a_result_of_a_call_that_never_acted_is_found() {
    assert_eq!(objections(|evidence, _| evidence.acts.clear()), [Rule::ResultAgreesWithActs]);
}

#[test]
fn a_cancelled_write_that_denies_its_act_is_found() {
    let found = objections(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::ExecutionSucceeded { call_id, .. } = &event.fact {
                event.fact = Fact::ToolCancelled {
                    call_id: call_id.clone(),
                    reason: CancelReason::Interrupted,
                    text: None,
                    by: Principal::system(),
                    decision_id: None,
                    outcome_unknown: false,
                    suspension_id: None,
                };
            }
        });
    });
    assert!(found.contains(&Rule::ResultAgreesWithActs), "{found:?}");
}

#[test]
fn a_run_without_its_end_is_found() {
    let found =
        objections(|evidence, _| remove_events(evidence, |fact| matches!(fact, Fact::RunEnded { .. })));
    assert!(found.contains(&Rule::NothingIsStuck) && found.contains(&Rule::FoldIsControl), "{found:?}");
}

#[test]
fn a_call_that_is_left_resuming_is_found() {
    let found = objections(|evidence, _| {
        // The log ends at the decision: no worker acted on it.
        let run = &mut evidence.runs[0];
        let decided = run.log.iter().position(|event| matches!(event.fact, Fact::ToolResumed { .. }));
        run.log.truncate(decided.expect("the doubt was settled") + 1);
        run.control = machine::fold(run.log.iter().map(|event| &**event)).expect("it is a log");
    });
    assert!(found.contains(&Rule::NoCallIsLeftResuming), "{found:?}");
}

#[test]
fn a_control_that_is_not_the_fold_is_found() {
    assert_eq!(objections(|evidence, _| evidence.runs[0].control.step += 1), [Rule::FoldIsControl]);
}

#[test]
fn a_log_with_a_hole_is_found() {
    let found = objections(|evidence, _| drop(evidence.runs[0].log.remove(1)));
    assert!(found.contains(&Rule::SeqIsDense) && found.contains(&Rule::LogIsLegal), "{found:?}");
}

#[test]
fn a_call_that_stands_twice_in_what_the_model_reads_is_found() {
    let found = objections(|evidence, _| {
        let log = &mut evidence.runs[0].log;
        let asks = |event: &&Arc<Event>| matches!(event.fact, Fact::MessageAdded(Message::Assistant { .. }));
        let asking = log.iter().find(asks).expect("the model asked for a call").clone();
        log.push(asking);
    });
    assert!(found.contains(&Rule::TranscriptIsValid), "{found:?}");
}

#[test]
fn an_approval_that_changed_its_id_is_found() {
    let found = objections(|evidence, people| {
        let seen = people.seen.values().next().expect("an approval was seen").clone();
        let id = SuspensionId::from("apr_of_before");
        people.seen.insert(id.clone(), seen);
        evidence.suspensions.insert(id, None);
    });
    assert_eq!(found, [Rule::ApprovalsStay]);
    let found = objections(|evidence, _| evidence.listed.push(SuspensionId::from("apr_of_nobody")));
    assert_eq!(found, [Rule::ApprovalsStay]);
}

#[test]
fn a_settled_call_that_ran_again_is_found() {
    let Played { evidence, mut people, .. } = played("sibling-still-runs:none".into());
    let evidence = evidence.expect("it was read");
    assert_eq!(rules(&evidence, &people), []);
    let snapshot =
        people.settled.values_mut().next().expect("a call was shown as settled beside its sibling");
    snapshot.attempts += 1;
    assert_eq!(rules(&evidence, &people), [Rule::SettledStays]);
}

#[test]
fn a_complaint_to_the_operator_is_found() {
    let found = objections(|evidence, _| evidence.complaints.push(complaint("ERROR: the run is stopped")));
    assert_eq!(found, [Rule::NoErrorIsReported]);
}

fn complaint(words: &str) -> Complaint {
    Complaint { process: 1, words: words.into() }
}

#[test]
fn a_log_whose_revision_is_lost_is_found() {
    assert_eq!(objections(|evidence, _| evidence.revisions.clear()), [Rule::LogIsLegal]);
}

#[test]
fn a_run_that_did_not_end_as_its_story_does_is_found() {
    let found = objections(|_, people| people.story.end = Ending::Interrupted);
    assert_eq!(found, [Rule::EndsAsItsStory]);
    let found = objections(|evidence, _| {
        let error = RunError { code: ErrorCode::Hook, text: "given up after a crash".into() };
        end_as(evidence, &Termination::Error(error));
    });
    assert!(found.contains(&Rule::EndsAsItsStory), "{found:?}");
}

#[test]
fn an_approved_call_that_was_dropped_with_nothing_done_is_found() {
    let found = objections(|evidence, _| {
        evidence.acts.clear();
        change_events(evidence, |event| {
            if let Fact::ExecutionSucceeded { call_id, .. } = &event.fact {
                event.fact = Fact::ToolCancelled {
                    call_id: call_id.clone(),
                    reason: CancelReason::RunEnded,
                    text: None,
                    by: Principal::system(),
                    decision_id: None,
                    outcome_unknown: false,
                    suspension_id: None,
                };
            }
        });
    });
    assert!(found.contains(&Rule::EndsAsItsStory), "{found:?}");
}

#[test]
fn an_accepted_late_answer_that_settled_nothing_is_found() {
    let found = objections(|_, people| {
        let doubted = people.seen.keys().next_back().expect("something was asked").clone();
        people.late_answers.insert(doubted, vec![Response::Accepted]);
    });
    assert_eq!(found, [Rule::AcceptedIsKept]);
}

fn end_as(evidence: &mut Evidence, how: &Termination) {
    change_events(evidence, |event| {
        if let Fact::RunEnded { termination, .. } = &mut event.fact {
            *termination = how.clone();
        }
    });
    for run in &mut evidence.runs {
        run.control = machine::fold(run.log.iter().map(|event| &**event)).expect("it is a log");
    }
}
