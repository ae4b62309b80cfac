//! The token of a server without keys: the file that stores it, and the refusal of a request that lacks it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::error::{ApiError, Code};

/// The name of the file that stores the token of a server without keys. All loopback addresses count as one host: a
/// client that was given another of them looks for the same file.
#[must_use]
pub fn open_token_file(listen: SocketAddr) -> String {
    let host = if listen.ip().is_loopback() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    format!("{host}-{}.token", listen.port())
}

/// What a request to a server without keys sent as the server's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenToken {
    Missing,
    Wrong,
    Valid,
}

impl OpenToken {
    /// The refusal of a request that needs the token of the server that listens here.
    pub(crate) fn refusal(self, listen: SocketAddr) -> ApiError {
        let file = open_token_file(listen);
        let place = format!("$XDG_STATE_HOME/holdpoint/{file} (default: ~/.local/state/holdpoint/{file})");
        let message = match self {
            Self::Wrong => format!(
                "the token that was sent is not this server's token, and nothing was changed. The server prints its token \
                 as `token: …` on the line after \"listening on\" when it starts, and keeps it in {place}; send that \
                 one as `Authorization: Bearer TOKEN`"
            ),
            // `Valid` is not expected: a valid token has every role.
            Self::Missing | Self::Valid => format!(
                "this needs the server's token, and nothing was changed; send `Authorization: Bearer TOKEN`. The server \
                 prints the token when it starts, on the line after \"listening on\", and keeps it in {place}"
            ),
        };
        ApiError::new(Code::Unauthorized, message)
    }
}
