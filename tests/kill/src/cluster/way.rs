//! How the nodes of a world reach their server, and which server that is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Ground;
use super::plan::Trouble;
use crate::chance::Chance;
use crate::proxy::Proxy;
use crate::server::Server;

pub(super) struct Way {
    /// The address that the nodes use.
    pub(super) address: String,
    /// The direct address, without a proxy, for reading the store at the end.
    pub(super) near: String,
    pub(super) server: Arc<Server>,
    pub(super) standby: Option<Server>,
    pub(super) proxy: Option<Proxy>,
}

impl Way {
    pub(super) fn to_a_server(
        ground: &Ground,
        trouble: Trouble,
        folder: &Path,
        chance: &mut Chance,
    ) -> io::Result<Self> {
        match trouble {
            Trouble::Nothing | Trouble::Kill(_) | Trouble::Pause(_) | Trouble::Stale(_) => {
                Ok(Self::straight(&ground.steady))
            }
            Trouble::Crash => Ok(Self::straight(&ground.shaky()?)),
            Trouble::Cut => {
                let straight = Self::straight(&ground.steady);
                let proxy = Proxy::to(straight.server.port(), chance.number())?;
                let address = Server::address_by_port(proxy.port());
                Ok(Self { address, proxy: Some(proxy), ..straight })
            }
            Trouble::Promotion => {
                let server = Arc::new(Server::start(&folder.join("primary"))?);
                let standby = server.start_standby(&folder.join("standby"))?;
                let (address, near) = (server.address_with(&standby), standby.address());
                Ok(Self { address, near, server, standby: Some(standby), proxy: None })
            }
        }
    }

    fn straight(server: &Arc<Server>) -> Self {
        let address = server.address();
        Self { near: address.clone(), address, server: server.clone(), standby: None, proxy: None }
    }
}
