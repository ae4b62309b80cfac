//! `[models.NAME]`: the models, under the names by which agents refer to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::model::Model;
use models::providers::{self, ApiKey, BadSettings, ProviderSettings, RemoteModel, Timeouts};
use models::scripted::{Script, ScriptedModel};
use serde_json::{Map, Value};

use super::amounts::{KEY_IN_CLEAR, is_sent_in_clear};
use super::table::{Entry, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Provider {
    Scripted,
    OpenAi,
    OpenAiCompatible,
    Anthropic,
    Gemini,
    Ollama,
}

impl Provider {
    const ALL: [(&'static str, Self); 6] = [
        ("openai", Self::OpenAi),
        ("openai_compatible", Self::OpenAiCompatible),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("ollama", Self::Ollama),
        ("scripted", Self::Scripted),
    ];

    pub(in crate::cli) const fn as_str(self) -> &'static str {
        match self {
            Self::Scripted => "scripted",
            Self::OpenAi => "openai",
            Self::OpenAiCompatible => "openai_compatible",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }
}

#[derive(Clone)]
pub(super) struct ConfiguredModel {
    pub(super) provider: Provider,
    pub(super) model: Arc<dyn Model>,
}

/// An invalid model is None, so that an agent that names it is not reported as well.
pub(super) fn read(entry: Option<Entry<'_>>) -> BTreeMap<String, Option<ConfiguredModel>> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [models.NAME]")) else {
        return BTreeMap::new();
    };
    table
        .into_entries()
        .into_iter()
        .map(|(name, entry)| (name.to_owned(), entry.table("a table [models.NAME]").and_then(read_model)))
        .collect()
}

fn read_model(mut table: Table<'_>) -> Option<ConfiguredModel> {
    let entry = table.require("provider", "who provides the model, such as openai")?;
    let provider = entry.choice(&Provider::ALL)?;
    let remote = match provider {
        Provider::Scripted => {
            let script = table.require("script", "the path of a script");
            table.finish();
            let script = read_script(&script?)?;
            return Some(ConfiguredModel { provider, model: Arc::new(ScriptedModel::new(script)) });
        }
        Provider::OpenAi => providers::Provider::OpenAi,
        Provider::OpenAiCompatible => providers::Provider::OpenAiCompatible,
        Provider::Anthropic => providers::Provider::Anthropic,
        Provider::Gemini => providers::Provider::Gemini,
        Provider::Ollama => providers::Provider::Ollama,
    };
    Some(ConfiguredModel { provider, model: Arc::new(read_remote(table, remote)?) })
}

/// A fault in the script is reported with the script's path and the position in it.
fn read_script(entry: &Entry<'_>) -> Option<Script> {
    let path = entry.nonempty("the path of a script")?;
    let text = entry.location.read_text(path)?;
    match Script::from_json(&text) {
        Ok(script) => Some(script),
        Err(error) => entry.location.refuse(format!("{path}: {error}")),
    }
}

/// The settings that all remote models share.
fn read_remote(mut table: Table<'_>, provider: providers::Provider) -> Option<RemoteModel> {
    let location = table.location.clone();
    let model = table
        .require("model", "the provider's name of the model")
        .and_then(|entry| entry.nonempty("the provider's name of the model"));
    let base_url = if provider.base_url().is_none() {
        table.require("base_url", "the address of the API, such as http://…/v1")
    } else {
        table.take("base_url")
    };
    let address = base_url.as_ref().map(Entry::http_url);
    let key = table.take("api_key_env").map(|entry| {
        if address.flatten().is_some_and(is_sent_in_clear) {
            entry.location.warn(KEY_IN_CLEAR);
        }
        read_key(&entry)
    });
    let mut timeouts = Timeouts::default();
    for (name, time) in [
        ("connect_timeout", &mut timeouts.connect),
        ("first_byte_timeout", &mut timeouts.first_byte),
        ("idle_timeout", &mut timeouts.idle),
    ] {
        if let Some(said) = table.take(name).and_then(|entry| entry.nonzero_duration()) {
            *time = said;
        }
    }
    let params = table.take("params").map_or_else(|| Some(Map::new()), |entry| read_params(&entry));
    table.finish();
    let settings = ProviderSettings {
        provider,
        model: model?.to_owned(),
        base_url: match address {
            Some(address) => Some(address?.to_owned()),
            None => None,
        },
        key: key.flatten(),
        timeouts,
        params: params?,
    };
    match RemoteModel::new(settings) {
        Ok(model) => Some(model),
        Err(why @ BadSettings::BadAddress) => {
            base_url.map_or_else(|| location.missing("model"), |entry| entry.location).refuse(why.to_string())
        }
        // A missing address has already been reported.
        Err(BadSettings::NoBaseUrl) => None,
        // The file is correct: another machine may have CA certificates.
        Err(why @ BadSettings::NoTrustedRoots) => {
            location.unset(why.to_string());
            None
        }
    }
}

/// Read at each start and each reload. A server does not start without the key, but `holdpoint check` accepts the file.
fn read_key(entry: &Entry<'_>) -> Option<ApiKey> {
    let variable = entry.variable_name()?;
    let key = std::env::var(variable).ok();
    let found = key.as_deref().and_then(ApiKey::new);
    if found.is_none() {
        let how = if key.is_some() { "holds no key" } else { "is not set" };
        entry
            .location
            .unset(format!("the environment variable {variable} {how}; set it to the provider's key"));
    }
    found
}

fn read_params(entry: &Entry<'_>) -> Option<Map<String, Value>> {
    // Require a table first, so that the fault for a string says what to write.
    entry.table("a table of what the provider takes, such as { temperature = 0.2 }")?;
    match entry.json()? {
        Value::Object(params) => Some(params),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}
