//! Checks whether the token use of a tree of agents is bounded.

use std::collections::BTreeSet;

use engine::agent::StopCondition;
use engine::tool::Performer;
use machine::id::AgentName;

use super::agents::ConfiguredAgent;

/// Warns about each agent that delegates without a bound on tokens. Its own `token_budget` covers everything that it
/// delegates. Otherwise the tool needs `max_tokens`, or the other agent needs a `token_budget`.
pub(super) fn check(agents: &[ConfiguredAgent<'_>]) {
    let bounded: BTreeSet<&AgentName> =
        agents.iter().filter(|named| has_budget(named)).map(|named| &named.agent.name).collect();
    for named in agents.iter().filter(|named| !has_budget(named)) {
        for tool in &named.agent.tools {
            let definition = tool.definition();
            let Performer::Agent { agent: other, budget_tokens_max: None } = &definition.performer else {
                continue;
            };
            if bounded.contains(other) {
                continue;
            }
            named.location.warn(format!(
                "its tool {:?} delegates to {:?}, and nothing bounds the tokens that those runs use: there may be {} of \
                 them; add a token_budget to `stop` here or there, or max_tokens to the tool",
                definition.name.as_str(),
                other.as_str(),
                named.agent.policy.descendants_max
            ));
        }
    }
}

fn has_budget(named: &ConfiguredAgent<'_>) -> bool {
    let is_budget = |condition: &StopCondition| matches!(condition, StopCondition::TokenBudget { max_total } if *max_total > 0);
    named.agent.stop.iter().any(is_budget)
}
