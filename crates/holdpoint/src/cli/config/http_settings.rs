//! The keys of everything that is called over HTTP: where it is, how requests are authenticated and signed, and how much
//! it may answer. Tools and hooks have the same ones.

use tools::http::{HttpSettings, RESPONSE_BYTES_MAX, SigningSecret};

use super::amounts::{KEY_IN_CLEAR, is_sent_in_clear};
use super::table::{Entry, Table};

/// `warning` is printed if every machine on the way can read what is sent there.
pub(super) fn read_url(table: &mut Table<'_>, warning: Option<&str>) -> Option<String> {
    let entry = table.require("url", "the address that is called")?;
    let url = entry.http_url()?;
    if let Some(warning) = warning.filter(|_| is_sent_in_clear(url)) {
        entry.location.warn(warning);
    }
    Some(url.to_owned())
}

/// All keys but `url`. `token_meaning` says what to set the variable of `bearer_env` to.
pub(super) fn read(table: &mut Table<'_>, url: Option<String>, token_meaning: &str) -> Option<HttpSettings> {
    let sends_key_in_clear = url.as_deref().is_some_and(is_sent_in_clear);
    let response_bytes_max = table.take("max_response").map(|entry| response_size(&entry));
    let bearer = table.take("bearer_env").and_then(|entry| {
        if sends_key_in_clear {
            entry.location.warn(KEY_IN_CLEAR);
        }
        secret(&entry, token_meaning)
    });
    let signing_secret = table.take("signing_secret_env").and_then(|entry| signing_secret(&entry));
    let private_network = table.take("private_network").and_then(|entry| entry.boolean());
    Some(HttpSettings {
        url: url?,
        bearer,
        signing_secret,
        response_bytes_max: response_bytes_max.unwrap_or(Some(RESPONSE_BYTES_MAX))?,
        private_network: private_network.unwrap_or(false),
    })
}

/// A result is stored, sent to watchers and read by models.
const RESPONSE_MIB_MAX: usize = 16;

fn response_size(entry: &Entry<'_>) -> Option<usize> {
    let bytes = usize::try_from(entry.size()?).ok().filter(|bytes| *bytes <= RESPONSE_MIB_MAX << 20);
    bytes.or_else(|| {
        entry
            .location
            .refuse(format!("this is more than a result may have; write at most {RESPONSE_MIB_MAX}MiB"))
    })
}

/// A secret never appears in the file, which only names an environment variable.
fn secret(entry: &Entry<'_>, meaning: &str) -> Option<String> {
    let variable = entry.variable_name()?;
    let secret = std::env::var(variable).ok().filter(|secret| !secret.is_empty());
    if secret.is_none() {
        entry.location.unset(format!("the environment variable {variable} is not set; set it to {meaning}"));
    }
    secret
}

fn signing_secret(entry: &Entry<'_>) -> Option<SigningSecret> {
    let text = secret(entry, "a secret of Standard Webhooks, whsec_…")?;
    let read = SigningSecret::parse(&text);
    if read.is_none() {
        // The text may be another secret, so the fault does not repeat it.
        entry.location.unset(
            "the environment variable holds no signing secret; set it to whsec_ and 24 to 64 random bytes in Base64",
        );
    }
    read
}
