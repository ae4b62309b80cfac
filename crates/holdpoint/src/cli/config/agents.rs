//! `[agents.NAME]`: who answers, with which tools, under which rules, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::agent::{Agent, Limits, ROUNDS_DEFAULT, StopCondition};
use engine::tool::Tool;
use machine::id::AgentName;

use super::amounts::{NAME_BYTES_MAX, is_name};
use super::models::NamedModel;
use super::table::{Entry, Table};
use super::tools::NamedTool;
use super::{policy, rules, stop};

/// What an agent may name. None stands for something that was written down wrongly.
pub(super) struct Offered {
    pub(super) models: BTreeMap<String, Option<NamedModel>>,
    pub(super) tools: BTreeMap<String, Option<NamedTool>>,
    pub(super) servers: BTreeSet<String>,
}

/// In the order of the file.
pub(super) fn read(entry: Option<Entry<'_>>, offered: &Offered) -> Vec<Agent> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [agents.NAME]")) else { return Vec::new() };
    let mut agents = Vec::new();
    for (name, entry) in table.named() {
        if !is_name(name) {
            entry.place.fault(format!(
                "this is no name for an agent; use letters, digits, _ and -, at most {NAME_BYTES_MAX} of them"
            ));
        }
        let table = entry.table("a table [agents.NAME]");
        agents.extend(table.and_then(|table| read_agent(name, table, offered)));
    }
    agents
}

fn read_agent(name: &str, mut table: Table<'_>, offered: &Offered) -> Option<Agent> {
    let model = table.needed("model", "the name of a [models.NAME] table");
    let model = model.and_then(|entry| named_model(&entry, offered));
    let instructions = table.take("instructions").map_or(Some(""), |entry| entry.text("a text"));
    let tools = table.take("tools").map_or_else(Tools::default, |entry| Tools::read(&entry, offered));
    let stop = match table.take("stop") {
        Some(entry) => stop::read(&entry),
        None => vec![StopCondition::MaxRounds { rounds: ROUNDS_DEFAULT }],
    };
    let rules = table.take("rules").map_or_else(Vec::new, |entry| rules::read(&entry, &tools));
    let policy = table.take("policy").map(|entry| policy::read(&entry)).unwrap_or_default();
    table.finish();
    let (model_name, model) = model?;
    Some(Agent {
        name: AgentName::from(name),
        instructions: instructions?.to_owned(),
        model: model.model,
        model_name,
        tools: tools.usable,
        plugins: Vec::new(),
        policy,
        rules,
        stop,
        limits: Limits::default(),
    })
}

fn named_model(entry: &Entry<'_>, offered: &Offered) -> Option<(String, NamedModel)> {
    let name = entry.text("the name of a [models.NAME] table")?;
    match offered.models.get(name) {
        Some(model) => model.clone().map(|model| (name.to_owned(), model)),
        None => {
            let known: Vec<&str> = offered.models.keys().map(String::as_str).collect();
            entry.place.refuse(match known.as_slice() {
                [] => format!("there is no model {name:?}; add a table [models.{name}]"),
                _ => format!("there is no model {name:?}; use one of {}, or add a table", known.join(", ")),
            })
        }
    }
}

/// The tools of one agent.
#[derive(Default)]
pub(super) struct Tools {
    usable: Vec<Arc<dyn Tool>>,
    /// As they are written, those included that cannot be used.
    names: Vec<String>,
}

impl Tools {
    fn read(entry: &Entry<'_>, offered: &Offered) -> Self {
        let mut tools = Self::default();
        for item in entry.items("a list of the names of tools").unwrap_or_default() {
            let Some(name) = item.text("the name of a tool") else { continue };
            if tools.names.iter().any(|other| other == name) {
                item.place.fault(format!("{name:?} stands here twice; remove one"));
                continue;
            }
            tools.names.push(name.to_owned());
            if let Some((server, _)) = name.split_once('.') {
                if !offered.servers.contains(server) {
                    item.place.fault(format!("there is no table [mcp.{server}]; remove {name:?}"));
                }
                continue;
            }
            match offered.tools.get(name) {
                Some(tool) => tools.usable.extend(tool.as_ref().map(|named| named.tool.clone())),
                None => item.place.fault(format!("there is no tool {name:?}; {}", offered.next_step(name))),
            }
        }
        tools
    }

    /// Whether a rule may speak of this tool.
    pub(super) fn include(&self, tool: &str) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(server) if server.ends_with('.') => tool.starts_with(server),
            Some(_) | None => name == tool,
        })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

impl Offered {
    fn next_step(&self, name: &str) -> String {
        let known: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        match known.as_slice() {
            [] => format!("add a table [tools.{name}]"),
            _ => format!("use one of {}, or add a table", known.join(", ")),
        }
    }
}
