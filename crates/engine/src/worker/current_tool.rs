//! Checks a decision against the tool as it is now.

use machine::decision::Decision;
use machine::suspension::Held;

use super::Worker;

impl Worker {
    /// A waiting decision was accepted for the tool as it was then. If the tool has changed since, the approval is void
    /// before it is recorded. If the tool is gone, the call fails at the gate.
    pub(super) fn set_current_definition(&self, decision: &mut Decision) {
        if let Some(call) = self.run.control().call(&decision.call)
            && let Some(Held::Approval { definition }) = call.suspension().map(|open| &open.held)
            // A decision that was void when it was accepted stays void, even if the tool matches what was shown again.
            && !decision.is_for_changed_tool(*definition)
        {
            let agents = self.node.agents();
            let agent = agents.by_name.get(&self.pinned.agent).map(|agent| &**agent);
            let live = self.pinned.live(agent, &call.tool);
            decision.definition_now = live.map(|live| live.gate.definition).or(decision.definition_now);
        }
    }
}
