//! The servers that an address names. Each is tried for its share of the time, so that an unresponsive server leaves
//! time for the next; the one that answered last is tried first.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::errors::{PostgresError, PostgresOpenError, unavailable};
use super::tls::{EncryptedStream, Tls};

const DEFAULT_PORT: u16 = 5432;

/// One server, as written in the address.
#[derive(Clone)]
struct Server {
    /// Also checked against its certificate.
    host: Option<Host>,
    address: Option<IpAddr>,
    port: u16,
}

#[derive(Clone)]
pub(super) struct Servers {
    /// The options shared by all servers, without a host.
    config: Config,
    servers: Arc<[Server]>,
    /// The index of the server that accepted us last. All connections of a node share it.
    last: Arc<AtomicUsize>,
    /// The maximum time per server, if the address sets one.
    each_max: Option<Duration>,
}

/// Why no server accepted us.
pub(super) enum NotConnected {
    /// The error of the last server.
    Refused(tokio_postgres::Error),
    /// The last server did not answer within its time.
    TimedOut(Duration),
}

pub(super) type OpenConnection = (Client, Connection<Socket, EncryptedStream>);

impl Servers {
    pub(super) fn from_config(config: &Config) -> Result<Self, PostgresOpenError> {
        let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let count = hosts.len().max(addresses.len());
        let fits = |given: usize| given <= 1 || given == count;
        let wrong = if count == 0 {
            Some("it names no host")
        } else if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
            Some("it has not as many hosts as addresses of hosts (hostaddr)")
        } else if !fits(ports.len()) {
            Some("it has not as many ports as hosts")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(PostgresOpenError::Address(wrong.into()));
        }
        let server = |index: usize| Server {
            host: hosts.get(index).cloned(),
            address: addresses.get(index).copied(),
            port: *ports.get(index).or(ports.first()).unwrap_or(&DEFAULT_PORT),
        };
        let mut shared = without_hosts(config);
        // Only one of several servers accepts writes, and a node has no use for the others.
        if count > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            shared.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self {
            config: shared,
            servers: (0..count).map(server).collect(),
            last: Arc::default(),
            each_max: config.get_connect_timeout().copied(),
        })
    }

    /// A connection whose handshake is complete, to the first server that accepts us.
    pub(super) async fn connect(&self, tls: &Tls, within: Duration) -> Result<OpenConnection, NotConnected> {
        let until = Instant::now() + within;
        let last = self.last.load(Ordering::Relaxed);
        let others = (0..self.servers.len()).filter(|index| *index != last);
        let order: Vec<usize> = std::iter::once(last).chain(others).collect();
        let mut refused = NotConnected::TimedOut(within);
        for (tried, index) in order.iter().enumerate() {
            let Some(server) = self.servers.get(*index) else { continue };
            match self.connect_to(server, tls, deadline_share(until, order.len() - tried)).await {
                Ok(opened) => {
                    self.last.store(*index, Ordering::Relaxed);
                    return Ok(opened);
                }
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// Tries every address that the server's name resolves to.
    async fn connect_to(
        &self,
        server: &Server,
        tls: &Tls,
        until: Instant,
    ) -> Result<OpenConnection, NotConnected> {
        let began = Instant::now();
        let timed_out = || NotConnected::TimedOut(began.elapsed());
        let addresses = timeout_at(until, server.addresses()).await.map_err(|_| timed_out())?;
        let mut refused = timed_out();
        for (tried, address) in addresses.iter().enumerate() {
            let mut at = deadline_share(until, addresses.len() - tried);
            if let Some(max) = self.each_max {
                at = at.min(Instant::now() + max);
            }
            match timeout_at(at, self.config_for(server, *address).connect(tls.clone())).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(why)) => refused = NotConnected::Refused(why),
                Err(_) => refused = timed_out(),
            }
        }
        Err(refused)
    }

    fn config_for(&self, server: &Server, address: Option<IpAddr>) -> Config {
        let mut config = self.config.clone();
        config.port(server.port);
        match &server.host {
            Some(Host::Tcp(name)) => config.host(name),
            #[cfg(unix)]
            Some(Host::Unix(path)) => config.host_path(path),
            None => &mut config,
        };
        if let Some(address) = address {
            config.hostaddr(address);
        }
        config
    }
}

impl Server {
    /// `None` leaves the host to the client library: a Unix socket has no address, and if a name cannot be resolved the
    /// client library reports why.
    async fn addresses(&self) -> Vec<Option<IpAddr>> {
        let found: Vec<Option<IpAddr>> = match (&self.host, self.address) {
            (_, Some(address)) => vec![Some(address)],
            (Some(Host::Tcp(name)), None) => {
                match tokio::net::lookup_host((name.as_str(), self.port)).await {
                    Ok(found) => found.map(|address| Some(address.ip())).collect(),
                    Err(_) => Vec::new(),
                }
            }
            #[cfg(unix)]
            (Some(Host::Unix(_)), None) => Vec::new(),
            (None, None) => Vec::new(),
        };
        if found.is_empty() { vec![None] } else { found }
    }
}

/// The remaining time, divided by the number of remaining servers.
fn deadline_share(until: Instant, left: usize) -> Instant {
    let now = Instant::now();
    now + until.saturating_duration_since(now) / u32::try_from(left.max(1)).unwrap_or(u32::MAX)
}

fn without_hosts(from: &Config) -> Config {
    let mut config = Config::new();
    if let Some(user) = from.get_user() {
        config.user(user);
    }
    if let Some(password) = from.get_password() {
        config.password(password);
    }
    if let Some(name) = from.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = from.get_options() {
        config.options(options);
    }
    if let Some(name) = from.get_application_name() {
        config.application_name(name);
    }
    if let Some(time) = from.get_tcp_user_timeout() {
        config.tcp_user_timeout(*time);
    }
    if let Some(every) = from.get_keepalives_interval() {
        config.keepalives_interval(every);
    }
    if let Some(count) = from.get_keepalives_retries() {
        config.keepalives_retries(count);
    }
    config
        .keepalives(from.get_keepalives())
        .keepalives_idle(from.get_keepalives_idle())
        .ssl_mode(from.get_ssl_mode())
        .ssl_negotiation(from.get_ssl_negotiation())
        .channel_binding(from.get_channel_binding())
        .target_session_attrs(from.get_target_session_attrs());
    config
}

impl From<NotConnected> for PostgresError {
    fn from(why: NotConnected) -> Self {
        match why {
            NotConnected::Refused(error) => error.into(),
            NotConnected::TimedOut(waited) => {
                unavailable(format!("the database did not answer within {:.1} s", waited.as_secs_f32()))
            }
        }
    }
}

impl From<NotConnected> for PostgresOpenError {
    fn from(why: NotConnected) -> Self {
        PostgresError::from(why).into()
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn servers(address: &str) -> Result<Servers, PostgresOpenError> {
        Servers::from_config(&Config::from_str(address).expect("an address that can be read"))
    }

    #[test]
    fn nothing_of_an_address_is_lost_but_its_hosts() {
        let address = "host=a,b hostaddr=127.0.0.1,127.0.0.2 port=1,2 user=u password=p dbname=d options='-c x=1' \
            application_name=n sslmode=require sslnegotiation=direct connect_timeout=1 tcp_user_timeout=7 keepalives=0 \
            keepalives_idle=3 keepalives_interval=4 keepalives_retries=5 target_session_attrs=read-only \
            channel_binding=disable";
        let whole = Config::from_str(address).expect("an address that can be read");
        let servers = Servers::from_config(&whole).expect("two servers");
        assert_eq!(servers.each_max, Some(Duration::from_secs(1)));
        let second = servers.servers.get(1).expect("two servers");
        let mut built = servers.config_for(second, second.address);
        built.connect_timeout(Duration::from_secs(1));
        let same =
            address.replace("a,b", "b").replace("127.0.0.1,127.0.0.2", "127.0.0.2").replace("1,2", "2");
        assert_eq!(built, Config::from_str(&same).expect("an address that can be read"));
    }

    #[test]
    fn of_several_servers_the_one_that_takes_writes_is_meant() {
        let attributes = |address: &str| {
            servers(address).map(|servers| servers.config.get_target_session_attrs()).expect("servers")
        };
        assert_eq!(attributes("host=a,b"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attributes("host=a"), TargetSessionAttrs::Any);
        assert_eq!(attributes("host=a,b target_session_attrs=read-only"), TargetSessionAttrs::ReadOnly);
    }

    #[test]
    fn an_address_whose_parts_do_not_fit_is_refused() {
        for address in ["user=u", "host=a,b hostaddr=127.0.0.1", "host=a,b,c port=1,2"] {
            assert!(matches!(servers(address), Err(PostgresOpenError::Address(_))), "{address}");
        }
    }
}
