//! `[agents.NAME]`: an agent's model, tools, rules, hooks, policy and stop conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::agent::{Agent, Limits, ROUNDS_DEFAULT, StopCondition, Trim};
use engine::plugin::Plugin;
use engine::store::Tenant;
use engine::tool::{Tool, ToolDefinition};
use machine::id::{AgentName, ToolName};
use models::fallback::{FallbackModel, NamedModel};

use super::amounts::{NAME_BYTES_MAX, is_name};
use super::hooks::ConfiguredHook;
use super::models::ConfiguredModel;
use super::source::Location;
use super::table::{Entry, Table};
use super::tools::ConfiguredTool;
use super::{hooks, policy, rules, schema, stop, tenancy, trim};

/// Everything that an agent may refer to. None marks an invalid entry.
pub(super) struct Catalog {
    pub(super) models: BTreeMap<String, Option<ConfiguredModel>>,
    pub(super) tools: BTreeMap<String, Option<ConfiguredTool>>,
    pub(super) servers: BTreeSet<String>,
}

/// The names of all agents in the file, valid or not: a tool may delegate to any of them.
pub(super) fn names(entry: Option<&Entry<'_>>) -> BTreeSet<String> {
    let table = entry.filter(|entry| entry.is_table()).and_then(|entry| entry.table("tables [agents.NAME]"));
    table.map(|table| table.keys().map(str::to_owned).collect()).unwrap_or_default()
}

pub(super) struct ConfiguredAgent<'f> {
    pub(super) agent: Agent,
    /// The names of the fallback models, in order.
    pub(super) fallback_models: Vec<String>,
    /// In the order in which they are asked.
    pub(super) hooks: Vec<ConfiguredHook>,
    /// None: every tenant may use it.
    pub(super) tenants: Option<BTreeSet<Tenant>>,
    pub(super) location: Location<'f>,
}

/// In the order of the file.
pub(super) fn read<'f>(entry: Option<Entry<'f>>, catalog: &Catalog) -> Vec<ConfiguredAgent<'f>> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [agents.NAME]")) else { return Vec::new() };
    let mut agents = Vec::new();
    for (name, entry) in table.into_entries() {
        if !is_name(name) {
            entry.location.fault(format!(
                "this is no name for an agent; use letters, digits, _ and -, at most {NAME_BYTES_MAX} of them"
            ));
        }
        let table = entry.table("a table [agents.NAME]");
        agents.extend(table.and_then(|table| read_agent(name, table, catalog)));
    }
    agents
}

fn read_agent<'f>(name: &str, mut table: Table<'f>, catalog: &Catalog) -> Option<ConfiguredAgent<'f>> {
    let location = table.location.clone();
    let models = read_models(&mut table, catalog);
    let tenants = table.take("tenants").map(|entry| tenancy::read(&entry));
    let instructions = table.take("instructions").map_or(Some(""), |entry| entry.text("a text"));
    let tools = table.take("tools").map_or_else(Tools::default, |entry| Tools::read(&entry, catalog));
    let stop = match table.take("stop") {
        Some(entry) => stop::read(&entry),
        None => vec![StopCondition::MaxRounds { rounds: ROUNDS_DEFAULT }],
    };
    let rules = table.take("rules").map_or_else(Vec::new, |entry| rules::read(&entry, &tools));
    let hooks = table.take("hooks").map_or_else(Vec::new, |entry| hooks::read(&entry, name));
    let policy = table.take("policy").map(|entry| policy::read(&entry)).unwrap_or_default();
    let output_schema = table.take("output_schema").map(|entry| schema::read(&entry));
    let trim = table.take("trim").map_or(Some(Trim::default()), |entry| trim::read(&entry));
    table.finish();
    let mut models = models?.into_iter();
    let (model_name, first) = models.next()?;
    let then: Vec<NamedModel> = models.collect();
    let fallback_models = then.iter().map(|(name, _)| name.clone()).collect();
    let mut limits = Limits::default();
    let model = if then.is_empty() {
        first
    } else {
        let fallback = FallbackModel::new(limits.model_try_count_max, (model_name.clone(), first), then);
        limits.model_try_count_max = fallback.try_count();
        Arc::new(fallback)
    };
    let agent = Agent {
        name: AgentName::from(name),
        instructions: instructions?.to_owned(),
        model,
        model_name,
        other_models: catalog
            .models
            .iter()
            .filter_map(|(name, model)| Some((name.clone(), model.as_ref()?.model.clone())))
            .collect(),
        tools: tools.usable,
        reserved: catalog.tools.keys().map(|name| ToolName::from(name.as_str())).collect(),
        plugins: hooks.iter().map(|hook| Arc::clone(&hook.plugin) as Arc<dyn Plugin>).collect(),
        policy,
        rules,
        stop,
        limits,
        // An invalid schema must not turn into "no schema".
        output_schema: match output_schema {
            Some(schema) => Some(Arc::new(schema?)),
            None => None,
        },
        trim: trim?,
    };
    // An invalid list must not turn into "every tenant".
    let tenants = match tenants {
        Some(tenants) => Some(tenants?),
        None => None,
    };
    Some(ConfiguredAgent { agent, fallback_models, hooks, tenants, location })
}

/// With more models, a run would keep trying for longer than any caller waits.
const MODELS_MAX: usize = 8;

/// `model`, or `models` in the order in which they are tried.
fn read_models(table: &mut Table<'_>, catalog: &Catalog) -> Option<Vec<NamedModel>> {
    let list = match (table.take("model"), table.take("models")) {
        (None, None) => {
            return table
                .location
                .missing("model")
                .refuse("it is missing; write the name of a [models.NAME] table");
        }
        (Some(one), None) => return Some(vec![named_model(&one, catalog)?]),
        (Some(one), Some(_)) => return one.location.refuse("`models` is also set; keep one of them"),
        (None, Some(list)) => list,
    };
    let items = list.items("a list of names of [models.NAME] tables")?;
    if items.is_empty() || items.len() > MODELS_MAX {
        return list.location.refuse(format!("there are {} names; write 1 to {MODELS_MAX}", items.len()));
    }
    let mut models: Vec<NamedModel> = Vec::new();
    let mut all_right = true;
    for item in items {
        match named_model(&item, catalog) {
            Some((name, _)) if models.iter().any(|(known, _)| *known == name) => {
                item.location.fault(format!("{name:?} is listed twice; remove one"));
                all_right = false;
            }
            Some(model) => models.push(model),
            None => all_right = false,
        }
    }
    all_right.then_some(models)
}

fn named_model(entry: &Entry<'_>, catalog: &Catalog) -> Option<NamedModel> {
    let name = entry.text("the name of a [models.NAME] table")?;
    match catalog.models.get(name) {
        Some(model) => model.clone().map(|model| (name.to_owned(), model.model)),
        None => {
            let known: Vec<&str> = catalog.models.keys().map(String::as_str).collect();
            entry.location.refuse(match known.as_slice() {
                [] => format!("there is no model {name:?}; add a table [models.{name}]"),
                _ => format!("there is no model {name:?}; use one of {}, or add a table", known.join(", ")),
            })
        }
    }
}

#[derive(Default)]
pub(super) struct Tools {
    usable: Vec<Arc<dyn Tool>>,
    /// As written in the file, including those that cannot be used.
    names: Vec<String>,
}

impl Tools {
    fn read(entry: &Entry<'_>, catalog: &Catalog) -> Self {
        let mut tools = Self::default();
        for item in entry.items("a list of the names of tools").unwrap_or_default() {
            let Some(name) = item.text("the name of a tool") else { continue };
            if tools.names.iter().any(|other| other == name) {
                item.location.fault(format!("{name:?} is listed twice; remove one"));
                continue;
            }
            tools.names.push(name.to_owned());
            if let Some((server, _)) = name.split_once('.') {
                if !catalog.servers.contains(server) {
                    item.location.fault(format!("there is no table [mcp.{server}]; remove {name:?}"));
                }
                continue;
            }
            match catalog.tools.get(name) {
                Some(tool) => tools.usable.extend(tool.as_ref().map(|named| named.tool.clone())),
                None => {
                    item.location.fault(format!("there is no tool {name:?}; {}", catalog.next_step(name)))
                }
            }
        }
        tools
    }

    /// Whether a rule may name this tool.
    pub(super) fn include(&self, tool: &str) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(server) if server.ends_with('.') => tool.starts_with(server),
            Some(_) | None => name == tool,
        })
    }

    /// None if the file has no usable definition of the tool.
    pub(super) fn definition(&self, tool: &str) -> Option<&ToolDefinition> {
        let definitions = self.usable.iter().map(|tool| tool.definition().as_ref());
        definitions.into_iter().find(|definition| definition.name.as_str() == tool)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

impl Catalog {
    fn next_step(&self, name: &str) -> String {
        let known: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        match known.as_slice() {
            [] => format!("add a table [tools.{name}]"),
            _ => format!("use one of {}, or add a table", known.join(", ")),
        }
    }
}
