//! Where a node's store is: in its own file, or in a schema that it shares with other nodes.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use machine::Timestamp;
use stores::postgres::PostgresSettings;

/// The current time, replacing the store's own clock.
pub type Time = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long a silent node keeps its runs, in worlds with trouble.
pub const LEASE: Duration = Duration::from_secs(1);
/// The same, in worlds without trouble.
pub const LONG_LEASE: Duration = Duration::from_secs(30);
/// A renewal takes less than a lease divided by this.
const RENEWALS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAt {
    File(PathBuf),
    Schema(Schema),
}

/// A schema of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub name: String,
    pub lease: Duration,
    pub address: String,
}

/// The prefix of a schema, followed by its lease in milliseconds and its address.
const SHARED: &str = "postgres";

impl StoreAt {
    /// The store as a command-line argument.
    #[must_use]
    pub fn word(&self) -> OsString {
        match self {
            Self::File(path) => path.clone().into_os_string(),
            Self::Schema(Schema { name, lease, address }) => {
                format!("{SHARED}:{name}:{}:{address}", lease.as_millis()).into()
            }
        }
    }

    #[must_use]
    pub fn parse(word: &OsStr) -> Self {
        word.to_str().and_then(schema).map_or_else(|| Self::File(word.into()), Self::Schema)
    }

    /// Whether other nodes use the store too.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Schema(_) => true,
        }
    }
}

fn schema(text: &str) -> Option<Schema> {
    let (name, rest) = text.strip_prefix(SHARED)?.strip_prefix(':')?.split_once(':')?;
    let (lease_ms, address) = rest.split_once(':')?;
    let lease = Duration::from_millis(lease_ms.parse().ok()?);
    Some(Schema { name: name.into(), lease, address: address.into() })
}

/// Short waits, because a world has many losses and each costs a lease or two.
#[must_use]
pub fn settings(schema: &Schema, process: u32, clock: Option<Time>) -> PostgresSettings {
    PostgresSettings {
        schema: schema.name.clone(),
        node_name: format!("process {process}"),
        connection_count_max: 4,
        connection_wait_max: Duration::from_secs(2),
        statement_timeout: Duration::from_secs(5),
        answer_timeout: Duration::from_secs(2),
        lease: schema.lease,
        renew_every: schema.lease / RENEWALS,
        clock,
        ..PostgresSettings::default()
    }
}

#[test]
fn a_store_that_is_written_is_read_again() {
    let file = StoreAt::File("/a/store.db".into());
    let schema = StoreAt::Schema(Schema {
        name: "world_1".into(),
        lease: LEASE,
        address: "host=/a port=1 options='-c a:b'".into(),
    });
    for store in [file, schema] {
        assert_eq!(StoreAt::parse(&store.word()), store);
    }
}
