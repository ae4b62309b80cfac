//! `[audit]`: how long audit records are kept, the key that signs heads, and where records are sent.

use std::path::PathBuf;
use std::time::Duration;

use super::table::Entry;
use crate::cli::audit::SigningKey;

/// Without this table records are kept for ever, heads are not signed, and records are sent nowhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cli) struct AuditSettings {
    pub(in crate::cli) retention: Option<Duration>,
    pub(in crate::cli) signing_key: Option<SigningKey>,
    pub(in crate::cli) sink: Option<AuditSink>,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct AuditSink {
    pub(in crate::cli) target: SinkTarget,
    /// While the sink does not work, nothing is decided.
    pub(in crate::cli) required: bool,
}

#[derive(Clone, PartialEq)]
pub(in crate::cli) enum SinkTarget {
    File(PathBuf),
    Http { url: String, token: Option<String> },
}

impl std::fmt::Debug for SinkTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Http { .. } => f.debug_struct("Http").finish_non_exhaustive(),
        }
    }
}

pub(super) fn read(entry: Option<Entry<'_>>) -> AuditSettings {
    let Some(mut table) = entry.and_then(|entry| entry.table("a table [audit]")) else {
        return AuditSettings::default();
    };
    let audit = AuditSettings {
        retention: table.take("retention").and_then(|entry| entry.nonzero_duration()),
        signing_key: table.take("signing_key_env").and_then(|entry| signing_key(&entry)),
        sink: table.take("sink").and_then(|entry| sink(&entry)),
    };
    table.finish();
    audit
}

fn signing_key(entry: &Entry<'_>) -> Option<SigningKey> {
    let variable = entry.variable_name()?;
    let key = SigningKey::parse(&std::env::var(variable).unwrap_or_default());
    if key.is_none() {
        let form = SigningKey::FORM;
        entry
            .location
            .unset(format!("the environment variable {variable} has to hold a key; set it to {form}"));
    }
    key
}

fn sink(entry: &Entry<'_>) -> Option<AuditSink> {
    let mut table = entry.table("a table such as { file = \"audit.jsonl\" } or { url = \"https://…\" }")?;
    let required = table.take("required").and_then(|entry| entry.boolean()).unwrap_or(false);
    let (file, url, token) = (table.take("file"), table.take("url"), table.take("token_env"));
    if let (Some(_), Some(token)) = (&file, &token) {
        token.location.fault("a file needs no token; remove it");
    }
    let token = token.map(|entry| bearer_token(&entry));
    let target = match (file, url) {
        (Some(file), None) => file.path().map(SinkTarget::File),
        (None, Some(url)) => {
            url.http_url().map(|url| SinkTarget::Http { url: url.to_owned(), token: token.flatten() })
        }
        (Some(_), Some(url)) => url.location.refuse("a file is also set; keep one of them"),
        (None, None) => table.location.missing("file").refuse("it is missing; write a file, or a url"),
    };
    table.finish();
    Some(AuditSink { target: target?, required })
}

fn bearer_token(entry: &Entry<'_>) -> Option<String> {
    let variable = entry.variable_name()?;
    match std::env::var(variable) {
        Ok(token) if !token.is_empty() => Some(token),
        Ok(_) | Err(_) => {
            entry.location.unset(format!("the environment variable {variable} has to hold a token; set it"));
            None
        }
    }
}
