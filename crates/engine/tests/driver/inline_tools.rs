//! Tools that come with a message: shown to the model, performed by their sender, and found again after a restart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::posting::{INLINE_TOOLS_MAX, Message, PolicyRequest, PostError};
use engine::store::{Page, RunFilter, RunStore, StoreError, Tenant, ViewStore};
use engine::tool::{Performer, ToolDefinition};
use engine::{Engine, RunOutcome};
use machine::id::{CallId, Principal, ThreadId, ToolName};
use machine::inbox::{Refusal, Verdict};
use machine::policy::ApprovalScope;
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use serde_json::{Value, json};
use stores::memory::MemoryStore;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{Scripted, accepted, asking, echo, on};

fn pick() -> ToolDefinition {
    ToolDefinition::new("pick_file", "Lets the user pick a file")
        .parameters(
            json!({"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}}),
        )
        .performed_by(Performer::Client)
}

fn bringing(tools: Vec<ToolDefinition>) -> Message {
    Message { tools, ..Message::to("assistant", "go").on_thread("t") }
}

fn picking(arguments: Value) -> Scripted {
    asking(&[("a", "pick_file", arguments)])
}

async fn held(engine: &Engine, message: Message) -> (machine::id::RunId, Vec<SuspensionKind>) {
    let finished = engine.run(message).await.unwrap();
    let RunOutcome::Suspended(pending) = &finished.outcome else { panic!("{finished:?}") };
    (finished.run, pending.iter().map(|one| one.kind).collect())
}

#[tokio::test]
async fn a_tool_that_comes_with_a_message_is_performed_by_its_sender() {
    let store = MemoryStore::new();
    let model = picking(json!({"kind": "pdf"}));
    let engine = on(&store, Agent::new("assistant", model.clone()).tool(echo())).start().await.unwrap();
    let (run, kinds) = held(&engine, bringing(vec![pick()])).await;
    assert_eq!(kinds, [SuspensionKind::ClientTool]);
    let shown: Vec<String> = model.requests()[0].tools.iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(shown, ["echo", "pick_file"], "its own tools come first");

    // Only the stored run knows the tool now.
    engine.abort();
    let reopened = store.reopen();
    let engine = on(&reopened, Agent::new("assistant", model.clone())).start().await.unwrap();
    let tenant = Tenant::default();
    let known = engine.inline_tool(&tenant, &run, &ToolName::from("pick_file")).await.unwrap().unwrap();
    assert_eq!(known.description, "Lets the user pick a file");
    accepted(engine.decide(Decide::result(&run, &CallId::from("a"), "ann", json!("a.pdf"))).await);
    let ended = engine.wait_until_ended(&tenant, &run).await.unwrap();
    assert_eq!(ended.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert!(model.last_read().contains(&"tool a: a.pdf".to_owned()), "{:?}", model.last_read());
}

/// The words of each are its own: what one engine has at hand of one thread or tenant makes up for nothing elsewhere.
#[tokio::test]
async fn inline_tools_are_stored_for_each_thread_and_deleted_with_it() {
    let store = MemoryStore::new();
    let model = picking(json!({"kind": "pdf"}));
    let engine = on(&store, Agent::new("assistant", model.clone())).start().await.unwrap();
    let (acme, other) = (Tenant::from("acme"), Tenant::from("other"));
    let mut runs = Vec::new();
    for (tenant, thread) in [(&acme, "t"), (&acme, "t_2"), (&other, "t")] {
        let message = bringing(vec![pick()]).for_tenant(tenant.clone()).on_thread(thread);
        let run = engine.run(message).await.unwrap().run;
        let pinned = engine.view(tenant, &run).await.unwrap().unwrap().control.as_ref().unwrap().revision;
        runs.push((tenant, ThreadId::from(thread), run, pinned));
    }
    let kept = async |store: &MemoryStore, place: usize| {
        let (tenant, thread, _, pinned) = &runs[place];
        store.revision(tenant, thread, pinned).await.unwrap().is_some()
    };
    assert!(kept(&store, 0).await && kept(&store, 1).await && kept(&store, 2).await);
    let (_, thread, first, _) = &runs[0];
    accepted(engine.interrupt(&acme, first, &Principal::from("ann")).await);
    engine.wait_until_ended(&acme, first).await.unwrap();
    store.delete_thread(&acme, thread, &"tester".into()).await.unwrap();
    assert!(!kept(&store, 0).await && kept(&store, 1).await && kept(&store, 2).await);

    // The engine still knows what the next message brings; the thread does not.
    let again = engine.post(bringing(vec![pick()]).for_tenant(acme.clone())).await.unwrap().run;
    assert!(kept(&store, 0).await);
    engine.abort();
    let engine = on(&store.reopen(), Agent::new("assistant", model)).start().await.unwrap();
    for (tenant, run) in [(&acme, &again), (&acme, &runs[1].2), (&other, &runs[2].2)] {
        let known = engine.inline_tool(tenant, run, &ToolName::from("pick_file")).await.unwrap();
        assert_eq!(known.unwrap().description, "Lets the user pick a file");
    }
    assert_eq!(engine.inline_tool(&other, &again, &ToolName::from("pick_file")).await, Ok(None));
}

#[tokio::test]
async fn reading_a_run_whose_thread_is_deleted_meanwhile_finds_nothing() {
    let store = MemoryStore::new();
    let engine = on(&store, Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("Hi."))])));
    let engine = engine.start().await.unwrap();
    let tenant = Tenant::default();
    for read_tool in [true, false] {
        let run = engine.run(bringing(vec![pick()])).await.unwrap().run;
        let faulty = FaultyStore::new(&store, |_, _| Fate::Stored);
        let reader = Agent::new("reader", Scripted::new([]));
        let reader = Engine::on_shared(faulty.clone()).agent(reader).start().await.unwrap();
        faulty.deletes_first.store(true, Ordering::Release);
        if read_tool {
            let tool = reader.inline_tool(&tenant, &run, &ToolName::from("pick_file")).await;
            assert_eq!(tool, Ok(None));
        } else {
            assert_eq!(reader.transcript(&tenant, &run).await.err(), Some(StoreError::NotFound));
        }
        assert!(!faulty.deletes_first.load(Ordering::Acquire), "it was looked for");
        assert_eq!(store.run(&tenant, &run).await, Ok(None));
    }
}

#[tokio::test]
async fn a_message_that_wants_what_the_agent_gives_anyway_stores_nothing() {
    let store = MemoryStore::new();
    let schema = json!({"type": "object"});
    let agent =
        Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("{}"))])).output_schema(schema.clone());
    let engine = on(&store, agent).start().await.unwrap();
    let tenant = Tenant::default();
    let mut pinned = BTreeSet::new();
    for (thread, output_schema) in [("t", None), ("t_2", Some(Arc::new(schema)))] {
        let message = Message { output_schema, ..bringing(Vec::new()) }.on_thread(thread);
        let run = engine.run(message).await.unwrap().run;
        pinned.insert(engine.view(&tenant, &run).await.unwrap().unwrap().control.as_ref().unwrap().revision);
    }
    assert_eq!(pinned.len(), 1);
    let pinned = pinned.pop_first().unwrap();
    let elsewhere = store.revision(&Tenant::from("other"), &ThreadId::from("none"), &pinned).await.unwrap();
    assert!(elsewhere.is_some(), "it is the configured one, which all threads share");
}

#[tokio::test]
async fn a_tool_of_one_message_is_not_there_for_the_next() {
    let store = MemoryStore::new();
    let model = picking(json!({"kind": "pdf"}));
    let engine = on(&store, Agent::new("assistant", model.clone())).start().await.unwrap();
    let finished = engine.run(bringing(Vec::new())).await.unwrap();
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    let read = model.last_read();
    assert!(read.iter().any(|line| line.starts_with("tool a: Error")), "{read:?}");
}

#[tokio::test]
async fn arguments_are_checked_against_the_inline_schema() {
    let store = MemoryStore::new();
    let model = picking(json!({"kind": 7}));
    let engine = on(&store, Agent::new("assistant", model.clone())).start().await.unwrap();
    let finished = engine.run(bringing(vec![pick()])).await.unwrap();
    assert_eq!(
        finished.outcome,
        RunOutcome::Ended(Termination::NaturalEnd),
        "a call with bad arguments is not held"
    );
    let read = model.last_read();
    assert!(read.iter().any(|line| line.starts_with("tool a: Error") && line.contains("kind")), "{read:?}");
}

/// Held twice: for the person who approves, and then for the front end.
#[tokio::test]
async fn where_all_tools_are_held_an_inline_one_is_too_and_an_edit_has_to_fit_its_schema() {
    let store = MemoryStore::new();
    let model = picking(json!({"kind": "pdf"}));
    let engine = on(&store, Agent::new("assistant", model)).start().await.unwrap();
    let policy = PolicyRequest { approval: Some(ApprovalScope::AllTools), ..PolicyRequest::default() };
    let (run, kinds) = held(&engine, Message { policy, ..bringing(vec![pick()]) }).await;
    assert_eq!(kinds, [SuspensionKind::Approval]);
    let approve = Decide::approve(&run, &CallId::from("a"), "ann");
    let unfit = engine.decide(approve.clone().with_arguments(json!({"kind": 7}))).await.unwrap();
    assert!(matches!(unfit, Verdict::Refused(Refusal::Invalid(_))), "{unfit:?}");
    let last = engine.view(&Tenant::default(), &run).await.unwrap().unwrap().control.as_ref().unwrap().seq;
    accepted(engine.decide(approve.with_arguments(json!({"kind": "png"}))).await);
    let next = engine.follow(&Tenant::default(), &run, last).await.unwrap();
    let RunOutcome::Suspended(pending) = &next.outcome else { panic!("{next:?}") };
    assert_eq!(pending[0].kind, SuspensionKind::ClientTool);
}

#[tokio::test]
async fn an_inline_tool_cannot_replace_a_tool_of_the_server() {
    let store = MemoryStore::new();
    let mut agent = Agent::new("assistant", picking(json!({})));
    agent.reserved.insert(ToolName::from("idle"));
    let other = Agent::new("other", picking(json!({}))).tool(echo());
    let engine = on(&store, agent).agent(other).start().await.unwrap();
    let named = |name: &str| ToolDefinition { name: ToolName::from(name), ..pick() };
    let taken = |name: &str| PostError::ToolNameTaken(ToolName::from(name));
    let refused = engine.post(bringing(vec![pick(), named("echo")])).await.unwrap_err();
    assert_eq!(refused, taken("echo"), "a tool of another agent is one of the server too");
    let refused = engine.post(bringing(vec![named("idle")])).await.unwrap_err();
    assert_eq!(refused, taken("idle"), "and so is one that no agent uses");
    for alike in ["Echo", "ECHO", "e-c-h-o", "_echo_", "e.cho", "id_le"] {
        let refused = engine.post(bringing(vec![named(alike)])).await.unwrap_err();
        assert_eq!(refused, taken(alike), "an approver could take it for the server's");
    }
    let refused = engine.post(bringing(vec![pick(), pick()])).await.unwrap_err();
    assert_eq!(refused, taken("pick_file"));

    let bad = [
        named(""),
        named(&"n".repeat(129)),
        ToolDefinition { performer: Performer::Server, ..pick() },
        pick().parameters(json!({"type": "no such type"})),
        pick().parameters(json!({"description": "x".repeat(70_000)})),
    ];
    for tool in bad {
        let refused = engine.post(bringing(vec![tool])).await.unwrap_err();
        assert!(matches!(refused, PostError::BadTools { .. }), "{refused:?}");
    }
    let many = (0..=INLINE_TOOLS_MAX).map(|number| named(&format!("t{number}"))).collect();
    let refused = engine.post(bringing(many)).await.unwrap_err();
    assert!(matches!(refused, PostError::BadTools { .. }), "{refused:?}");
    let runs = engine.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    assert!(runs.items.is_empty(), "nothing was started");
}
