//! Runs a server from start to shutdown.

use std::net::SocketAddr;
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, Settings};
use holdpoint_http::{Approvers, Limits, Origins, Server, Setup, callback_base_url};
use machine::audit::Actor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::audit_retention::sweep_records;
use super::audit_sealer::{record_refusals, seal_records};
use super::audit_sink::{SinkDelivery, SinkStatus};
use super::log_queue::LogQueue;
use super::signals::{SignalAction, Signals};
use super::{ServeOptions, http_setup, reload, store};
use crate::cli::config::{AuditSettings, Configuration};
use crate::cli::open_token::OpenToken;
use crate::cli::problem::{Exit, Problem};
use crate::cli::{CommandResult, CommandStatus};

/// Upper bound for work that cannot be cancelled at once, such as a file read in progress.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for requests that were accepted before the signal, even if `drain` is shorter.
const IN_FLIGHT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

pub(in crate::cli) struct RunningServer {
    engine: Engine,
    server: Arc<Server>,
    address: SocketAddr,
    /// Only without [auth].
    open_token: Option<OpenToken>,
    drain: Duration,
    serving: JoinHandle<()>,
    /// Work on the audit record.
    background: Vec<JoinHandle<()>>,
    signals: Signals,
    log: LogQueue,
}

/// Afterwards stops every remaining task and closes its files.
pub(in crate::cli) fn block_on_runtime(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|why| {
        let cause = format!("threads cannot be started: {why}");
        Problem::new("NO_THREADS", cause, "See which limits this process has.", Exit::Other)
    })?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    outcome
}

impl RunningServer {
    /// Opens the store first, so that a second process on the same file touches nothing else. Starts the engine last,
    /// so that no run starts if the server cannot listen.
    pub(in crate::cli) async fn start(
        options: ServeOptions,
        configuration: Configuration,
        log: LogQueue,
    ) -> Result<Self, Problem> {
        let signals = Signals::listen()?;
        let settings = &configuration.server;
        let store = store::open(&configuration.store).await?;
        let listener = listen(settings.listen).await?;
        let address = listener.local_addr().map_err(|why| cannot_listen(settings.listen, &why))?;
        let open_token = match configuration.auth {
            Some(_) => None,
            None => Some(OpenToken::for_server(address)?),
        };
        let token = open_token.as_ref().map(|token| token.text.clone()).unwrap_or_default();
        let auth = http_setup::auth(configuration.auth.as_ref(), &token);
        let approvers = Approvers::new(&auth);
        let mut engine = Engine::on_shared(store)
            .settings(engine_settings(&configuration, address))
            .approvers(approvers.for_engine());
        for agent in &configuration.agents {
            engine = engine.agent(agent.clone());
        }
        let engine = engine.start().await.map_err(Problem::from)?;
        let file = configuration.digest;
        let reload = reload::reload(engine.clone(), options, &configuration, token);
        let audit = configuration.audit.clone();
        let sink = SinkStatus::new(audit.sink.as_ref());
        let setup = Setup {
            engine: engine.clone(),
            auth,
            agents: http_setup::agents(&configuration),
            reload,
            origins: Origins {
                listen: address,
                public_url: settings.public_url.clone(),
                allow_origins: settings.allow_origins.clone(),
            },
            approvers,
            sink_fault: sink.for_server(),
            log_lines_dropped: log.dropped(),
        };
        let connections_per_address_max = settings.connections_per_address_max;
        let server = Server::with_limits(setup, Limits { connections_per_address_max, ..Limits::default() });
        server.record_started(Some(file)).await.map_err(Problem::from)?;
        server.revoke_lapsed_grants().await;
        let background = keep_audit_record(&engine, &server, &audit, &sink);
        // The token is never cancelled: shutdown calls `server.drain()` instead.
        let serving = tokio::spawn(server.clone().serve(listener, CancellationToken::new()));
        Ok(Self {
            engine,
            server,
            address,
            open_token,
            drain: settings.drain,
            serving,
            background,
            signals,
            log,
        })
    }

    pub(in crate::cli) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in crate::cli) const fn open_token(&self) -> Option<&OpenToken> {
        self.open_token.as_ref()
    }

    pub(in crate::cli) const fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(in crate::cli) async fn run_until_stopped(mut self) -> CommandResult {
        loop {
            tokio::select! {
                action = self.signals.next() => match action {
                    SignalAction::Stop => break,
                    // `reload` logs what is wrong.
                    SignalAction::Reload => drop(self.server.reload(&Actor::system()).await),
                },
                _ = &mut self.serving => return Err(Problem::new(
                    "SERVER_STOPPED",
                    "the server does not listen any more",
                    "Read the log before this, and start it again; nothing is lost.",
                    Exit::Other,
                )),
            }
        }
        let Self { engine, server, drain, mut serving, background, mut signals, log, .. } = self;
        // Drain before logging: readers of the log may rely on the server accepting nothing new after this line.
        server.drain();
        tracing::info!(drain_ms = drain.as_millis() as u64, "stop requested; running calls may finish");
        let shutdown = async {
            let began = Instant::now();
            // The engine is still running, so each of these requests gets its real response.
            let _ =
                tokio::time::timeout(drain.max(IN_FLIGHT_TIMEOUT_MIN), server.wait_until_answered()).await;
            engine.drain(drain.saturating_sub(began.elapsed())).await;
            server.stop();
            background.iter().for_each(JoinHandle::abort);
            // It panicked or ended: either way no request is answered any more.
            let _ = (&mut serving).await;
        };
        tokio::select! {
            () = shutdown => {}
            () = signals.wait_for_stop() => {
                tracing::warn!("stop requested again; exiting, and running calls are left as after a crash");
                log.flush();
                exit(1);
            }
        }
        tracing::info!("stopped");
        Ok(CommandStatus::Success)
    }
}

/// Seals, delivers and deletes records in the background.
fn keep_audit_record(
    engine: &Engine,
    server: &Arc<Server>,
    audit: &AuditSettings,
    sink: &SinkStatus,
) -> Vec<JoinHandle<()>> {
    let delivery = audit.sink.as_ref().map(|configured| {
        SinkDelivery::new(engine.clone(), configured, audit.signing_key.clone(), sink.clone())
    });
    let mut tasks = vec![
        tokio::spawn(seal_records(engine.clone(), delivery)),
        tokio::spawn(record_refusals(server.clone())),
    ];
    if let Some(retention) = audit.retention {
        let sink = audit.sink.is_some().then(|| sink.clone());
        tasks.push(tokio::spawn(sweep_records(engine.clone(), server.clone(), retention, sink)));
    }
    tasks
}

/// Tools send callbacks to the configured public address, or to the bound address if there is none.
fn engine_settings(configuration: &Configuration, address: SocketAddr) -> Settings {
    let settings = &configuration.server;
    let public_url = settings.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
    Settings {
        running_runs_max: settings.running_runs_max,
        several_tenants: configuration.has_several_tenants(),
        quotas: configuration.quotas,
        callbacks_at: Some(callback_base_url(&public_url)),
        callback_secrets: settings.callback_secrets,
        ..Settings::default()
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Problem> {
    TcpListener::bind(address).await.map_err(|why| cannot_listen(address, &why))
}

fn cannot_listen(address: SocketAddr, why: &std::io::Error) -> Problem {
    Problem::new(
        "CANNOT_LISTEN",
        format!("{address} cannot be listened on: {why}"),
        "Stop the process that listens there, or name another address with --listen; port 0 picks one that is free.",
        Exit::Other,
    )
}
