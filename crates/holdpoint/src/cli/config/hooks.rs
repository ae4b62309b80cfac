//! `[[agents.NAME.hooks]]`: plugins of an agent that are asked over HTTP.

use std::sync::Arc;
use std::time::Duration;

use engine::plugin::{HOOK_TIMEOUT, Phase, PhaseSet};
use machine::id::PluginName;
use tools::http::{HookSettings, HttpHook};

use super::amounts::{NAME_BYTES_MAX, is_name};
use super::http_settings;
use super::table::{Entry, Table};

/// A step waits for its hooks one after the other.
const HOOKS_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);
const SENT_IN_CLEAR: &str = "the hook is called over plain HTTP on another machine, so every machine on the way can read what \
    it is sent and change what it answers; use an https:// address";

pub(in crate::cli) const PHASES: [(&str, Phase); 8] = [
    ("run_start", Phase::RunStart),
    ("step_start", Phase::StepStart),
    ("before_inference", Phase::BeforeInference),
    ("after_inference", Phase::AfterInference),
    ("before_tool_execute", Phase::BeforeToolExecute),
    ("after_tool_execute", Phase::AfterToolExecute),
    ("step_end", Phase::StepEnd),
    ("run_end", Phase::RunEnd),
];

#[derive(Clone)]
pub(in crate::cli) struct ConfiguredHook {
    pub(in crate::cli) name: PluginName,
    pub(in crate::cli) url: String,
    pub(in crate::cli) phases: PhaseSet,
    pub(in crate::cli) timeout: Duration,
    pub(super) plugin: Arc<HttpHook>,
}

/// In the order of the file, in which they are asked.
pub(super) fn read(entry: &Entry<'_>, agent: &str) -> Vec<ConfiguredHook> {
    let items = entry.items("[[agents.NAME.hooks]] tables").unwrap_or_default();
    if items.len() > HOOKS_MAX {
        entry.location.fault(format!("there are {} hooks; write at most {HOOKS_MAX}", items.len()));
        return Vec::new();
    }
    let mut hooks: Vec<ConfiguredHook> = Vec::new();
    for (item, index) in items.iter().zip(0..) {
        let Some(table) = item.table("a table with url and phases") else { continue };
        let Some(hook) = read_hook(table, agent, index) else { continue };
        if hooks.iter().any(|other| other.name == hook.name) {
            let name = hook.name.as_str();
            item.location.fault(format!(
                "another hook of this agent is called {name:?}; give one of them another name"
            ));
        }
        hooks.push(hook);
    }
    hooks
}

/// The position in the file identifies a hook without a name. No written name has an `@`.
fn default_name(agent: &str, index: usize) -> PluginName {
    PluginName::from(format!("hook_{index}@{agent}"))
}

fn read_hook(mut table: Table<'_>, agent: &str, index: usize) -> Option<ConfiguredHook> {
    let location = table.location.clone();
    let name = table.take("name").map(|entry| read_name(&entry));
    let url = http_settings::read_url(&mut table, Some(SENT_IN_CLEAR));
    let phases = table.require("phases", PHASE_LIST).and_then(|entry| read_phases(&entry));
    let timeout = table.take("timeout").map_or(Some(TIMEOUT), |entry| read_timeout(&entry));
    let http = http_settings::read(&mut table, url, "the hook's token");
    table.finish();
    let settings = HookSettings {
        name: name.unwrap_or_else(|| Some(default_name(agent, index)))?,
        phases: phases?,
        timeout: timeout?,
        http: http?,
    };
    match HttpHook::new(&settings) {
        Ok(plugin) => {
            let HookSettings { name, phases, timeout, http } = settings;
            Some(ConfiguredHook { name, url: http.url, phases, timeout, plugin: Arc::new(plugin) })
        }
        Err(error) => location.refuse(error.to_string()),
    }
}

fn read_name(entry: &Entry<'_>) -> Option<PluginName> {
    let name = entry.text("a name for the hook")?;
    if is_name(name) {
        return Some(PluginName::from(name));
    }
    entry.location.refuse(format!(
        "this is no name for a hook; use letters, digits, _ and -, at most {NAME_BYTES_MAX} of them"
    ))
}

const PHASE_LIST: &str = "a list of phases, such as [\"before_tool_execute\"]";

fn read_phases(entry: &Entry<'_>) -> Option<PhaseSet> {
    let items = entry.items(PHASE_LIST)?;
    if items.is_empty() {
        return entry.location.refuse("the hook would never be asked; name at least one phase");
    }
    let mut phases = PhaseSet::default();
    let mut all_right = true;
    for item in items {
        match item.choice(&PHASES) {
            Some(phase) if phases.has(phase) => {
                item.location.fault("the phase is listed twice; remove one");
                all_right = false;
            }
            Some(phase) => phases = phases.with(phase),
            None => all_right = false,
        }
    }
    all_right.then_some(phases)
}

fn read_timeout(entry: &Entry<'_>) -> Option<Duration> {
    let timeout = entry.nonzero_duration()?;
    if timeout <= HOOK_TIMEOUT {
        return Some(timeout);
    }
    entry.location.refuse(format!("a run would wait too long; write at most {}s", HOOK_TIMEOUT.as_secs()))
}
