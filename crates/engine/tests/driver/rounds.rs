//! Whole rounds, and what they cost.

use engine::agent::{Agent, StopCondition};
use engine::posting::Message;
use engine::store::ViewStore;
use engine::{RunOutcome, StartError};
use machine::termination::Termination;
use stores::memory::MemoryStore;

use crate::harness::{echo, on, two_echoes};

#[tokio::test]
async fn a_tool_round_ends_naturally_and_takes_four_commits() {
    let store = MemoryStore::new();
    let engine = on(&store, Agent::new("assistant", two_echoes()).tool(echo())).start().await.unwrap();
    let finished = engine.run(Message::to("assistant", "hello")).await.unwrap();
    assert_eq!(finished.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(finished.text, "Done.");
    assert_eq!(store.metrics().commits, 4);
}

#[tokio::test]
async fn c38_a_pattern_that_cannot_be_compiled_is_found_when_the_agent_is_configured() {
    let bad = || StopCondition::ContentMatch { pattern: "(never closed".into() };
    let agent = Agent::new("assistant", two_echoes()).tool(echo());
    let refused = on(&MemoryStore::new(), agent.clone().stop_when([bad()])).start().await.err();
    let Some(StartError::Agent(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.agent.as_str(), "assistant");
    assert!(fault.why.starts_with("stop condition 0"), "{}", fault.why);
    // An engine that runs keeps the agents that it has.
    let engine = on(&MemoryStore::new(), agent.clone()).start().await.unwrap();
    assert!(engine.replace_agents(vec![agent.stop_when([bad()])]).await.is_err());
    assert_eq!(engine.run(Message::to("assistant", "hello")).await.unwrap().text, "Done.");
}
