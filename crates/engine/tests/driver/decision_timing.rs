//! When a decision comes: before the call is held, at the last moment, too late, together with another, or never.

use std::sync::Arc;
use std::time::Duration;

use engine::Settings;
use engine::agent::Agent;
use engine::arguments::digest;
use engine::callback::ReportedAttempt;
use engine::deciding::Decide;
use engine::plugin::{Action, HookContext, Phase, PhaseSet, Plugin};
use engine::posting::Message;
use engine::store::{BoxFuture, Tenant};
use engine::tool::{Approval, OnExpiry, Outcome, ToolAnswer, ToolDefinition};
use machine::Timestamp;
use machine::event::Fact;
use machine::id::{Digest, PluginName, Principal, RunId};
use machine::inbox::{Refusal, Verdict};
use machine::policy::{ApprovalScope, DecisionTiming, Policy};
use machine::projection_rows::ApprovalStatus;
use machine::termination::{Cancelled, StopCode, Termination};
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::{
    BEGIN, Harness, Scripted, Sent, accepted, asking, call, gated, held, remaining_events, to_assistant,
    transfer_definition, until_named, wait_until_released,
};

fn one_transfer() -> Scripted {
    asking(&[("a", "transfer", json!({"to": "bob"}))])
}

fn expiring(model: &Scripted, sent: &Sent, then: OnExpiry) -> Agent {
    let definition = transfer_definition().expires_in(Duration::from_secs(60), then);
    Agent::new("assistant", model.clone()).tool(sent.tool(definition, |_| json!("sent")))
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_expires_while_the_run_is_parked_is_denied_and_the_run_continues() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(expiring(&model, &sent, OnExpiry::Deny)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    let denied = until_named(&mut watched, "tool.denied").await;
    let Fact::ToolDenied { expired, by, .. } = &denied.fact else { panic!("{denied:?}") };
    assert_eq!((denied.at, *expired, by), (Timestamp(BEGIN.0 + 60_000), true, &Principal::system()));
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.ended(&run).await), (0, Some(Termination::NaturalEnd)));
    assert_eq!(harness.pending().await, vec![]);
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_expires_ends_the_run_where_the_tool_says_so() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(expiring(&model, &sent, OnExpiry::EndRun)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    let ended = remaining_events(&mut watched).await.pop().unwrap();
    assert_eq!(ended.at, Timestamp(BEGIN.0 + 60_000));
    let Some(Termination::Stopped(stopped)) = harness.ended(&run).await else { panic!("{ended:?}") };
    assert_eq!((stopped.code, sent.count(), model.requests().len()), (StopCode::Expired, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_expired_while_no_process_ran_is_denied_by_the_next_one() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(expiring(&model, &sent, OnExpiry::Deny)).await;
    let (run, watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    engine.abort();
    drop((engine, watched));
    tokio::time::advance(Duration::from_secs(600)).await;
    let harness = harness.reopen();
    let engine = harness.start(expiring(&model, &sent, OnExpiry::Deny)).await;
    remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
    assert_eq!((sent.count(), harness.count(&run, "tool.denied").await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_decision_at_the_last_moment_counts_and_one_at_the_deadline_does_not() {
    for (wait, wanted) in [(59_999, Verdict::Accepted), (60_000, Verdict::Refused(Refusal::Expired))] {
        let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
        let engine = harness.start(expiring(&model, &sent, OnExpiry::Deny)).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        wait_until_released(&engine).await;
        // No other task runs while the clock is moved, so the decision arrives before the worker processes the expiry.
        tokio::time::advance(Duration::from_millis(wait)).await;
        let verdict = engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap();
        remaining_events(&mut watched).await;
        let late = matches!(verdict, Verdict::Refused(Refusal::NotHeld | Refusal::RunOver));
        assert!(verdict == wanted || (wait == 60_000 && late), "{verdict:?}");
        assert_eq!(sent.count(), usize::from(verdict == Verdict::Accepted));
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_decisions_at_once_one_wins_and_the_other_is_refused() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer())).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    let (approved, rejected) = tokio::join!(
        engine.decide(Decide::approve(&run, &call("a"), "ann")),
        engine.decide(Decide::reject(&run, &call("a"), "bea", "no")),
    );
    let (approved, rejected) = (approved.unwrap(), rejected.unwrap());
    let yes = approved == Verdict::Accepted;
    let (winner, loser) = if yes { (approved, rejected) } else { (rejected, approved) };
    assert_eq!(winner, Verdict::Accepted);
    assert!(matches!(loser, Verdict::Refused(_)), "{loser:?}");
    remaining_events(&mut watched).await;
    assert_eq!(harness.count(&run, "tool.denied").await, usize::from(!yes));
    assert_eq!(sent.count(), usize::from(yes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_decisions_on_many_threads_exactly_one_wins() {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer())).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let deciders: Vec<_> = (0..100)
        .map(|number| {
            let (engine, run) = (engine.clone(), run.clone());
            let decision = if number % 2 == 0 {
                Decide::approve(&run, &call("a"), "ann")
            } else {
                Decide::reject(&run, &call("a"), "bea", "no")
            };
            tokio::spawn(async move { engine.decide(decision).await.unwrap() })
        })
        .collect();
    let mut accepted = 0;
    for decider in deciders {
        match decider.await.unwrap() {
            Verdict::Accepted => accepted += 1,
            other => assert!(matches!(other, Verdict::Refused(_)), "{other:?}"),
        }
    }
    remaining_events(&mut watched).await;
    let approved = harness.count(&run, "tool.approved").await;
    assert_eq!((accepted, approved + harness.count(&run, "tool.denied").await), (1, 1));
    assert_eq!(sent.count(), approved);
}

#[tokio::test(start_paused = true)]
async fn a_decision_and_an_interrupt_at_once_leave_one_consistent_log() {
    for interrupt_first in [false, true] {
        let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
        let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer())).await;
        let (run, mut watched) = held(&engine, to_assistant()).await;
        wait_until_released(&engine).await;
        let (tenant, by) = (Tenant::default(), Principal::from("bea"));
        let approve = engine.decide(Decide::approve(&run, &call("a"), "ann"));
        let interrupt = engine.interrupt(&tenant, &run, &by);
        let (approved, interrupted) = if interrupt_first {
            let (interrupted, approved) = tokio::join!(interrupt, approve);
            (approved.unwrap(), interrupted.unwrap())
        } else {
            let (approved, interrupted) = tokio::join!(approve, interrupt);
            (approved.unwrap(), interrupted.unwrap())
        };
        assert_eq!(interrupted, Verdict::Accepted);
        remaining_events(&mut watched).await;
        let ended = harness.ended(&run).await;
        assert_eq!(ended, Some(Termination::Cancelled(Cancelled::Interrupted)));
        // An accepted approval is processed before the interrupt and is in the log; a refused one left no trace.
        let wanted = usize::from(approved == Verdict::Accepted);
        assert_eq!(harness.count(&run, "tool.approved").await, wanted, "{approved:?}");
        assert!(sent.count() <= wanted);
    }
}

/// A plugin that keeps every call at the gate until it is let through.
struct Doorkeeper {
    name: PluginName,
    asked: Arc<Notify>,
    open: Arc<Notify>,
}

impl Plugin for Doorkeeper {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        PhaseSet::default().with(Phase::BeforeToolExecute)
    }

    fn hook(&self, _: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin(async {
            self.asked.notify_one();
            self.open.notified().await;
            Ok(Vec::new())
        })
    }
}

/// A call at the gate is decided early, for the arguments with this digest; then the gate opens.
async fn decided_early(approved: Digest) -> (Harness, Sent, Verdict, RunId) {
    let (harness, model, sent) = (Harness::new(), one_transfer(), Sent::default());
    let (asked, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let keeper = Doorkeeper { name: "doorkeeper".into(), asked: asked.clone(), open: open.clone() };
    let agent = Agent::new("assistant", model).tool(sent.transfer()).plugin(keeper);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    asked.notified().await;
    let decision = Decide::approve(&posted.run, &call("a"), "ann").with_id("early");
    let verdict = engine.decide_early(decision, approved).await.unwrap();
    open.notify_one();
    until_named(&mut watched, "tool.approval_requested").await;
    // The call passes the gate a second time where it is approved.
    open.notify_one();
    wait_until_released(&engine).await;
    (harness, sent, verdict, posted.run)
}

#[tokio::test(start_paused = true)]
async fn a_decision_before_the_call_is_held_answers_it_for_these_very_arguments() {
    let (harness, sent, verdict, run) = decided_early(digest(&json!({"to": "bob"})).unwrap()).await;
    assert_eq!((verdict, sent.count()), (Verdict::Accepted, 1));
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_decision_before_the_call_is_held_counts_for_no_other_arguments() {
    let (harness, sent, verdict, run) = decided_early(digest(&json!({"to": "eve"})).unwrap()).await;
    assert_eq!((verdict, sent.count()), (Verdict::Accepted, 0));
    assert_eq!((harness.ended(&run).await, harness.pending().await.len()), (None, 1));
    assert!(!harness.pending().await[0].answered);
}

#[tokio::test(start_paused = true)]
async fn at_the_boundary_an_accepted_decision_waits_for_the_call_that_runs() {
    let gate = Arc::new(Notify::new());
    let model = asking(&[("a", "transfer", json!({})), ("c", "slow", json!({}))]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let policy = Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() };
    let agent =
        Agent::new("assistant", model).tool(sent.transfer()).tool(gated("slow", &gate)).policy(policy);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let approve = Decide::approve(&posted.run, &call("a"), "ann");
    assert_eq!(engine.decide(approve.clone()).await.unwrap(), Verdict::Accepted);
    let second = engine.decide(approve).await.unwrap();
    assert_eq!(second, Verdict::Refused(Refusal::Answered));
    assert_eq!((harness.count(&posted.run, "tool.approved").await, sent.count()), (0, 0));
    gate.notify_one();
    let after: Vec<String> =
        remaining_events(&mut watched).await.iter().map(|event| crate::harness::name(&event.fact)).collect();
    assert_eq!(after[0], "tool.execution_succeeded");
    assert!(after.contains(&"tool.approved".to_owned()), "{after:?}");
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_does_not_start_a_call_whose_approval_waits_for_the_boundary() {
    let gate = Arc::new(Notify::new());
    let calls = [("a", "transfer", json!({})), ("b", "transfer", json!({})), ("c", "slow", json!({}))];
    let (harness, sent) = (Harness::new(), Sent::default());
    let policy = Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() };
    let agent = Agent::new("assistant", asking(&calls))
        .tool(sent.transfer())
        .tool(gated("slow", &gate))
        .policy(policy);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    for held in ["a", "b"] {
        accepted(engine.decide(Decide::approve(&posted.run, &call(held), "ann")).await);
    }
    let interrupted = engine.interrupt(&Tenant::default(), &posted.run, &Principal::from("bea")).await;
    assert_eq!(interrupted.unwrap(), Verdict::Accepted);
    let events = remaining_events(&mut watched).await;
    let uncertain = events.iter().filter(|event| {
        matches!(&event.fact, Fact::ToolCancelled { call_id, outcome_unknown: true, .. } if *call_id != call("c"))
    });
    assert_eq!((uncertain.count(), sent.count()), (0, 0), "{events:?}");
    assert_eq!(harness.count(&posted.run, "tool.execution_started").await, 1, "only `c` was started");
    assert_eq!(harness.count(&posted.run, "tool.approved").await, 2, "both decisions are recorded");
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::Cancelled(Cancelled::Interrupted)));
}

/// The approval is void before it is recorded: the log never says that the changed tool was approved.
#[tokio::test(start_paused = true)]
async fn a_tool_that_changes_while_an_accepted_decision_waits_is_not_approved() {
    let gate = Arc::new(Notify::new());
    let model = asking(&[("a", "transfer", json!({})), ("c", "slow", json!({}))]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let policy = Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() };
    let base = || Agent::new("assistant", model.clone()).tool(gated("slow", &gate)).policy(policy);
    let engine = harness.start(base().tool(sent.transfer())).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let first = harness.pending().await[0].id.clone();
    let approve = Decide::approve(&posted.run, &call("a"), "ann");
    assert_eq!(engine.decide(approve.clone()).await.unwrap(), Verdict::Accepted);
    let changed = sent.tool(ToolDefinition::new("transfer", "Moves all the money"), |_| json!("gone"));
    engine.replace_agents(vec![base().tool(changed)]).await.unwrap();
    gate.notify_one();
    until_named(&mut watched, "tool.approval_requested").await;
    wait_until_released(&engine).await;
    assert_eq!(
        (
            harness.count(&posted.run, "tool.approved").await,
            harness.count(&posted.run, "tool.approval_voided").await
        ),
        (0, 1)
    );
    let old = engine.store().suspension(&Tenant::default(), &first).await.unwrap().expect("it is kept");
    assert_eq!((old.status, old.reason.as_deref()), (ApprovalStatus::Expired, Some("tool_changed")));
    assert_eq!((sent.count(), harness.pending().await.len()), (0, 1));
    accepted(engine.decide(approve).await);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.count(&posted.run, "tool.approved").await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_a_parked_run_is_stored_with_the_start_of_its_call_in_one_commit() {
    let (harness, model, gate) = (Harness::new(), one_transfer(), Arc::new(Notify::new()));
    let policy = Policy { approval: ApprovalScope::AllTools, ..Policy::default() };
    let agent = Agent::new("assistant", model).tool(gated("transfer", &gate)).policy(policy);
    let engine = harness.start(agent).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    let commits = harness.commits();
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap(), Verdict::Accepted);
    until_named(&mut watched, "tool.execution_started").await;
    assert_eq!(harness.commits(), commits + 1);
}

/// The place of an event of this type and call in the log.
async fn place(harness: &Harness, run: &RunId, wanted: &str, call: &str) -> usize {
    let log = harness.log(run).await;
    let found = log.iter().position(|event| {
        let stored = serde_json::to_value(&event.fact).unwrap();
        stored["type"] == wanted && stored["payload"]["call_id"] == call
    });
    found.unwrap_or_else(|| panic!("no {wanted} of {call}"))
}

#[tokio::test(start_paused = true)]
async fn b45_a_result_that_is_ready_is_processed_before_a_decision_that_was_ready_earlier() {
    let (harness, sent, gate) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let model = asking(&[("a", "transfer", json!({})), ("w", "post", json!({}))]);
    let lost = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let lost = sent.tool(lost, |_| Outcome::Unknown { why: "lost".into(), retry_after_ms: None });
    let settings = Settings { running_runs_max: 1, ..Settings::default() };
    let engine = harness
        .engine()
        .settings(settings)
        .agent(Agent::new("assistant", model).tool(sent.transfer()).tool(lost))
        .agent(Agent::new("other", asking(&[("s", "slow", json!({}))])).tool(gated("slow", &gate)))
        .start()
        .await
        .unwrap();
    let (run, mut watched) = held(&engine, to_assistant()).await;
    wait_until_released(&engine).await;
    // Another run has the only place: what is said to this one stays in its inbox.
    let (_, mut other) = engine.stream(Message::to("other", "go")).await.unwrap();
    until_named(&mut other, "tool.execution_started").await;
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await, Ok(Verdict::Accepted));
    let about = ReportedAttempt { tenant: Tenant::default(), run: run.clone(), call: call("w"), attempt: 1 };
    let answer = ToolAnswer::Success { value: Arc::new(json!("it was sent")), warning: None };
    assert_eq!(engine.settle_doubt(&about, 1, answer).await, Ok(Verdict::Accepted));
    gate.notify_one();
    remaining_events(&mut watched).await;
    let result = place(&harness, &run, "tool.execution_succeeded", "w").await;
    assert!(result < place(&harness, &run, "tool.approved", "a").await, "{:?}", harness.names(&run).await);
}

/// The decision is in the inbox before the result exists.
#[tokio::test(start_paused = true)]
async fn b47_a_result_that_comes_later_is_processed_before_a_deferred_decision() {
    let (harness, sent, gate) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let model = asking(&[("a", "transfer", json!({})), ("s", "slow", json!({}))]);
    let policy = Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() };
    let agent = Agent::new("assistant", model).tool(sent.transfer()).tool(gated("slow", &gate));
    let engine = harness.start(agent.policy(policy)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let run = posted.run;
    while harness.pending().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await, Ok(Verdict::Accepted));
    gate.notify_one();
    remaining_events(&mut watched).await;
    let result = place(&harness, &run, "tool.execution_succeeded", "s").await;
    assert!(result < place(&harness, &run, "tool.approved", "a").await, "{:?}", harness.names(&run).await);
    assert_eq!(sent.count(), 1);
}
