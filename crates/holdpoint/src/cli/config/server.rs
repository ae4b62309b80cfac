//! `[server]`: the listen address and the limits.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::callback::{CallbackKey, CallbackSecrets};
use holdpoint_http::WebOrigin;

use super::table::{Entry, Table};

/// As many as any machine has memory for.
const RUNNING_RUNS_MAX: u64 = 1_000_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
/// A shorter secret could be guessed.
const CALLBACK_SECRET_BYTES_MIN: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Server {
    pub(in crate::cli) listen: SocketAddr,
    /// Limit of executing runs; more are queued.
    pub(in crate::cli) running_runs_max: usize,
    /// Per client address. None: no limit.
    pub(in crate::cli) connections_per_address_max: Option<usize>,
    /// The base URL for callbacks. None: the listen address.
    pub(in crate::cli) public_url: Option<String>,
    /// Other origins whose web pages may call.
    pub(in crate::cli) allow_origins: Vec<WebOrigin>,
    /// How long running calls may take to finish after the server receives a stop signal.
    pub(in crate::cli) drain: Duration,
    /// The secrets that sign callback tokens. None: the store keeps a key.
    pub(in crate::cli) callback_secrets: Option<CallbackSecrets>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8787)),
            running_runs_max: 256,
            connections_per_address_max: holdpoint_http::Limits::default().connections_per_address_max,
            public_url: None,
            allow_origins: Vec::new(),
            drain: Duration::from_secs(30),
            callback_secrets: None,
        }
    }
}

impl Server {
    pub(super) fn read(entry: Option<Entry<'_>>, has_auth: bool) -> Self {
        let mut server = Self::default();
        let Some(mut table) = entry.and_then(|entry| entry.table("a table [server]")) else { return server };
        let listen = table.take("listen");
        if let Some(listen) = &listen {
            server.listen = address(listen).unwrap_or(server.listen);
            if !server.listen.ip().is_loopback() && !has_auth {
                listen.location.fault(format!(
                    "{} can be reached from other machines and there is no [auth]; add [auth] with keys, or listen on \
                     127.0.0.1",
                    server.listen
                ));
            }
        }
        let runs = table.take("max_running_runs").and_then(|entry| entry.integer(1, RUNNING_RUNS_MAX));
        server.running_runs_max =
            runs.and_then(|runs| usize::try_from(runs).ok()).unwrap_or(server.running_runs_max);
        let connections =
            table.take("max_connections_per_address").and_then(|entry| entry.integer(0, CONNECTIONS_MAX));
        if let Some(connections) = connections.and_then(|count| usize::try_from(count).ok()) {
            // As with every limit, 0 disables it.
            server.connections_per_address_max = Some(connections).filter(|count| *count > 0);
        }
        server.public_url = public_url(&mut table);
        server.allow_origins = allow_origins(&mut table);
        server.drain = table.take("drain").and_then(|entry| entry.duration()).unwrap_or(server.drain);
        server.callback_secrets = callback_secrets(&mut table);
        table.finish();
        if let Some(listen) = listen.filter(|_| has_auth && server.is_exposed_without_tls()) {
            listen.location.warn(EXPOSED_WITHOUT_TLS);
        }
        server
    }

    /// Whether other machines can reach the server and nothing indicates that they do so through TLS.
    pub(in crate::cli) fn is_exposed_without_tls(&self) -> bool {
        let is_behind_tls = self.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
        !self.listen.ip().is_loopback() && !is_behind_tls
    }
}

pub(in crate::cli) const EXPOSED_WITHOUT_TLS: &str = "other machines can reach this address, and tokens and arguments travel \
    unencrypted unless TLS is in front of it; put a proxy with TLS in front and set server.public_url to its https:// address";

const ADDRESS: &str = "an address and a port, such as \"127.0.0.1:8787\"";

fn address(entry: &Entry<'_>) -> Option<SocketAddr> {
    listen_address(entry.text(ADDRESS)?).map_or_else(|why| entry.location.refuse(why), Some)
}

/// An address as written in the file or on the command line.
pub(in crate::cli) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let here = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let found = here.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    found.or_else(|| text.parse().ok()).ok_or_else(|| format!("{text:?} is no such address; write {ADDRESS}"))
}

fn callback_secrets(table: &mut Table<'_>) -> Option<CallbackSecrets> {
    let signing = table.take("callback_secret_env");
    let also_accepted = table.take("callback_other_secret_env");
    if let (None, Some(entry)) = (&signing, &also_accepted) {
        entry.location.fault("a second secret needs a first one; write callback_secret_env too");
    }
    let also_accepted = also_accepted.and_then(|entry| callback_key(&entry));
    Some(CallbackSecrets { signing: callback_key(&signing?)?, also_accepted })
}

fn callback_key(entry: &Entry<'_>) -> Option<CallbackKey> {
    let variable = entry.variable_name()?;
    let secret = std::env::var(variable).unwrap_or_default();
    if secret.len() < CALLBACK_SECRET_BYTES_MIN {
        entry.location.unset(format!(
            "the environment variable {variable} has to hold at least {CALLBACK_SECRET_BYTES_MIN} characters; set it to a \
             random text, such as the output of `openssl rand -hex 32`"
        ));
        return None;
    }
    Some(CallbackKey::from_secret(&secret))
}

const ORIGINS: &str = "a list of origins, such as [\"https://app.example.com\"]";

fn allow_origins(table: &mut Table<'_>) -> Vec<WebOrigin> {
    let items = table.take("allow_origins").and_then(|entry| entry.items(ORIGINS)).unwrap_or_default();
    let origin = |entry: &Entry<'_>| {
        let text = entry.text("an origin, such as \"https://app.example.com\"")?;
        text.parse().map_or_else(|why: String| entry.location.refuse(why), Some)
    };
    items.iter().filter_map(origin).collect()
}

fn public_url(table: &mut Table<'_>) -> Option<String> {
    let entry = table.take("public_url")?;
    entry.http_url().map(|url| url.trim_end_matches('/').to_owned())
}
