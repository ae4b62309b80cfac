//! Connections: how many there are, how long anybody waits for one or for an answer, and what is asked again.

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

/// Tries of what two transactions stood in each other's way for.
const REPEAT_COUNT_MAX: u32 = 8;
const SCHEMA_BYTES_MAX: usize = 40;
/// All that a statement of ours looks for has an index, and the tables grow while plans are kept: no plan may read a whole
/// table. So a plan that fits one set of parameters fits all, and is made once. None is worth being compiled.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
                     -c plan_cache_mode=force_generic_plan -c jit=off";
/// Whoever waited for a lock reads what was committed meanwhile. Under anything stricter it would go on with what it had
/// seen before, and not be told.
const ISOLATION: &str = "-c default_transaction_isolation=read\\ committed";
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(10);

/// What a statement does decides what may be done when its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// Asked once more on another connection.
    Read,
    /// It may be stored all the same: whoever asked finds out.
    Write,
}

pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// Where the database is, and how every connection of ours is made.
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

    /// To whichever of its servers takes us, within so long for all of them together.
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
                // No error of the client says so; the pool does, whose time for this is over with it.
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

/// With what every session of ours needs.
fn config(address: &str, settings: &PostgresSettings) -> Result<Config, PostgresOpenError> {
    let mut config = Config::from_str(address).map_err(|why| PostgresOpenError::Address(why.to_string()))?;
    let schema = &settings.schema;
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || !schema.chars().all(plain) {
        return Err(PostgresOpenError::Schema(schema.clone()));
    }
    // A session that waits within a transaction holds locks: none of ours ever does, for longer than this.
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
    // A connection that nobody carries any more is noticed, also by whoever only listens.
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
    /// Logs are what workers and streams go on with: they never wait for a list.
    pub(super) logs: ReadPermits,
}

/// What writing takes, and what is in its way.
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
            // Those that were used last have their plans at hand.
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

    /// One statement, which is one transaction.
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

    /// A place in a lane, waited for as long as for a connection.
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

/// Lists and logs together have at most half of the connections, if there are four: the other half commits.
fn slow_read_count(connection_count_max: usize) -> usize {
    (connection_count_max / 4).max(1)
}

/// An answer of ours is worth nothing if the server says "done" before its disk does.
pub(super) const REQUIRE_DURABLE_COMMIT: &str = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

enum QueryFailure {
    /// The statement was not even sent.
    NotSent(tokio_postgres::Error),
    Answered(tokio_postgres::Error),
    Unanswered,
}

/// Not given to anybody else.
fn discard(client: Object) {
    drop(Object::take(client));
}
