//! `holdpoint callback-key remove`: the key that the store keeps for callbacks is forgotten.

use clap::{Args, Subcommand};
use engine::store::Store;
use serde_json::json;
use stores::postgres::PostgresStore;
use stores::postgres::upkeep::{self, Upkeep};
use stores::sqlite::SqliteStore;

use super::output::{print, print_json};
use super::problem::Problem;
use super::prune::file_bytes;
use super::store::StoreUrl;
use super::{Done, Everywhere, Outcome, database};

/// Remove the key of callbacks that the store keeps
#[derive(Debug, Args)]
pub(super) struct CallbackKeyCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Remove the stored key
    ///
    /// Callbacks that were given out under it are refused once every server has been restarted. Without
    /// `server.callback_secret_env` the next start draws another key. A SQLite store must not be in use.
    Remove,
}

impl CallbackKeyCommand {
    pub(super) fn run(&self, everywhere: &Everywhere) -> Outcome {
        let Action::Remove = self.action;
        let removed = database::runtime()?.block_on(remove(&everywhere.store))?;
        if everywhere.json {
            print_json(&json!({"store": everywhere.store.to_string(), "removed": removed}))?;
        } else if removed {
            print("The stored callback key is removed. Restart every server of this store.\n")?;
        } else {
            print("The store keeps no callback key.\n")?;
        }
        Ok(Done::Well)
    }
}

async fn remove(store: &StoreUrl) -> Result<bool, Problem> {
    if let StoreUrl::Postgres { url } = store {
        // A store that is not there is not made.
        drop(Upkeep::open(url, upkeep::settings()).await?);
        return Ok(PostgresStore::open(url).await?.remove_callback_key().await?);
    }
    let path = store.file("")?;
    file_bytes(path)?;
    Ok(SqliteStore::open(path)?.remove_callback_key().await?)
}
