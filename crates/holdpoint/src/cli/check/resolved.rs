//! The configuration as understood, with every default filled in.

use std::fmt::Write;
use std::time::Duration;

use engine::agent::{Agent, ArgumentTest, Condition, Rule, StopCondition, Trim};
use engine::store::Tenant;
use engine::tool::ToolDefinition;
use holdpoint_http::WebOrigin;
use machine::id::AgentName;
use serde_json::{Map, Value, json};

use crate::cli::config::{
    AuditSettings, AuditSink, Auth, Configuration, ConfiguredHook, PHASES, Server, SinkTarget,
};

pub(super) fn as_json(file: &str, configuration: &Configuration) -> Value {
    let Configuration { server, store, auth, audit, agents, .. } = configuration;
    json!({
        "file": file,
        "server": server_as_json(server),
        "store": store.to_string(),
        "auth": auth.as_ref().map(auth_as_json),
        "audit": audit_as_json(audit),
        "agents": agents.iter().map(|agent| agent_as_json(agent, configuration)).collect::<Vec<_>>(),
    })
}

fn server_as_json(server: &Server) -> Value {
    let Server {
        listen,
        running_runs_max,
        connections_per_address_max,
        public_url,
        allow_origins,
        drain,
        callback_secrets,
    } = server;
    json!({
        "listen": listen.to_string(),
        "max_running_runs": running_runs_max,
        "max_connections_per_address": connections_per_address_max.unwrap_or(0),
        "public_url": public_url.clone().unwrap_or_else(|| format!("http://{listen}")),
        "allow_origins": allow_origins.iter().map(WebOrigin::as_str).collect::<Vec<_>>(),
        "drain": duration(*drain),
        "callback_key": if callback_secrets.is_some() { "secret" } else { "store" },
    })
}

fn auth_as_json(auth: &Auth) -> Value {
    let keys = auth.keys.iter().map(|key| {
        let roles: Vec<&str> = key.roles.iter().map(|role| role.as_str()).collect();
        json!({
            "name": key.name.as_str(),
            "tenant": key.tenant.as_str(),
            "roles": roles,
            "agents": key.agents,
            "acts_for": key.acts_for,
            "fingerprint": fingerprint(&key.sha256),
        })
    });
    json!({"keys": keys.collect::<Vec<_>>()})
}

fn audit_as_json(audit: &AuditSettings) -> Value {
    let AuditSettings { retention, signing_key, sink } = audit;
    json!({
        "retention": retention.map(duration),
        "public_key": signing_key.as_ref().map(|key| key.public().to_string()),
        "sink": sink.as_ref().map(|AuditSink { target, required }| match target {
            SinkTarget::File(path) => json!({"file": path.display().to_string(), "required": required}),
            SinkTarget::Http { url, .. } => json!({"url": url, "required": required}),
        }),
    })
}

/// None if every setting is the default.
fn audit_as_text(audit: &AuditSettings) -> Option<String> {
    let AuditSettings { retention, signing_key, sink } = audit;
    let kept = retention.map(|retention| format!("kept for {}", duration(retention)));
    let signed = signing_key.as_ref().map(|key| format!("heads signed with {}", key.public()));
    let sent = sink.as_ref().map(|AuditSink { target, required }| {
        let target = match target {
            SinkTarget::File(path) => path.display().to_string(),
            SinkTarget::Http { url, .. } => url.clone(),
        };
        format!("sent to {target}{}", if *required { ", and no decision without it" } else { "" })
    });
    let parts: Vec<String> = [kept, signed, sent].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Enough to distinguish keys, and too little to search for the token.
fn fingerprint(sha256: &[u8; 32]) -> String {
    sha256.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn agent_as_json(agent: &Agent, configuration: &Configuration) -> Value {
    let tools = agent.tools.iter().map(|tool| tool_as_json(tool.definition(), configuration));
    let rules = agent.rules.iter().map(|rule| {
        let when: Vec<Value> = rule.when.iter().map(condition_as_json).collect();
        json!({"tool": rule.tool.as_str(), "when": when, "then": rule.then})
    });
    let mut model = json!({"name": agent.model_name, "provider": provider(&agent.model_name, configuration)});
    let then: Vec<Value> = fallback_models(agent, configuration)
        .iter()
        .map(|name| json!({"name": name, "provider": provider(name, configuration)}))
        .collect();
    if !then.is_empty() {
        model["then"] = json!(then);
    }
    let hooks = hooks(agent, configuration).iter().map(|hook| {
        let phases: Vec<&str> = phase_names(hook).collect();
        json!({"name": hook.name.as_str(), "url": hook.url, "phases": phases, "timeout": duration(hook.timeout)})
    });
    json!({
        "name": agent.name.as_str(),
        "model": model,
        "tenants": tenants(agent, configuration),
        "instructions": agent.instructions,
        "tools": tools.collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
        "hooks": hooks.collect::<Vec<_>>(),
        "stop": agent.stop,
        "policy": agent.policy,
        "output_schema": agent.output_schema,
        "trim": trim_as_json(&agent.trim),
    })
}

/// None if every tenant may use the agent.
fn tenants<'a>(agent: &Agent, configuration: &'a Configuration) -> Option<Vec<&'a str>> {
    let tenants = configuration.tenants.get(&agent.name)?;
    Some(tenants.iter().map(Tenant::as_str).collect())
}

/// With the key names of the file.
fn trim_as_json(trim: &Trim) -> Option<Value> {
    let Trim { messages_max, chars_max } = trim;
    (!trim.is_unlimited()).then(|| json!({"max_messages": messages_max, "max_chars": chars_max}))
}

fn provider(model: &str, configuration: &Configuration) -> &'static str {
    configuration.providers.get(model).map_or("unknown", |provider| provider.as_str())
}

fn fallback_models<'a>(agent: &Agent, configuration: &'a Configuration) -> &'a [String] {
    configuration.fallback_models.get(&agent.name).map_or(&[], Vec::as_slice)
}

fn hooks<'a>(agent: &Agent, configuration: &'a Configuration) -> &'a [ConfiguredHook] {
    configuration.hooks.get(&agent.name).map_or(&[], Vec::as_slice)
}

/// In the order of the phases.
fn phase_names(hook: &ConfiguredHook) -> impl Iterator<Item = &'static str> {
    PHASES.iter().filter(|(_, phase)| hook.phases.has(*phase)).map(|(name, _)| *name)
}

fn kind(tool: &ToolDefinition, configuration: &Configuration) -> &'static str {
    configuration.tool_kinds.get(&tool.name).map_or("unknown", |kind| kind.as_str())
}

fn tool_as_json(tool: &ToolDefinition, configuration: &Configuration) -> Value {
    json!({
        "name": tool.name.as_str(),
        "kind": kind(tool, configuration),
        "description": tool.description,
        "parameters": *tool.parameters,
        "effect": tool.effect,
        "approval": tool.approval,
        "expires": tool.expires_in.map(duration),
        "on_expiry": tool.on_expiry,
        "timeout": duration(tool.timeout),
    })
}

fn condition_as_json(condition: &Condition) -> Value {
    json!({"path": condition.path.join("."), "test": test_as_json(&condition.test)})
}

/// In the notation of the file, where every test has a value.
fn test_as_json(test: &ArgumentTest) -> Value {
    match test {
        ArgumentTest::Present => json!({"present": true}),
        ArgumentTest::Absent => json!({"absent": true}),
        ArgumentTest::Eq(_)
        | ArgumentTest::Ne(_)
        | ArgumentTest::Lt(_)
        | ArgumentTest::Lte(_)
        | ArgumentTest::Gt(_)
        | ArgumentTest::Gte(_)
        | ArgumentTest::In(_)
        | ArgumentTest::Matches(_) => json!(test),
    }
}

/// In the largest unit that divides it evenly, as the file writes it.
fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if milliseconds > 0 && milliseconds.is_multiple_of(size) {
            return format!("{}{unit}", milliseconds / size);
        }
    }
    format!("{milliseconds}ms")
}

pub(super) fn as_text(file: &str, configuration: &Configuration) -> String {
    let Configuration { server, store, auth, audit, agents, .. } = configuration;
    let Server { listen, running_runs_max, public_url, allow_origins, drain, .. } = server;
    let mut text = format!("{file}: OK\n");
    let _ = writeln!(
        text,
        "server: {listen}, known as {}, at most {running_runs_max} running runs, drains for {}",
        public_url.clone().unwrap_or_else(|| format!("http://{listen}")),
        duration(*drain)
    );
    if !allow_origins.is_empty() {
        let origins: Vec<&str> = allow_origins.iter().map(WebOrigin::as_str).collect();
        let _ = writeln!(text, "web pages of other origins: {}", origins.join(", "));
    }
    let _ = writeln!(text, "store: {store}");
    match auth {
        None => text.push_str("auth: none (reachable from this machine only)\n"),
        Some(auth) => {
            text.push_str("auth:\n");
            for key in &auth.keys {
                let roles: Vec<&str> = key.roles.iter().map(|role| role.as_str()).collect();
                let (name, tenant, mark) = (&key.name, &key.tenant, fingerprint(&key.sha256));
                let agents = key.agents.as_ref().map(|agents| {
                    let agents: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
                    format!(", agents {}", agents.join(" "))
                });
                let (roles, agents) = (roles.join(", "), agents.unwrap_or_default());
                let acts = if key.acts_for { ", acts for others" } else { "" };
                let _ =
                    writeln!(text, "  {name}: tenant {tenant}, may {roles}{agents}{acts}, sha256 {mark}…");
            }
        }
    }
    if let Some(audit) = audit_as_text(audit) {
        let _ = writeln!(text, "audit record: {audit}");
    }
    for agent in agents {
        agent_as_text(&mut text, agent, configuration);
    }
    if agents.is_empty() {
        text.push_str("There is no agent.\n");
    }
    text
}

fn agent_as_text(text: &mut String, agent: &Agent, configuration: &Configuration) {
    let _ = writeln!(text, "\nagent {}", agent.name);
    let _ = write!(text, "  model: {} ({})", agent.model_name, provider(&agent.model_name, configuration));
    for name in fallback_models(agent, configuration) {
        let _ = write!(text, ", then {name} ({})", provider(name, configuration));
    }
    text.push('\n');
    if let Some(tenants) = tenants(agent, configuration) {
        let _ = writeln!(text, "  tenants: {}", tenants.join(", "));
    }
    let _ = writeln!(text, "  instructions: {:?}", agent.instructions);
    let _ = writeln!(text, "  tools:{}", if agent.tools.is_empty() { " none" } else { "" });
    for tool in agent.tools.iter().map(|tool| tool.definition()) {
        let (name, kind) = (&tool.name, kind(tool, configuration));
        let (effect, approval) = (value_text(&json!(tool.effect)), value_text(&json!(tool.approval)));
        let _ = write!(text, "    {name}: {kind}, effect {effect}, approval {approval}");
        if let Some(expires_in) = tool.expires_in {
            let _ =
                write!(text, ", expires {} ({})", duration(expires_in), value_text(&json!(tool.on_expiry)));
        }
        let _ = writeln!(text, ", timeout {}", duration(tool.timeout));
    }
    let _ = writeln!(text, "  rules:{}", if agent.rules.is_empty() { " none" } else { "" });
    for (index, rule) in agent.rules.iter().enumerate() {
        let _ = writeln!(text, "    {index}: {}", describe_rule(rule));
    }
    hooks_as_text(text, hooks(agent, configuration));
    let stop: Vec<String> = agent.stop.iter().map(describe_stop).collect();
    let _ = writeln!(text, "  stop: {}", if stop.is_empty() { "never".to_owned() } else { stop.join(", ") });
    let policy: Vec<String> =
        fields(&json!(agent.policy)).into_iter().map(|(key, value)| format!("{key} {value}")).collect();
    let _ = writeln!(text, "  policy: {}", policy.join(", "));
    if let Some(schema) = &agent.output_schema {
        let _ = writeln!(text, "  output: JSON that fits {schema}");
    }
    if let Some(trim) = trim_as_json(&agent.trim) {
        let trim: Vec<String> =
            fields(&trim).into_iter().map(|(key, value)| format!("{key} {value}")).collect();
        let _ = writeln!(text, "  trim: {}", trim.join(", "));
    }
}

/// The hooks, and for each phase the order in which they are asked.
fn hooks_as_text(text: &mut String, hooks: &[ConfiguredHook]) {
    if hooks.is_empty() {
        return;
    }
    text.push_str("  hooks:\n");
    for hook in hooks {
        let _ = writeln!(text, "    {}: {}, timeout {}", hook.name, hook.url, duration(hook.timeout));
    }
    for (name, phase) in PHASES {
        let asked = hooks.iter().filter(|hook| hook.phases.has(phase)).map(|hook| hook.name.as_str());
        let asked: Vec<&str> = asked.collect();
        if !asked.is_empty() {
            let _ = writeln!(text, "    {name} asks {}", asked.join(", then "));
        }
    }
}

fn describe_rule(rule: &Rule) -> String {
    let condition = |condition: &Condition| {
        let test = fields(&test_as_json(&condition.test));
        let test: Vec<String> = test.into_iter().map(|(key, value)| format!("{key} {value}")).collect();
        format!("{} {}", condition.path.join("."), test.join(" "))
    };
    let when: Vec<String> = rule.when.iter().map(condition).collect();
    let when = if when.is_empty() { "always".to_owned() } else { format!("when {}", when.join(" and ")) };
    format!("{} {when}: {}", rule.tool, value_text(&json!(rule.then)))
}

fn describe_stop(condition: &StopCondition) -> String {
    let value = json!(condition);
    let kind = value.get("type").map(value_text).unwrap_or_default();
    let rest = fields(&value).into_iter().filter(|(key, _)| key != "type").map(|(_, value)| value);
    format!("{kind} {}", rest.collect::<Vec<_>>().join(" "))
}

fn fields(value: &Value) -> Vec<(String, String)> {
    let none = Map::new();
    let fields = value.as_object().unwrap_or(&none);
    fields.iter().map(|(key, value)| (key.clone(), value_text(value))).collect()
}

/// Null means that the setting was not set.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "unset".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
