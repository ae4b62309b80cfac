//! The version of the store: migrations run once, even if several nodes start together.

use std::time::Duration;

use tokio_postgres::Client;

use super::connection::{Address, Connections};
use super::errors::PostgresOpenError;
use super::listen_probe::OpeningConnection;
use super::restored::record_restore;

/// The table changes of each version, in order: a store's version is the number of migrations it has seen. A migration
/// that was released is never edited. Versions 2 to 4, 10 and 12 changed only views and functions.
const MIGRATIONS: [&str; 15] = [
    include_str!("migrations/0001_tables.sql"),
    "",
    "",
    "",
    include_str!("migrations/0005_version.sql"),
    include_str!("migrations/0006_grants.sql"),
    include_str!("migrations/0007_grants_in_force.sql"),
    include_str!("migrations/0008_interrupted.sql"),
    include_str!("migrations/0009_previous_callback_key.sql"),
    // Version 10 renamed functions.
    "",
    include_str!("migrations/0011_chain.sql"),
    // Version 12 counts descendants for admission, and shows the threads of the runs above a suspension.
    "",
    include_str!("migrations/0013_audit.sql"),
    include_str!("migrations/0014_audit_sinks.sql"),
    include_str!("migrations/0015_restored.sql"),
];

/// The views and functions of this version. An upgrade drops those of the earlier version and creates these, so a
/// change here needs a new version too, even if its migration is empty.
const FUNCTIONS: [&str; 6] = [
    include_str!("functions/clear.sql"),
    include_str!("functions/views.sql"),
    include_str!("functions/audit.sql"),
    include_str!("functions/commits.sql"),
    include_str!("functions/leases.sql"),
    include_str!("functions/batches.sql"),
];

/// The only encoding that can store every text.
const ENCODING: &str = "UTF8";

/// The first half of the advisory lock's key, which sets it apart from other locks; the second half is the schema.
const LOCK: i32 = 0x486f_6c64;

/// Migrates the schema to this software's version, on a connection of its own, which listens from then on.
pub(super) async fn migrate(
    address: &Address,
    schema: &str,
    answer_timeout: Duration,
) -> Result<OpeningConnection, PostgresOpenError> {
    let mut opening = OpeningConnection::new(address.connect(answer_timeout).await?);
    upgrade_schema(&mut opening.client, schema).await?;
    Ok(opening)
}

/// Refuses a database that has no store of this software's version, and changes nothing.
pub(super) async fn check(connections: &Connections, schema: &str) -> Result<(), PostgresOpenError> {
    let there = "SELECT to_regclass($1 || '.migrations') IS NOT NULL";
    let rows = connections.read(there, &[&schema]).await?;
    if !rows.first().map(|row| row.try_get::<_, bool>(0)).transpose()?.unwrap_or(false) {
        return Err(PostgresOpenError::NoStore { schema: schema.to_owned() });
    }
    let rows = connections.read("SELECT coalesce(max(version), 0) FROM migrations", &[]).await?;
    let found: i32 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    match (found, known_version()) {
        (found, known) if found > known => Err(PostgresOpenError::Newer { found, known }),
        (found, known) if found < known => Err(PostgresOpenError::Older { found, known }),
        _ => Ok(()),
    }
}

fn known_version() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

async fn upgrade_schema(client: &mut Client, schema: &str) -> Result<(), PostgresOpenError> {
    // A proxy may have dropped the requested options, and then the tables would be in another schema.
    let session = "SELECT current_setting('search_path') = $1 AND current_setting('statement_timeout') <> '0'
            AND current_setting('transaction_isolation') = 'read committed', current_setting('server_encoding')";
    let session = client.query_one(session, &[&schema]).await?;
    if !session.try_get(0)? {
        return Err(PostgresOpenError::SessionOptionsIgnored);
    }
    let encoding: &str = session.try_get(1)?;
    if encoding != ENCODING {
        return Err(PostgresOpenError::Encoding(encoding.to_owned()));
    }
    let transaction = client.transaction().await?;
    // A second node waits here, and then finds everything done.
    let begins = format!("SET LOCAL statement_timeout = 0; LISTEN {}", OpeningConnection::channel(schema));
    transaction.batch_execute(&begins).await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", &[&LOCK, &schema]).await?;
    let there = transaction.query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema]).await?;
    if there.is_none() {
        transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    let steps = "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)";
    transaction.batch_execute(steps).await?;
    let found: i32 =
        transaction.query_one("SELECT coalesce(max(version), 0) FROM migrations", &[]).await?.try_get(0)?;
    let known = known_version();
    if found > known {
        return Err(PostgresOpenError::Newer { found, known });
    }
    for (migration, version) in MIGRATIONS.iter().zip(1_i32..).filter(|(_, version)| *version > found) {
        transaction.batch_execute(migration).await?;
        let done = "INSERT INTO migrations (version, applied_at) VALUES ($1, clock_timestamp())";
        transaction.execute(done, &[&version]).await?;
    }
    if found < known {
        for functions in FUNCTIONS {
            transaction.batch_execute(functions).await?;
        }
    }
    record_restore(&transaction).await?;
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use machine::id::Digest;

    use super::{FUNCTIONS, known_version};

    /// The version of the store, and the digest of its functions without comments and blank lines.
    const FUNCTIONS_OF_VERSION: (i32, &str) =
        (15, "7dc6fccee4536a786dd5d2ad59a9f2991ab393dd349365d73b5a998c6bf97da6");

    #[test]
    fn functions_change_only_with_a_new_version() {
        let lines = FUNCTIONS.iter().flat_map(|text| text.lines()).map(str::trim);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text: String = code.flat_map(|line| [line, "\n"]).collect();
        let found = Digest::sha256(text.as_bytes()).to_string();
        assert_eq!(
            (known_version(), found.as_str()),
            FUNCTIONS_OF_VERSION,
            "a database of this version keeps the functions that it has: append a migration, even an empty one, and \
             record its version and this digest"
        );
    }
}
