//! `[tools.NAME]`: the tools, and when their calls need approval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::BoxFuture;
use engine::tool::{
    Approval, DeclaredTool, EffectClass, OnExpiry, Outcome, Performer, Tool, ToolDefinition, ToolRequest,
};
use tools::builtin::{self, BuiltinError};
use tools::http::HttpTool;

use super::amounts::{NAME_BYTES_MAX, is_name};
use super::http_settings;
use super::schema::{self, PARAMETERS};
use super::table::{Entry, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum ToolKind {
    Http,
    Client,
    External,
    Agent,
    Builtin,
}

impl ToolKind {
    const ALL: [(&'static str, Self); 5] = [
        ("http", Self::Http),
        ("client", Self::Client),
        ("external", Self::External),
        ("agent", Self::Agent),
        ("builtin", Self::Builtin),
    ];

    pub(in crate::cli) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Client => "client",
            Self::External => "external",
            Self::Agent => "agent",
            Self::Builtin => "builtin",
        }
    }
}

#[derive(Clone)]
pub(super) struct ConfiguredTool {
    pub(super) kind: ToolKind,
    pub(super) tool: Arc<dyn Tool>,
}

/// An invalid tool is None, so that an agent that names it is not reported as well. `agents` are those that a tool may
/// delegate to.
pub(super) fn read(
    entry: Option<Entry<'_>>,
    agents: &BTreeSet<String>,
) -> BTreeMap<String, Option<ConfiguredTool>> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [tools.NAME]")) else {
        return BTreeMap::new();
    };
    table
        .into_entries()
        .into_iter()
        .map(|(name, entry)| {
            if !is_name(name) {
                entry.location.fault(format!(
                    "this is no name for a tool; use letters, digits, _ and -, at most {NAME_BYTES_MAX} of them"
                ));
            }
            let tool = entry.table("a table [tools.NAME]").and_then(|table| read_tool(name, table, agents));
            (name.to_owned(), tool)
        })
        .collect()
}

fn read_tool(name: &str, mut table: Table<'_>, agents: &BTreeSet<String>) -> Option<ConfiguredTool> {
    let entry = table.require("kind", "one of http, client, external, agent, builtin")?;
    let kind = entry.choice(&ToolKind::ALL)?;
    let tool = match kind {
        ToolKind::Http => read_http(name, table),
        ToolKind::Client => read_declared(name, table, Performer::Client),
        ToolKind::External => read_declared(name, table, Performer::External),
        ToolKind::Agent => read_delegating(name, table, agents),
        ToolKind::Builtin => read_builtin(name, &entry, table),
    };
    Some(ConfiguredTool { kind, tool: tool? })
}

/// A tool that is performed elsewhere.
fn read_declared(name: &str, mut table: Table<'_>, performer: Performer) -> Option<Arc<dyn Tool>> {
    let definition = read_definition(name, &mut table).map(|definition| definition.performed_by(performer));
    let approval_settings = ApprovalSettings::read(&mut table);
    table.finish();
    Some(Arc::new(DeclaredTool::new(approval_settings.apply(definition?))))
}

/// A tool that is called over HTTP. Its address and its timeout are not part of its definition.
fn read_http(name: &str, mut table: Table<'_>) -> Option<Arc<dyn Tool>> {
    let location = table.location.clone();
    let url = http_settings::read_url(&mut table, None);
    let definition = read_definition(name, &mut table);
    let approval_settings = ApprovalSettings::read(&mut table);
    let timeout = table.take("timeout").and_then(|entry| entry.nonzero_duration());
    let settings = http_settings::read(&mut table, url, "the tool's token");
    table.finish();
    let mut definition = approval_settings.apply(definition?);
    definition.timeout = timeout.unwrap_or(definition.timeout);
    let settings = settings?;
    match HttpTool::new(definition, &settings) {
        Ok(tool) => Some(Arc::new(tool)),
        Err(error) => location.refuse(error.to_string()),
    }
}

/// A tool whose calls are runs of another agent. The child reads the argument `message`.
fn read_delegating(name: &str, mut table: Table<'_>, agents: &BTreeSet<String>) -> Option<Arc<dyn Tool>> {
    let agent = table.require("agent", "the name of an [agents.NAME] table").and_then(|entry| {
        let agent = entry.nonempty("the name of an [agents.NAME] table")?;
        if agents.contains(agent) {
            return Some(agent.to_owned());
        }
        entry.location.refuse(format!("there is no agent {agent:?}; add a table [agents.{agent}]"))
    });
    let description = table.take("description").map_or(Some(""), |entry| entry.text(DESCRIPTION));
    let effect = table.take("effect").map_or(Some(EffectClass::Write), |entry| entry.choice(&EFFECTS));
    let approval_settings = ApprovalSettings::read(&mut table);
    let budget_tokens_max = table.take("max_tokens").and_then(|entry| entry.integer(1, u64::MAX >> 1));
    table.finish();
    let agent = agent?;
    let declared = DeclaredTool::agent(&agent, description?);
    let parameters = declared.definition().parameters.as_ref().clone();
    let definition = ToolDefinition::new(name, description?).parameters(parameters);
    let definition = with_effect(definition, effect?)
        .performed_by(Performer::Agent { agent: agent.as_str().into(), budget_tokens_max });
    Some(Arc::new(DeclaredTool::new(approval_settings.apply(definition))))
}

/// Name, description, parameters and effect class, with the default approval of that class.
fn read_definition(name: &str, table: &mut Table<'_>) -> Option<ToolDefinition> {
    let description = table.take("description").map_or(Some(""), |entry| entry.text(DESCRIPTION));
    let parameters = table.require("parameters", PARAMETERS).and_then(|entry| schema::read(&entry));
    let effect = table.take("effect").map_or(Some(EffectClass::Write), |entry| entry.choice(&EFFECTS));
    Some(with_effect(ToolDefinition::new(name, description?).parameters(parameters?), effect?))
}

fn with_effect(definition: ToolDefinition, effect: EffectClass) -> ToolDefinition {
    match effect {
        EffectClass::Read => definition.read(),
        EffectClass::Idempotent => definition.idempotent(),
        EffectClass::Write => definition,
    }
}

const DESCRIPTION: &str = "what the tool does, for the model and for the approver";
pub(super) const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("idempotent", EffectClass::Idempotent), ("write", EffectClass::Write)];
const APPROVALS: [(&str, Approval); 3] =
    [("never", Approval::Never), ("ask", Approval::Ask), ("block", Approval::Block)];
const EXPIRIES: [(&str, OnExpiry); 2] = [("deny", OnExpiry::Deny), ("end_run", OnExpiry::EndRun)];

/// The approval settings of a table. None leaves the tool's own setting unchanged.
pub(super) struct ApprovalSettings {
    approval: Option<Approval>,
    expires_in: Option<std::time::Duration>,
    on_expiry: Option<OnExpiry>,
}

impl ApprovalSettings {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        Self {
            approval: table.take("approval").and_then(|entry| entry.choice(&APPROVALS)),
            expires_in: table.take("expires").and_then(|entry| entry.nonzero_duration()),
            on_expiry: table.take("on_expiry").and_then(|entry| entry.choice(&EXPIRIES)),
        }
    }

    fn apply(self, definition: ToolDefinition) -> ToolDefinition {
        ToolDefinition {
            approval: self.approval.unwrap_or(definition.approval),
            expires_in: self.expires_in.or(definition.expires_in),
            on_expiry: self.on_expiry.unwrap_or(definition.on_expiry),
            ..definition
        }
    }
}

fn read_builtin(name: &str, kind: &Entry<'_>, mut table: Table<'_>) -> Option<Arc<dyn Tool>> {
    let folder = table.take("folder");
    let options = builtin::Options { folder: folder.as_ref().and_then(Entry::path) };
    let found = match builtin::builtin(name, &options) {
        Ok(tool) => Some(tool),
        Err(error @ BuiltinError::UnknownName { .. }) => kind.location.refuse(error.to_string()),
        // An invalid folder must not be reported as missing too.
        Err(BuiltinError::FolderMissing { .. }) if folder.is_some() => None,
        Err(error @ BuiltinError::FolderMissing { .. }) => {
            table.location.missing("folder").refuse(error.to_string())
        }
    };
    if let (Some(folder), Some(_)) = (&folder, &found)
        && builtin::builtin(name, &builtin::Options::default()).is_ok()
    {
        folder.location.fault(format!("the builtin tool {name} uses no folder; remove it"));
    }
    if let (Some(folder), Some(path)) = (&folder, &options.folder) {
        folder.location.writes_to(path.clone());
    }
    for fixed in ["parameters", "effect"] {
        if let Some(entry) = table.take(fixed) {
            entry.location.fault("it is built in and cannot be changed; remove it");
        }
    }
    let description = table.take("description").and_then(|entry| entry.text(DESCRIPTION));
    let approval_settings = ApprovalSettings::read(&mut table);
    let timeout = table.take("timeout").and_then(|entry| entry.nonzero_duration());
    table.finish();
    let tool = found?;
    let mut definition = approval_settings.apply(tool.definition().as_ref().clone());
    definition.timeout = timeout.unwrap_or(definition.timeout);
    definition.description = description.map_or(definition.description, str::to_owned);
    Some(Arc::new(RedefinedTool { definition: Arc::new(definition), tool }))
}

/// A tool whose definition the file has changed.
struct RedefinedTool {
    definition: Arc<ToolDefinition>,
    tool: Arc<dyn Tool>,
}

impl Tool for RedefinedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        self.tool.call(request)
    }
}
