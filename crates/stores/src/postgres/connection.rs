//! Connections: how many there are, how long callers wait for one or for an answer, and which statements are retried.

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType,
};
use engine::metrics::Histogram;
use engine::store::{StoreError, StoreFailure};
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Row};

use super::PostgresSettings;
use super::errors::{
    PostgresError, PostgresOpenError, is_connection_lost, is_retryable, is_unprepared, unavailable,
};
use super::servers::{NotConnected, OpenConnection, Servers};
use super::tls::{self, Tls};
use crate::failure_counters::FailureCounters;
use crate::read_permits::{PendingRead, PermittedRead, ReadPermits};

/// Attempts for a statement that conflicts with another transaction.
const REPEAT_COUNT_MAX: u32 = 8;
const SCHEMA_BYTES_MAX: usize = 40;
/// Everything that our statements look up has an index, and the tables grow while plans are cached: no plan may scan a
/// whole table. So a plan that suits one set of parameters suits all, and is made once. None is worth JIT compilation.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
                     -c plan_cache_mode=force_generic_plan -c jit=off";
/// A statement that waited for a lock must read what was committed meanwhile. Under a stricter level it would silently
/// continue with what it had seen before.
const ISOLATION: &str = "-c default_transaction_isolation=read\\ committed";
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(10);

/// Decides what may be done when a statement's answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// Sent once more on another connection.
    Read,
    /// It may have been stored nevertheless: the caller finds out.
    Write,
}

pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// The database's address, and how each of our connections is made.
#[derive(Clone)]
pub(super) struct Address {
    servers: Servers,
    tls: Tls,
}

impl Address {
    pub(super) fn new(address: &str, settings: &PostgresSettings) -> Result<Self, PostgresOpenError> {
        let (address, options) = tls::split_tls_options(address);
        let mut config = config(&address, settings)?;
        let tls = Tls::new(&mut config, &options)?;
        Ok(Self { servers: Servers::from_config(&config)?, tls })
    }

    /// Connects to the first of its servers that accepts us; `within` limits the time for all of them together.
    pub(super) async fn connect(&self, within: Duration) -> Result<OpenConnection, NotConnected> {
        self.servers.connect(&self.tls, within).await
    }
}

/// How the pool opens its connections.
struct PoolConnector {
    address: Address,
    within: Duration,
}

impl Connect for PoolConnector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>>
    {
        Box::pin(async move {
            let (client, connection) = match self.address.connect(self.within).await {
                Ok(opened) => opened,
                Err(NotConnected::Refused(error)) => return Err(error),
                // The client has no error for this. The pool reports it, because its own timeout ends at the same time.
                Err(NotConnected::TimedOut(_)) => return std::future::pending().await,
            };
            let traffic = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection of the pool ended");
                }
            });
            Ok((client, traffic))
        })
    }
}

/// Parses the address and adds the options that each of our sessions needs.
fn config(address: &str, settings: &PostgresSettings) -> Result<Config, PostgresOpenError> {
    let mut config = Config::from_str(address).map_err(|why| PostgresOpenError::Address(why.to_string()))?;
    let schema = &settings.schema;
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || !schema.chars().all(plain) {
        return Err(PostgresOpenError::Schema(schema.clone()));
    }
    // A session that idles within a transaction holds locks; ours never do so for longer than this.
    let ours = format!(
        "-c search_path={schema} {ISOLATION} {PLANS} -c statement_timeout={statement} -c idle_in_transaction_session_timeout={statement}",
        statement = settings.statement_timeout.as_millis(),
    );
    let options = match config.get_options() {
        Some(given) => format!("{given} {ours}"),
        None => ours,
    };
    config.options(options);
    config.tcp_user_timeout(settings.answer_timeout);
    // Detects a dead connection, even one that only listens.
    config.keepalives_idle(KEEP_ALIVE_AFTER).keepalives_interval(KEEP_ALIVE_AFTER / 2).keepalives_retries(3);
    if config.get_application_name().is_none() {
        config.application_name("holdpoint");
    }
    Ok(config)
}

pub(super) struct Connections {
    pool: Pool,
    count_max: usize,
    wait_max: Duration,
    pub(super) answer_timeout: Duration,
    pub(super) write_metrics: WriteMetrics,
    /// Lists are for people, who can wait.
    pub(super) lists: ReadPermits,
    /// Workers and streams need logs to continue: they never wait for a list.
    pub(super) logs: ReadPermits,
}

/// Durations of writes, and failures of all statements.
#[derive(Default)]
pub(super) struct WriteMetrics {
    pub(super) sync_us: Histogram,
    pub(super) failures: FailureCounters,
}

impl Connections {
    pub(super) fn new(address: Address, settings: &PostgresSettings) -> Result<Self, PostgresOpenError> {
        let recycling_method = RecyclingMethod::Fast;
        let connector = PoolConnector { address, within: settings.connection_wait_max };
        let connections = Manager::from_connect(Config::new(), connector, ManagerConfig { recycling_method });
        let pool = Pool::builder(connections)
            .max_size(settings.connection_count_max)
            // The most recently used connections have their plans cached.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(settings.connection_wait_max))
            .create_timeout(Some(settings.connection_wait_max))
            .recycle_timeout(Some(settings.connection_wait_max))
            .runtime(Runtime::Tokio1)
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async move {
                    client.batch_execute(REQUIRE_DURABLE_COMMIT).await.map_err(HookError::Backend)
                })
            }))
            .build()
            .map_err(|why| PostgresOpenError::Address(why.to_string()))?;
        Ok(Self {
            pool,
            count_max: settings.connection_count_max,
            wait_max: settings.connection_wait_max,
            answer_timeout: settings.answer_timeout,
            write_metrics: WriteMetrics::default(),
            lists: ReadPermits::new(slow_read_count(settings.connection_count_max)),
            logs: ReadPermits::new(slow_read_count(settings.connection_count_max)),
        })
    }

    /// Runs one statement, which is one transaction.
    pub(super) async fn query(
        &self,
        kind: StatementKind,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let began = Instant::now();
        let asked =
            self.query_with_retries(kind, sql, parameters).await.map_err(|PostgresError(refused)| refused);
        self.write_metrics.failures.count_result(&asked);
        if kind == StatementKind::Write && asked.is_ok() {
            self.write_metrics.sync_us.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        Ok(asked?)
    }

    async fn query_with_retries(
        &self,
        kind: StatementKind,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let mut retried = false;
        let mut repeats = 0;
        loop {
            let client = self.client().await?;
            let failed = match self.query_once(&client, sql, parameters).await {
                Ok(rows) => return Ok(rows),
                Err(failed) => failed,
            };
            match failed {
                QueryFailure::Unanswered if kind == StatementKind::Read && !retried => {
                    discard(client);
                    retried = true;
                }
                QueryFailure::Unanswered => {
                    discard(client);
                    let waited = self.answer_timeout.as_secs_f32();
                    return Err(unavailable(format!("the database did not answer within {waited} s")));
                }
                QueryFailure::NotSent(error) | QueryFailure::Answered(error) if is_retryable(&error) => {
                    repeats += 1;
                    if repeats >= REPEAT_COUNT_MAX {
                        return Err(error.into());
                    }
                }
                QueryFailure::NotSent(error) if is_connection_lost(&error) && !retried => {
                    discard(client);
                    retried = true;
                }
                QueryFailure::Answered(error) if is_unprepared(&error) && !retried => {
                    discard(client);
                    retried = true;
                }
                QueryFailure::Answered(error) if is_connection_lost(&error) => {
                    discard(client);
                    if kind == StatementKind::Write || retried {
                        return Err(error.into());
                    }
                    retried = true;
                }
                QueryFailure::NotSent(error) | QueryFailure::Answered(error) => return Err(error.into()),
            }
        }
    }

    pub(super) async fn read(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        self.query(StatementKind::Read, sql, parameters).await
    }

    pub(super) async fn write_one(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Row, PostgresError> {
        let rows = self.query(StatementKind::Write, sql, parameters).await?;
        rows.into_iter().next().ok_or_else(|| unavailable("the database answered nothing"))
    }

    /// Acquires a read permit, waiting at most as long as for a connection.
    pub(super) async fn acquire_read<T>(
        &self,
        permits: &ReadPermits,
    ) -> Result<(PermittedRead<T>, PendingRead<T>), StoreError> {
        let acquired = tokio::time::timeout(self.wait_max, permits.acquire()).await;
        let acquired = acquired.unwrap_or_else(|_| {
            let waited = self.wait_max.as_secs_f32();
            let why = format!("no connection for reads like this one became free within {waited} s");
            Err(StoreFailure::Unavailable(why).into())
        });
        self.write_metrics.failures.count_result(&acquired);
        acquired
    }

    pub(super) async fn client(&self) -> Result<Object, PostgresError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(TimeoutType::Create) => {
                unavailable(format!("the database did not answer within {} s", self.wait_max.as_secs_f32()))
            }
            PoolError::Timeout(TimeoutType::Wait | TimeoutType::Recycle) => unavailable(format!(
                "no connection to the database became free within {} s; at most {} are open",
                self.wait_max.as_secs_f32(),
                self.count_max
            )),
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                unavailable(error.to_string())
            }
        })
    }

    async fn query_once(
        &self,
        client: &Object,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, QueryFailure> {
        let answered = async {
            let statement = client.prepare_cached(sql).await.map_err(QueryFailure::NotSent)?;
            client.query(&statement, parameters).await.map_err(QueryFailure::Answered)
        };
        tokio::time::timeout(self.answer_timeout, answered).await.unwrap_or(Err(QueryFailure::Unanswered))
    }
}

/// With four or more connections, lists and logs together use at most half of them: the other half commits.
fn slow_read_count(connection_count_max: usize) -> usize {
    (connection_count_max / 4).max(1)
}

/// Our acknowledgement is worth nothing if the server reports a commit before its disk has it.
pub(super) const REQUIRE_DURABLE_COMMIT: &str = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

enum QueryFailure {
    /// The statement was not even sent.
    NotSent(tokio_postgres::Error),
    Answered(tokio_postgres::Error),
    Unanswered,
}

/// Removes the connection from the pool.
fn discard(client: Object) {
    drop(Object::take(client));
}
