//! The configuration, read again while the server runs.

use std::sync::Arc;

use engine::Engine;
use holdpoint_http::{AgentShown, Reload};
use tokio::sync::Mutex;

use super::{Wanted, shown};
use crate::cli::config::{Auth, Configuration, Server};
use crate::cli::store::StoreUrl;

/// What cannot change while the server runs.
#[derive(Clone, PartialEq, Eq)]
struct Fixed {
    server: Server,
    store: StoreUrl,
    auth: Option<Auth>,
}

impl Fixed {
    fn of(configuration: &Configuration) -> Self {
        Self {
            server: configuration.server.clone(),
            store: configuration.store.clone(),
            auth: configuration.auth.clone(),
        }
    }

    /// The tables in which another one differs.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let tables = [
            ("[server]", self.server != other.server),
            ("[store]", self.store != other.store),
            ("[auth]", self.auth != other.auth),
        ];
        tables.into_iter().filter(|(_, differs)| *differs).map(|(table, _)| table).collect()
    }
}

/// Reads the file again, and takes over its agents or changes nothing. One after the other: what was read last is what
/// holds.
pub(super) fn reload(engine: Engine, wanted: Wanted, started: &Configuration) -> Reload {
    let fixed = Fixed::of(started);
    let turn = Arc::new(Mutex::new(()));
    Arc::new(move || {
        let (engine, wanted, fixed, turn) = (engine.clone(), wanted.clone(), fixed.clone(), turn.clone());
        Box::pin(async move {
            let _turn = turn.lock_owned().await;
            let again = read_again(&engine, wanted, &fixed).await;
            match &again {
                Ok(agents) => tracing::info!(agents = agents.len(), "the configuration was read again"),
                Err(why) => tracing::error!(why, "the configuration was read again, and nothing was changed"),
            }
            again
        })
    })
}

async fn read_again(engine: &Engine, wanted: Wanted, fixed: &Fixed) -> Result<Vec<AgentShown>, String> {
    let file = wanted.config.display().to_string();
    let read = tokio::task::spawn_blocking(move || wanted.read()).await;
    let configuration = read.map_err(|why| why.to_string())?.map_err(|problem| problem.to_string())?;
    let differences = fixed.differences(&Fixed::of(&configuration));
    if !differences.is_empty() {
        let tables = differences.join(" and ");
        return Err(format!(
            "{file}: {tables} cannot change while the server runs; restart it, or undo that"
        ));
    }
    let agents = shown::agents(&configuration);
    engine.replace_agents(configuration.agents).await.map_err(|why| why.to_string())?;
    Ok(agents)
}
