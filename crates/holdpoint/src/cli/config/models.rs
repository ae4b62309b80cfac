//! `[models.NAME]`: what answers, under the name by which agents know it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::model::Model;
use models::scripted::{Script, ScriptedModel};

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
pub(super) struct NamedModel {
    pub(super) provider: Provider,
    pub(super) model: Arc<dyn Model>,
}

/// A model that was written down wrongly is none, so that whoever names it is not blamed for it.
pub(super) fn read(entry: Option<Entry<'_>>) -> BTreeMap<String, Option<NamedModel>> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [models.NAME]")) else {
        return BTreeMap::new();
    };
    table
        .named()
        .into_iter()
        .map(|(name, entry)| (name.to_owned(), entry.table("a table [models.NAME]").and_then(read_model)))
        .collect()
}

fn read_model(mut table: Table<'_>) -> Option<NamedModel> {
    let entry = table.needed("provider", "who provides the model, such as scripted")?;
    let provider = entry.choice(&Provider::ALL)?;
    match provider {
        Provider::Scripted => {
            let script = table.needed("script", "the path of a script");
            table.finish();
            let script = read_script(&script?)?;
            Some(NamedModel { provider, model: Arc::new(ScriptedModel::new(script)) })
        }
        Provider::OpenAi
        | Provider::OpenAiCompatible
        | Provider::Anthropic
        | Provider::Gemini
        | Provider::Ollama => {
            entry.place.fault(format!(
                "the provider {} is not built yet; use scripted, or bring a model of your own as a library",
                provider.as_str()
            ));
            remote(table, provider);
            None
        }
    }
}

/// The path is the script's own; its mistakes are told with their place in it.
fn read_script(entry: &Entry<'_>) -> Option<Script> {
    let path = entry.nonempty("the path of a script")?;
    let text = entry.place.text_of(path)?;
    match Script::from_json(&text) {
        Ok(script) => Some(script),
        Err(error) => entry.place.refuse(format!("{path}: {error}")),
    }
}

/// What every model behind an address has.
fn remote(mut table: Table<'_>, provider: Provider) {
    if let Some(model) = table.needed("model", "the provider's name of the model") {
        model.nonempty("the provider's name of the model");
    }
    let base_url = match provider {
        Provider::OpenAiCompatible => table.needed("base_url", "the address of the API, such as http://…/v1"),
        Provider::OpenAi | Provider::Anthropic | Provider::Gemini | Provider::Ollama | Provider::Scripted => {
            table.take("base_url")
        }
    };
    if let Some(base_url) = base_url {
        base_url.http_url();
    }
    if let Some(variable) = table.take("api_key_env") {
        variable.nonempty("the name of an environment variable");
    }
    table.finish();
}
