//! How the nodes of a world reach their server, and which server that is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::ClusterSetup;
use super::plan::Trouble;
use crate::chance::Chance;
use crate::proxy::Proxy;
use crate::server::Server;

pub(super) struct ServerAccess {
    /// The address that the nodes use.
    pub(super) address: String,
    /// The direct address, without a proxy, for reading the store at the end.
    pub(super) direct_address: String,
    pub(super) server: Arc<Server>,
    pub(super) standby: Option<Server>,
    pub(super) proxy: Option<Proxy>,
}

impl ServerAccess {
    pub(super) fn for_trouble(
        setup: &ClusterSetup,
        trouble: Trouble,
        folder: &Path,
        chance: &mut Chance,
    ) -> io::Result<Self> {
        match trouble {
            Trouble::Nothing | Trouble::Kill(_) | Trouble::Pause(_) | Trouble::Stale(_) => {
                Ok(Self::direct(&setup.steady))
            }
            Trouble::Crash => Ok(Self::direct(&setup.shaky()?)),
            Trouble::Cut => {
                let direct = Self::direct(&setup.steady);
                let proxy = Proxy::to(direct.server.port(), chance.number())?;
                let address = Server::address_by_port(proxy.port());
                Ok(Self { address, proxy: Some(proxy), ..direct })
            }
            Trouble::Promotion => {
                let server = Arc::new(Server::start(&folder.join("primary"))?);
                let standby = server.start_standby(&folder.join("standby"))?;
                let (address, direct_address) = (server.address_with(&standby), standby.address());
                Ok(Self { address, direct_address, server, standby: Some(standby), proxy: None })
            }
        }
    }

    fn direct(server: &Arc<Server>) -> Self {
        let address = server.address();
        Self { direct_address: address.clone(), address, server: server.clone(), standby: None, proxy: None }
    }
}
