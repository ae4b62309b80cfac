//! `[tools.NAME]`: what acts, and when a person is asked first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::BoxFuture;
use engine::tool::{
    Approval, DeclaredTool, EffectClass, OnExpiry, Outcome, Performer, Tool, ToolDefinition, ToolRequest,
};
use tools::builtin::{self, BuiltinError};
use tools::http::{HttpSettings, HttpTool, RESPONSE_BYTES_MAX, SigningSecret};

use super::amounts::{KEY_IN_CLEAR, NAME_BYTES_MAX, is_name, is_readable_on_the_way};
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
pub(super) struct NamedTool {
    pub(super) kind: ToolKind,
    pub(super) tool: Arc<dyn Tool>,
}

/// A tool that was written down wrongly is none, so that whoever names it is not blamed for it. Agents are those to which
/// a tool may delegate.
pub(super) fn read(
    entry: Option<Entry<'_>>,
    agents: &BTreeSet<String>,
) -> BTreeMap<String, Option<NamedTool>> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [tools.NAME]")) else {
        return BTreeMap::new();
    };
    table
        .named()
        .into_iter()
        .map(|(name, entry)| {
            if !is_name(name) {
                entry.place.fault(format!(
                    "this is no name for a tool; use letters, digits, _ and -, at most {NAME_BYTES_MAX} of them"
                ));
            }
            let tool = entry.table("a table [tools.NAME]").and_then(|table| read_tool(name, table, agents));
            (name.to_owned(), tool)
        })
        .collect()
}

fn read_tool(name: &str, mut table: Table<'_>, agents: &BTreeSet<String>) -> Option<NamedTool> {
    let entry = table.needed("kind", "one of http, client, external, agent, builtin")?;
    let kind = entry.choice(&ToolKind::ALL)?;
    let tool = match kind {
        ToolKind::Http => http(name, table),
        ToolKind::Client => declared(name, table, Performer::Client),
        ToolKind::External => declared(name, table, Performer::External),
        ToolKind::Agent => delegating(name, table, agents),
        ToolKind::Builtin => built_in(name, &entry, table),
    };
    Some(NamedTool { kind, tool: tool? })
}

/// A tool that somebody else performs.
fn declared(name: &str, mut table: Table<'_>, performer: Performer) -> Option<Arc<dyn Tool>> {
    let definition = described(name, &mut table).map(|definition| definition.performed_by(performer));
    let asking = Asking::read(&mut table);
    table.finish();
    Some(Arc::new(DeclaredTool::new(asking.apply(definition?))))
}

/// A tool behind an address. Where it is and how long it may take is no part of its definition.
fn http(name: &str, mut table: Table<'_>) -> Option<Arc<dyn Tool>> {
    let place = table.place.clone();
    let url = table.needed("url", "the address that is called");
    let url = url.and_then(|entry| entry.http_url().map(str::to_owned));
    let sends_key_in_clear = url.as_deref().is_some_and(is_readable_on_the_way);
    let definition = described(name, &mut table);
    let asking = Asking::read(&mut table);
    let timeout = table.take("timeout").and_then(|entry| entry.some_time());
    let response_bytes_max = table.take("max_response").map(|entry| response_size(&entry));
    let bearer = table.take("bearer_env").and_then(|entry| {
        if sends_key_in_clear {
            entry.place.warn(KEY_IN_CLEAR);
        }
        secret(&entry, "the tool's token")
    });
    let signing_secret = table.take("signing_secret_env").and_then(|entry| signing_secret(&entry));
    let private_network = table.take("private_network").and_then(|entry| entry.boolean());
    table.finish();
    let mut definition = asking.apply(definition?);
    definition.timeout = timeout.unwrap_or(definition.timeout);
    let settings = HttpSettings {
        url: url?,
        bearer,
        signing_secret,
        response_bytes_max: response_bytes_max.unwrap_or(Some(RESPONSE_BYTES_MAX))?,
        private_network: private_network.unwrap_or(false),
    };
    match HttpTool::new(definition, &settings) {
        Ok(tool) => Some(Arc::new(tool)),
        Err(error) => place.refuse(error.to_string()),
    }
}

/// A result is stored, sent to watchers and read by models.
const RESPONSE_MIB_MAX: usize = 16;

fn response_size(entry: &Entry<'_>) -> Option<usize> {
    let bytes = usize::try_from(entry.size()?).ok().filter(|bytes| *bytes <= RESPONSE_MIB_MAX << 20);
    bytes.or_else(|| {
        entry
            .place
            .refuse(format!("this is more than a result may have; write at most {RESPONSE_MIB_MAX}MiB"))
    })
}

/// A secret is never written into the file.
fn secret(entry: &Entry<'_>, meaning: &str) -> Option<String> {
    let variable = entry.variable_name()?;
    let secret = std::env::var(variable).ok().filter(|secret| !secret.is_empty());
    if secret.is_none() {
        entry.place.unset(format!("the environment variable {variable} is not set; set it to {meaning}"));
    }
    secret
}

fn signing_secret(entry: &Entry<'_>) -> Option<SigningSecret> {
    let text = secret(entry, "a secret of Standard Webhooks, whsec_…")?;
    let read = SigningSecret::parse(&text);
    if read.is_none() {
        // The text may be another secret, so it is not repeated.
        entry.place.unset(
            "the environment variable holds no signing secret; set it to whsec_ and 24 to 64 random bytes in Base64",
        );
    }
    read
}

/// A tool whose calls are runs of another agent. It reads the argument `message`.
fn delegating(name: &str, mut table: Table<'_>, agents: &BTreeSet<String>) -> Option<Arc<dyn Tool>> {
    let agent = table.needed("agent", "the name of an [agents.NAME] table").and_then(|entry| {
        let agent = entry.nonempty("the name of an [agents.NAME] table")?;
        if agents.contains(agent) {
            return Some(agent.to_owned());
        }
        entry.place.refuse(format!("there is no agent {agent:?}; add a table [agents.{agent}]"))
    });
    let description = table.take("description").map_or(Some(""), |entry| entry.text(DESCRIPTION));
    let effect = table.take("effect").map_or(Some(EffectClass::Write), |entry| entry.choice(&EFFECTS));
    let asking = Asking::read(&mut table);
    let budget_tokens_max = table.take("max_tokens").and_then(|entry| entry.whole(1, u64::MAX >> 1));
    table.finish();
    let agent = agent?;
    let declared = DeclaredTool::agent(&agent, description?);
    let parameters = declared.definition().parameters.as_ref().clone();
    let definition = ToolDefinition::new(name, description?).parameters(parameters);
    let definition = of_effect(definition, effect?)
        .performed_by(Performer::Agent { agent: agent.as_str().into(), budget_tokens_max });
    Some(Arc::new(DeclaredTool::new(asking.apply(definition))))
}

/// Name, description, parameters and effect, with the approval that goes with the effect.
fn described(name: &str, table: &mut Table<'_>) -> Option<ToolDefinition> {
    let description = table.take("description").map_or(Some(""), |entry| entry.text(DESCRIPTION));
    let parameters = table.needed("parameters", PARAMETERS).and_then(|entry| schema::read(&entry));
    let effect = table.take("effect").map_or(Some(EffectClass::Write), |entry| entry.choice(&EFFECTS));
    Some(of_effect(ToolDefinition::new(name, description?).parameters(parameters?), effect?))
}

fn of_effect(definition: ToolDefinition, effect: EffectClass) -> ToolDefinition {
    match effect {
        EffectClass::Read => definition.read(),
        EffectClass::Idempotent => definition.idempotent(),
        EffectClass::Write => definition,
    }
}

const DESCRIPTION: &str = "what the tool does, for the model and for whoever approves";
pub(super) const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("idempotent", EffectClass::Idempotent), ("write", EffectClass::Write)];
const APPROVALS: [(&str, Approval); 3] =
    [("never", Approval::Never), ("ask", Approval::Ask), ("block", Approval::Block)];
const EXPIRIES: [(&str, OnExpiry); 2] = [("deny", OnExpiry::Deny), ("end_run", OnExpiry::EndRun)];

/// What a table may say about asking a person. What it does not say stays as it is.
pub(super) struct Asking {
    approval: Option<Approval>,
    expires_in: Option<std::time::Duration>,
    on_expiry: Option<OnExpiry>,
}

impl Asking {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        Self {
            approval: table.take("approval").and_then(|entry| entry.choice(&APPROVALS)),
            expires_in: table.take("expires").and_then(|entry| entry.some_time()),
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

fn built_in(name: &str, kind: &Entry<'_>, mut table: Table<'_>) -> Option<Arc<dyn Tool>> {
    let folder = table.take("folder");
    let options = builtin::Options { folder: folder.as_ref().and_then(Entry::path) };
    let found = match builtin::builtin(name, &options) {
        Ok(tool) => Some(tool),
        Err(error @ BuiltinError::UnknownName { .. }) => kind.place.refuse(error.to_string()),
        // A folder that was written down wrongly is not missing besides.
        Err(BuiltinError::FolderMissing { .. }) if folder.is_some() => None,
        Err(error @ BuiltinError::FolderMissing { .. }) => {
            table.place.missing("folder").refuse(error.to_string())
        }
    };
    if let (Some(folder), Some(_)) = (&folder, &found)
        && builtin::builtin(name, &builtin::Options::default()).is_ok()
    {
        folder.place.fault(format!("the builtin tool {name} uses no folder; remove it"));
    }
    if let (Some(folder), Some(path)) = (&folder, &options.folder) {
        folder.place.writes_to(path.clone());
    }
    for fixed in ["parameters", "effect"] {
        if let Some(entry) = table.take(fixed) {
            entry.place.fault("it is built in and cannot be changed; remove it");
        }
    }
    let description = table.take("description").and_then(|entry| entry.text(DESCRIPTION));
    let asking = Asking::read(&mut table);
    let timeout = table.take("timeout").and_then(|entry| entry.some_time());
    table.finish();
    let tool = found?;
    let mut definition = asking.apply(tool.definition().as_ref().clone());
    definition.timeout = timeout.unwrap_or(definition.timeout);
    definition.description = description.map_or(definition.description, str::to_owned);
    Some(Arc::new(Redefined { definition: Arc::new(definition), tool }))
}

/// A tool under a definition that the file has changed.
struct Redefined {
    definition: Arc<ToolDefinition>,
    tool: Arc<dyn Tool>,
}

impl Tool for Redefined {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        self.tool.call(request)
    }
}
