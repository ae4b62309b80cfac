//! Reloads the configuration while the server runs.

use std::sync::Arc;

use engine::Engine;
use engine::callback::CallbackKey;
use holdpoint_http::{Reload, Reloaded};

use super::{ServeOptions, http_setup, log};
use crate::cli::config::{AuditSettings, Configuration, Server};
use crate::cli::store::StoreUrl;

/// Settings that cannot change while the server runs.
#[derive(Clone)]
struct FixedSettings {
    server: Server,
    store: StoreUrl,
    audit: AuditSettings,
    needs_keys: bool,
}

impl FixedSettings {
    fn from_configuration(configuration: &Configuration) -> Self {
        Self {
            server: configuration.server.clone(),
            store: configuration.store.clone(),
            audit: configuration.audit.clone(),
            needs_keys: configuration.auth.is_some(),
        }
    }

    /// The keys whose values differ.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (here, there) = (&self.server, &other.server);
        let keys = [
            ("server.listen", here.listen != there.listen),
            ("server.max_running_runs", here.running_runs_max != there.running_runs_max),
            (
                "server.max_connections_per_address",
                here.connections_per_address_max != there.connections_per_address_max,
            ),
            ("server.public_url", here.public_url != there.public_url),
            ("server.drain", here.drain != there.drain),
            ("server.callback_secret_env", signing_key(here) != signing_key(there)),
            ("server.callback_other_secret_env", also_accepted_key(here) != also_accepted_key(there)),
            ("store.url", self.store != other.store),
            ("[audit]", self.audit != other.audit),
            (
                "[auth] (its keys may change, whether there are any may not)",
                self.needs_keys != other.needs_keys,
            ),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

fn signing_key(server: &Server) -> Option<CallbackKey> {
    server.callback_secrets.as_ref().map(|secrets| secrets.signing)
}

fn also_accepted_key(server: &Server) -> Option<CallbackKey> {
    server.callback_secrets.as_ref().and_then(|secrets| secrets.also_accepted)
}

/// Reads the file again. Applies all of its agents and keys, or changes nothing.
pub(super) fn reload(
    engine: Engine,
    options: ServeOptions,
    started: &Configuration,
    open_token: String,
) -> Reload {
    let (fixed, open_token) = (FixedSettings::from_configuration(started), Arc::<str>::from(open_token));
    Arc::new(move || {
        let (engine, options, fixed) = (engine.clone(), options.clone(), fixed.clone());
        let open_token = open_token.clone();
        Box::pin(async move {
            let again = reload_from_file(&engine, options, &fixed, &open_token).await;
            if let Err(why) = &again {
                tracing::error!(why, "the configuration was reloaded, and nothing was changed");
            }
            again
        })
    })
}

async fn reload_from_file(
    engine: &Engine,
    options: ServeOptions,
    fixed: &FixedSettings,
    open_token: &str,
) -> Result<Reloaded, String> {
    let file = options.config.display().to_string();
    let read = tokio::task::spawn_blocking(move || options.load()).await;
    let configuration = read.map_err(|why| why.to_string())?.map_err(|problem| problem.to_string())?;
    let differences = fixed.differences(&FixedSettings::from_configuration(&configuration));
    if !differences.is_empty() {
        let keys = differences.join(" and ");
        return Err(format!("{file}: {keys} cannot change while the server runs; restart it, or undo that"));
    }
    let agents = http_setup::agents(&configuration);
    let auth = http_setup::auth(configuration.auth.as_ref(), open_token);
    log::log_warnings(&configuration);
    let allow_origins = configuration.server.allow_origins.clone();
    let several_tenants = configuration.has_several_tenants();
    let quotas = configuration.quotas;
    let prepared = engine.prepare_agents(configuration.agents).await.map_err(|why| why.to_string())?;
    let (engine, count) = (engine.clone(), agents.len());
    let apply = Box::new(move || {
        engine.use_agents(prepared);
        engine.share_slots(several_tenants);
        engine.set_quotas(quotas);
        tracing::info!(agents = count, "the configuration was reloaded");
    });
    Ok(Reloaded { agents, auth, allow_origins, file: Some(configuration.digest), apply })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use engine::callback::CallbackSecrets;

    use super::*;

    #[test]
    fn a_changed_callback_secret_is_named_by_its_own_key() {
        let key = |text: &str| CallbackKey::from_secret(text);
        let with = |signing: &str, also_accepted: Option<&str>| FixedSettings {
            server: Server {
                callback_secrets: Some(CallbackSecrets {
                    signing: key(signing),
                    also_accepted: also_accepted.map(key),
                }),
                ..Server::default()
            },
            store: StoreUrl::Sqlite { path: PathBuf::from("a.db") },
            audit: AuditSettings::default(),
            needs_keys: false,
        };
        let (signing, other) = ("server.callback_secret_env", "server.callback_other_secret_env");
        let before = with("one", Some("two"));
        assert_eq!(before.differences(&with("one", Some("two"))), [""; 0]);
        assert_eq!(before.differences(&with("one", Some("three"))), [other]);
        assert_eq!(before.differences(&with("one", None)), [other]);
        assert_eq!(before.differences(&with("three", Some("two"))), [signing]);
        assert_eq!(before.differences(&with("two", Some("one"))), [signing, other]);
    }
}
