//! The bare database: how long transactions of the same size take when clients only insert a row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use crate::commits::TOOL_ROUND;
use crate::database::{Database, Schema};
use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::process;
use crate::report::{Sheet, Target, Unit};

/// Warm-up appends of each client.
const WARM_UP_COUNT: usize = 10;
/// The minimum share of what the bare appends allow.
const SHARE_MIN: f64 = 0.5;

/// A separate table with only a number and a body.
pub(crate) struct BareTable {
    schema: Schema,
}

/// A connection that appends to the table.
pub(crate) struct BareClient {
    client: Client,
    insert: Statement,
    body: String,
}

impl BareTable {
    pub(crate) async fn make(database: &Arc<Database>) -> Result<Self, Failure> {
        let schema = Schema::of(database);
        let name = &schema.name;
        let sql = format!(
            "CREATE SCHEMA {name};
             CREATE TABLE {name}.appends (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)"
        );
        database.connect().await?.batch_execute(&sql).await?;
        Ok(Self { schema })
    }

    /// Each append has `byte_count` bytes.
    pub(crate) async fn client(&self, byte_count: usize) -> Result<BareClient, Failure> {
        let client = self.schema.database.connect().await?;
        let sql = format!("INSERT INTO {}.appends (body) VALUES ($1)", self.schema.name);
        let insert = client.prepare(&sql).await?;
        let bare = BareClient { client, insert, body: "x".repeat(byte_count) };
        for _ in 0..WARM_UP_COUNT {
            bare.commit().await?;
        }
        Ok(bare)
    }

    pub(crate) async fn remove(self) -> Result<(), Failure> {
        self.schema.remove().await
    }
}

impl BareClient {
    /// Milliseconds for one transaction, which is one round trip.
    pub(crate) async fn commit(&self) -> Result<f64, Failure> {
        let begin = Instant::now();
        self.client.execute(&self.insert, &[&self.body]).await?;
        Ok(milliseconds(begin.elapsed()))
    }
}

/// The database's performance with concurrent clients, each sending its next append once the last one is acknowledged.
pub(crate) struct BareAppends {
    per_second: f64,
    /// CPU milliseconds per append.
    client_cpu: Option<f64>,
    server_cpu: Option<f64>,
}

pub(crate) async fn appends(
    database: Arc<Database>,
    client_count: usize,
    byte_count: usize,
    time: Duration,
) -> Result<BareAppends, Failure> {
    let table = BareTable::make(&database).await?;
    let mut clients = Vec::new();
    for _ in 0..client_count {
        clients.push(table.client(byte_count).await?);
    }
    let cpu = || (process::cpu_time(), database.postmaster.and_then(|postmaster| postmaster.cpu_time()));
    let before = cpu();
    let begin = Instant::now();
    let mut lanes = JoinSet::new();
    for client in clients {
        lanes.spawn(async move {
            let mut count = 0_u32;
            // At least one append per client, however short the time is.
            loop {
                client.commit().await?;
                count += 1;
                if begin.elapsed() >= time {
                    return Ok::<u32, Failure>(count);
                }
            }
        });
    }
    let mut count = 0.0;
    while let Some(lane) = lanes.join_next().await {
        count += f64::from(lane??);
    }
    let per_second = count / begin.elapsed().as_secs_f64();
    let after = cpu();
    table.remove().await?;
    let each = |after: Option<Duration>, before: Option<Duration>| {
        Some(milliseconds(after?.saturating_sub(before?)) / count)
    };
    Ok(BareAppends { per_second, client_cpu: each(after.0, before.0), server_cpu: each(after.1, before.1) })
}

/// `runs_per_second` has one value for each measurement, with as many concurrent runs as there were clients.
pub(crate) fn figures(sheet: &mut Sheet, client_count: usize, bare: &[BareAppends], runs_per_second: &[f64]) {
    let suffix = format!("c{client_count}");
    let clients = format!("bare database, {client_count} clients");
    let rates: Vec<f64> = bare.iter().map(|bare| bare.per_second).collect();
    let metric = format!("bare_appends_per_s_{suffix}");
    sheet.add(metric, &format!("{clients}, appends"), Unit::PerSecond, &rates);
    let client_cpu: Vec<f64> = bare.iter().filter_map(|bare| bare.client_cpu).collect();
    let metric = format!("bare_cpu_ms_per_append_{suffix}");
    let title = format!("{clients}, processor time of an append");
    sheet.add(metric, &title, Unit::Milliseconds, &client_cpu);
    let server_cpu: Vec<f64> = bare.iter().filter_map(|bare| bare.server_cpu).collect();
    let metric = format!("bare_server_cpu_ms_per_append_{suffix}");
    let title = format!("{clients}, processor time of an append in the server");
    sheet.add(metric, &title, Unit::Milliseconds, &server_cpu);
    let allowed = rates.iter().map(|rate| rate / TOOL_ROUND as f64);
    let shares: Vec<f64> =
        runs_per_second.iter().zip(allowed).map(|(runs, allowed)| runs / allowed).collect();
    let title = format!("runs with {client_count} at once / what the bare database's appends allow");
    let target = Some(Target::AtLeast(SHARE_MIN));
    sheet.add_aimed(format!("of_the_bare_appends_{suffix}"), &title, Unit::Ratio, &shares, target);
}
