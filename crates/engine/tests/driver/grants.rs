//! Grants: what they lift, how long they count, and what a changed file means for a run that is under way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use engine::Approvers;
use engine::agent::{Agent, ArgumentTest, Rule};
use engine::deciding::{Answer, Decide, Resumption};
use engine::model::ModelAnswer;
use engine::store::{GrantFilter, Page, SuspensionView, Tenant, ViewStore};
use engine::tool::{Approval, DeclaredTool, OnExpiry, Performer, ToolDefinition};
use machine::event::{Event, Fact};
use machine::id::{RunId, ThreadId};
use machine::policy::{ApprovalScope, PolicyRequest};
use serde_json::{Value, json};

use crate::harness::{
    Harness, Scripted, Sent, accepted, ask, call, held, next_event, remaining_events, to_assistant,
    transfer_definition, until_named, wait_until_released,
};

/// A key may be taken from this set while an engine runs.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<BTreeSet<&'static str>>>);

impl Keys {
    fn of(names: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(names.iter().copied().collect())))
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }

    fn approvers(&self) -> Approvers {
        let keys = self.clone();
        Arc::new(move |tenant, principal, agent| {
            assert_eq!((tenant, agent.as_str()), (&Tenant::default(), "assistant"));
            keys.0.lock().unwrap().contains(principal.as_str())
        })
    }
}

/// Transfers of these amounts, one in each step.
fn transfers(amounts: &[u64]) -> Scripted {
    let step = |(amount, number): (&u64, usize)| {
        Ok(ask(&[(&format!("c{number}"), "transfer", json!({"amount": amount}))]))
    };
    Scripted::new(amounts.iter().zip(0..).map(step).chain([Ok(ModelAnswer::text("Done."))]))
}

fn assistant(model: &Scripted, sent: &Sent) -> Agent {
    Agent::new("assistant", model.clone()).tool(sent.transfer())
}

fn for_later_calls(run: &RunId, id: &str) -> Decide {
    let answer = Answer::Resume(Resumption { apply_to_future: true, ..Resumption::default() });
    Decide { answer, ..Decide::approve(run, &call(id), "ann") }
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_five_does_not_let_a_million_past_the_rule_that_asks() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = transfers(&[5, 6, 1_000_000]);
    let large = Rule::ask("transfer").when("amount", ArgumentTest::Gt(100.0));
    let engine = harness.start(assistant(&model, &sent).rule(large)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    accepted(engine.decide(for_later_calls(&run, "c0")).await);
    until_named(&mut watched, "run.waiting").await;
    assert_eq!(sent.arguments(), [json!({"amount": 5}), json!({"amount": 6})]);
    let shown = harness.pending().await.remove(0);
    assert_eq!(shown.arguments(), Some(&json!({"amount": 1_000_000})));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_tightens_asks_despite_auto_approve() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(assistant(&transfers(&[5]), &sent)).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::from("t"));
    harness.store.put_thread(&tenant, &thread, &Value::Null).await.unwrap();
    engine.auto_approve(&tenant, &thread, true, &"ann".into()).await.unwrap();
    let (_, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1);
    let mut strict = to_assistant().on_thread("t");
    strict.policy = PolicyRequest { approval: Some(ApprovalScope::WriteTools), ..PolicyRequest::default() };
    held(&engine, strict).await;
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_ends_when_its_giver_may_no_longer_approve() {
    let (harness, sent, keys) = (Harness::new(), Sent::default(), Keys::of(&["ann", "bo"]));
    let engine = harness.engine().approvers(keys.approvers()).agent(assistant(&transfers(&[5]), &sent));
    let engine = engine.start().await.unwrap();
    let (run, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    accepted(engine.decide(for_later_calls(&run, "c0")).await);
    remaining_events(&mut watched).await;
    let (_, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 2);
    keys.remove("ann");
    let (_, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    let shown = harness.pending().await.remove(0);
    // Another giver's grant for the whole thread counts, until that key goes too.
    engine.auto_approve(&Tenant::default(), &"t".into(), true, &"bo".into()).await.unwrap();
    accepted(engine.decide(shown.approve("bo")).await);
    remaining_events(&mut watched).await;
    let (_, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 4);
    keys.remove("bo");
    held(&engine, to_assistant().on_thread("t")).await;
    assert_eq!(sent.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_a_key_that_is_gone_at_the_start_counts_for_nothing() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(assistant(&transfers(&[5]), &sent)).await;
    let (run, mut watched) = held(&engine, to_assistant().on_thread("t")).await;
    accepted(engine.decide(for_later_calls(&run, "c0")).await);
    remaining_events(&mut watched).await;
    wait_until_released(&engine).await;
    drop(engine);
    let harness = harness.reopen();
    let keys = Keys::of(&["bo"]);
    let engine = harness.engine().approvers(keys.approvers()).agent(assistant(&transfers(&[5]), &sent));
    let engine = engine.start().await.unwrap();
    held(&engine, to_assistant().on_thread("t")).await;
    assert_eq!(sent.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_looser_message_counts_while_its_sender_may_approve() {
    let keys = Keys::of(&["ann"]);
    let loose = || {
        let mut message = to_assistant().by("ann");
        message.policy = PolicyRequest { approval: Some(ApprovalScope::Never), ..PolicyRequest::default() };
        message.may_approve = true;
        message
    };
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.engine().approvers(keys.approvers()).agent(assistant(&transfers(&[5]), &sent));
    let engine = engine.start().await.unwrap();
    let (_, mut watched) = engine.stream(loose()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1);
    keys.remove("ann");
    held(&engine, loose()).await;
    assert_eq!(sent.count(), 1);
}

fn terms(approval: Approval, expires_in_s: Option<u64>) -> ToolDefinition {
    let mut definition = transfer_definition().approval(approval);
    definition.expires_in = expires_in_s.map(std::time::Duration::from_secs);
    definition
}

/// The second transfer of a run that began under `frozen`, after the file said `now`.
async fn second_call(frozen: ToolDefinition, now: ToolDefinition) -> (Vec<Event>, Vec<SuspensionView>) {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = Scripted::new([
        Ok(ask(&[("w", "wait", json!({}))])),
        Ok(ask(&[("c", "transfer", json!({"amount": 5}))])),
        Ok(ModelAnswer::text("Done.")),
    ]);
    let wait = || DeclaredTool::new(ToolDefinition::new("wait", "Waits").performed_by(Performer::External));
    let agent = |definition| {
        let transfer = sent.tool(definition, |_| json!("sent"));
        Agent::new("assistant", model.clone()).tool(transfer).tool(wait())
    };
    let mut waiting = agent(frozen);
    waiting.rules = vec![Rule::allow("wait")];
    let engine = harness.start(waiting).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    engine.replace_agents(vec![agent(now)]).await.unwrap();
    accepted(engine.decide(Decide::result(&run, &call("w"), "ann", json!("go on"))).await);
    let mut events = Vec::new();
    loop {
        let event = next_event(&mut watched).await.expect("it ends or waits");
        let is_over = matches!(event.fact, Fact::RunWaiting { .. } | Fact::RunEnded { .. });
        events.push(event);
        if is_over {
            return (events, harness.pending().await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_keeps_the_stricter_of_the_approval_that_it_began_with_and_the_current_one() {
    use Approval::{Ask, Block, Never};
    for (frozen, now) in [(Ask, Never), (Never, Ask)] {
        let (events, pending) = second_call(terms(frozen, None), terms(now, None)).await;
        assert_eq!(pending.len(), 1, "{frozen:?}, then {now:?}: {events:?}");
    }
    for (frozen, now) in [(Block, Never), (Block, Ask), (Ask, Block), (Never, Block)] {
        let (events, pending) = second_call(terms(frozen, None), terms(now, None)).await;
        let failed = events.iter().find(|event| matches!(event.fact, Fact::ExecutionFailed { .. }));
        let Some(Fact::ExecutionFailed { error, .. }) = failed.map(|event| &event.fact) else {
            panic!("{frozen:?}, then {now:?}: {events:?}");
        };
        assert_eq!((error.message.as_str(), pending.len()), ("blocked by policy", 0));
    }
    let (events, pending) = second_call(terms(Never, None), terms(Never, None)).await;
    assert!(pending.is_empty(), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_keeps_the_earlier_expiry_and_an_end_of_the_run_at_it() {
    for (frozen, now) in [(Some(60), Some(90)), (Some(90), Some(60)), (None, Some(60)), (Some(60), None)] {
        let (_, pending) = second_call(terms(Approval::Ask, frozen), terms(Approval::Ask, now)).await;
        let shown = &pending[0];
        let expiry = shown.decoded().unwrap().expiry.expect("it expires");
        assert_eq!(expiry.at.0 - shown.created_at.0, 60_000, "{frozen:?}, then {now:?}");
    }
    let ends = |on_expiry| ToolDefinition { on_expiry, ..terms(Approval::Ask, Some(60)) };
    for (frozen, now) in [(OnExpiry::EndRun, OnExpiry::Deny), (OnExpiry::Deny, OnExpiry::EndRun)] {
        let (_, pending) = second_call(ends(frozen), ends(now)).await;
        assert_eq!(pending[0].decoded().unwrap().expiry.expect("it expires").then, OnExpiry::EndRun);
    }
}

/// Two transfers of a child, one after the other, for a desk that delegates twice.
async fn delegating(harness: &Harness, sent: &Sent) -> engine::Engine {
    let performer = Performer::Agent { agent: "clerk".into(), budget_tokens_max: None };
    let clerk = ToolDefinition::new("clerk", "Delegates").performed_by(performer).approval(Approval::Ask);
    let desk = Scripted::new([
        Ok(ask(&[("d1", "clerk", json!({"message": "pay"}))])),
        Ok(ask(&[("d2", "clerk", json!({"message": "pay again"}))])),
        Ok(ModelAnswer::text("Done.")),
    ]);
    harness
        .engine()
        .agent(Agent::new("desk", desk).tool(DeclaredTool::new(clerk)))
        .agent(Agent::new("clerk", transfers(&[5, 6])).tool(sent.transfer()))
        .start()
        .await
        .unwrap()
}

/// Until a call of this tool is held.
async fn pending_call(engine: &engine::Engine, harness: &Harness, tool: &str) -> SuspensionView {
    for _ in 0..100_000 {
        let pending = harness.pending().await;
        if let Some(shown) = pending.into_iter().find(|shown| shown.decoded().unwrap().tool.as_str() == tool)
        {
            wait_until_released(engine).await;
            return shown;
        }
        tokio::task::yield_now().await;
    }
    panic!("no call of {tool} is held");
}

#[tokio::test(start_paused = true)]
async fn apply_to_future_on_a_delegated_call_is_for_the_rest_of_that_delegated_run() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = delegating(&harness, &sent).await;
    let (_, mut watched) = engine.stream(engine::posting::Message::to("desk", "go")).await.unwrap();
    // The call of the agent tool is the parent's own: its grant is for the parent's thread, and counts for the second one.
    let delegation = pending_call(&engine, &harness, "clerk").await;
    accepted(engine.decide(for_later_calls(&delegation.run, "d1")).await);
    let first = pending_call(&engine, &harness, "transfer").await;
    accepted(engine.decide(for_later_calls(&first.run, "c0")).await);
    let second = pending_call(&engine, &harness, "transfer").await;
    assert_ne!(second.thread, first.thread, "the second transfer of the first child was not held");
    assert_eq!(sent.arguments(), [json!({"amount": 5}), json!({"amount": 6})]);
    let page = Page::default();
    let grants =
        harness.store.grants(&Tenant::default(), &GrantFilter::default(), &page).await.unwrap().items;
    let threads: BTreeSet<ThreadId> = grants.into_iter().map(|view| view.thread).collect();
    assert_eq!(threads, BTreeSet::from([delegation.thread, first.thread]));
    accepted(engine.decide(for_later_calls(&second.run, "c0")).await);
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 4);
}
