//! Stories in which a hook is asked over HTTP.

use serde_json::json;

use super::{GATE, Gate, ScriptedCall, Story, approved_story, tools};

pub(super) fn stories() -> Vec<Story> {
    use tools::{FILE, LOOK};
    let calls = vec![
        gated("a", FILE, Gate::Block),
        gated("b", FILE, Gate::Supply),
        gated("c", LOOK, Gate::Suspend),
        gated("d", LOOK, Gate::Silent),
    ];
    vec![Story { hook: true, ..approved_story("hook-gates", calls) }]
}

fn gated(id: &str, tool: &str, gate: Gate) -> ScriptedCall {
    ScriptedCall { id: id.into(), tool: tool.into(), arguments: json!({"for": id, GATE: gate}) }
}
