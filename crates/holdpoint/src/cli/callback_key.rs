//! `holdpoint callback-key`: rotates or removes the callback keys in the store.

use clap::{Args, Subcommand};
use engine::callback::{CallbackKey, KeyRotation, KeysToRemove};
use engine::store::Store;
use serde_json::json;
use stores::postgres::PostgresStore;
use stores::postgres::upkeep::{self, Upkeep};
use stores::sqlite::SqliteStore;

use super::output::{print, print_json};
use super::problem::{Exit, Problem};
use super::prune::file_bytes;
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database};

/// Rotate or remove the key of callbacks that the store keeps
#[derive(Debug, Args)]
pub(super) struct CallbackKeyCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Draw another key and keep the previous one
    ///
    /// Servers sign with the new key after their next restart. Callbacks under the previous key are accepted until
    /// `holdpoint callback-key remove --previous`. A SQLite store must not be in use.
    Rotate,
    /// Remove the stored keys
    ///
    /// Callbacks that were given out under them are refused once every server has been restarted. Without
    /// `server.callback_secret_env` the next start draws another key. A SQLite store must not be in use.
    Remove {
        /// Only the key before the last rotation
        #[arg(long)]
        previous: bool,
    },
}

impl CallbackKeyCommand {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        database::runtime()?.block_on(async {
            let store = open(&global.store).await?;
            match self.action {
                Action::Rotate => rotate(&*store, global).await,
                Action::Remove { previous: true } => remove(&*store, KeysToRemove::Previous, global).await,
                Action::Remove { previous: false } => remove(&*store, KeysToRemove::All, global).await,
            }
        })
    }
}

async fn rotate(store: &dyn Store, global: &GlobalArgs) -> CommandResult {
    let (rotated, text) = match store.rotate_callback_key(CallbackKey::generate()).await? {
        KeyRotation::Rotated => (
            true,
            "The stored callback key is rotated. Restart every server of this store: it then signs with the new key.\n\
             Callbacks under the previous key are accepted until `holdpoint callback-key remove --previous`.\n",
        ),
        KeyRotation::NoKey => {
            (false, "The store keeps no callback key, so that there is nothing to rotate.\n")
        }
        KeyRotation::PreviousIsKept => {
            return Err(Problem::new(
                "PREVIOUS_KEY_KEPT",
                "the key before the last rotation is still accepted, so nothing was changed",
                "When no call waits for a callback under it, run holdpoint callback-key remove --previous.",
                Exit::Other,
            ));
        }
    };
    if global.json {
        print_json(&json!({"store": global.store.to_string(), "rotated": rotated}))?;
    } else {
        print(text)?;
    }
    Ok(CommandStatus::Success)
}

async fn remove(store: &dyn Store, which: KeysToRemove, global: &GlobalArgs) -> CommandResult {
    let removed = store.remove_callback_keys(which).await?;
    if global.json {
        print_json(&json!({"store": global.store.to_string(), "removed": removed}))?;
        return Ok(CommandStatus::Success);
    }
    print(match (which, removed) {
        (KeysToRemove::All, true) => {
            "The stored callback key is removed. Restart every server of this store.\n"
        }
        (KeysToRemove::All, false) => "The store keeps no callback key.\n",
        (KeysToRemove::Previous, true) => {
            "The previous callback key is removed. Restart every server of this store.\n"
        }
        (KeysToRemove::Previous, false) => "The store keeps no previous callback key.\n",
    })?;
    Ok(CommandStatus::Success)
}

async fn open(store: &StoreUrl) -> Result<Box<dyn Store>, Problem> {
    if let StoreUrl::Postgres { url } = store {
        // Fails if the store does not exist, because `PostgresStore::open` would create it.
        drop(Upkeep::open(url, upkeep::settings()).await?);
        return Ok(Box::new(PostgresStore::open(url).await?));
    }
    let path = store.require_file("")?;
    file_bytes(path)?;
    Ok(Box::new(SqliteStore::open(path)?))
}
