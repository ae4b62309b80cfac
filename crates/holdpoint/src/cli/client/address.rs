//! Which server to contact, and which token to send.

use std::env::{self, VarError};
use std::net::Ipv4Addr;

use clap::Args;
use engine::masking;
use hyper::Uri;
use hyper::header::HeaderValue;

use super::connection::Connection;
use crate::cli::GlobalArgs;
use crate::cli::open_token::OpenToken;
use crate::cli::output::print_stderr;
use crate::cli::problem::{Exit, Problem};

const URL_VARIABLE: &str = "HOLDPOINT_URL";
const TOKEN_VARIABLE: &str = "HOLDPOINT_TOKEN";
/// The default listen address of a server.
const DEFAULT_URL: &str = "http://127.0.0.1:8787";
/// Replaces a token in output.
const MASK: &str = "[token]";

pub(super) const ENVIRONMENT: &str = "Environment:\n  \
    HOLDPOINT_URL    the server, where --url does not name it; else http://127.0.0.1:8787\n  \
    HOLDPOINT_TOKEN  the token, where the server wants one; it is never an argument. The token of a server without [auth] on\n                   \
    this machine is found without it, and sent only with approve, reject and answer";

/// What a command wants from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request for which a server without `[auth]` needs no token.
    General,
    /// A decision, for which a server without `[auth]` needs its token.
    Decide,
}

/// The server, as a command line names it.
#[derive(Debug, Args)]
pub(super) struct ServerAddress {
    /// The server, such as https://runs.example.com; else HOLDPOINT_URL, else http://127.0.0.1:8787
    #[arg(long, global = true, value_name = "URL")]
    pub(super) url: Option<String>,
}

impl ServerAddress {
    /// Sends nothing yet.
    pub(super) fn connect(&self, global: &GlobalArgs, purpose: Purpose) -> Result<Connection, Problem> {
        if global.store_is_explicit {
            return Err(Problem::new(
                "WRONG_COMMAND_LINE",
                "this command asks a server, and the server knows its store",
                "Leave --store out, and name the server with --url.",
                Exit::Configuration,
            ));
        }
        let (text, named_by) = match (&self.url, env::var(URL_VARIABLE)) {
            (Some(url), _) => (url.clone(), "--url"),
            (None, Ok(url)) if !url.trim().is_empty() => (url, URL_VARIABLE),
            (None, Ok(_) | Err(VarError::NotPresent)) => (DEFAULT_URL.to_owned(), URL_VARIABLE),
            (None, Err(VarError::NotUnicode(_))) => return Err(bad_url(URL_VARIABLE)),
        };
        let server_url = ServerUrl::parse(text.trim()).ok_or_else(|| bad_url(named_by))?;
        let from_env = Token::from_environment()?;
        let from_file = match (&from_env, purpose) {
            (None, Purpose::Decide) => server_url.open_token(),
            (Some(_), _) | (None, Purpose::General) => None,
        };
        if from_env.is_some() && !server_url.is_secure && !server_url.is_loopback {
            print_stderr(&format!(
                "note: the token goes to {} unencrypted; https would hide it",
                server_url.base
            ));
        }
        Connection::new(server_url, Tokens { from_env, from_file })
    }
}

/// The message does not repeat the address, which can contain a password.
fn bad_url(named_by: &str) -> Problem {
    Problem::new(
        "BAD_URL",
        format!("what {named_by} names is not the address of a server"),
        "Write it as http://HOST:PORT or https://HOST, without a user, a password or a query.",
        Exit::Configuration,
    )
}

/// The URL of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerUrl {
    /// Has no trailing slash; a path follows.
    pub(super) base: String,
    pub(super) is_secure: bool,
    /// The host is this machine.
    is_loopback: bool,
    port: Option<u16>,
}

impl ServerUrl {
    fn parse(text: &str) -> Option<Self> {
        let address: Uri = text.parse().ok()?;
        let is_secure = match address.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = address.authority()?;
        let is_plain = !authority.as_str().contains('@') && address.query().is_none() && !text.contains('#');
        let host = authority.host();
        // A host name may begin like a number: 127.example.com can be any machine.
        let is_loopback = ["localhost", "[::1]"].contains(&host)
            || host.parse::<Ipv4Addr>().is_ok_and(|number| number.is_loopback());
        let port = authority.port_u16();
        is_plain.then(|| Self { base: text.trim_end_matches('/').to_owned(), is_secure, is_loopback, port })
    }

    /// Whether a server without `[auth]` at this address has a token file that the commands can use.
    pub(super) fn has_open_token_file(&self) -> bool {
        matches!(self.find_open_token(), Ok(Some(_)))
    }

    /// The token of a server without `[auth]` on this machine. It is never sent to another machine.
    fn find_open_token(&self) -> Result<Option<String>, String> {
        if self.is_secure || !self.is_loopback {
            return Ok(None);
        }
        OpenToken::for_client(self.port.unwrap_or(80))
    }

    fn open_token(&self) -> Option<Token> {
        match self.find_open_token() {
            Ok(token) => Token::new(&token?),
            Err(why) => {
                print_stderr(&format!(
                    "note: the server's token is not used: {why}; set {TOKEN_VARIABLE} in its place"
                ));
                None
            }
        }
    }
}

/// The tokens that a command may send.
pub(super) struct Tokens {
    /// From HOLDPOINT_TOKEN; every request carries it.
    pub(super) from_env: Option<Token>,
    /// From the token file of a server without `[auth]`. Another process may listen on that server's port, so only
    /// requests that need the token carry it.
    pub(super) from_file: Option<Token>,
}

impl Tokens {
    /// Masks the tokens in a text from the server, which may repeat them.
    pub(super) fn masked(&self, text: &str) -> String {
        let tokens = [&self.from_env, &self.from_file];
        tokens.into_iter().flatten().fold(text.to_owned(), |text, token| token.masked(&text))
    }
}

/// A bearer token. No printable representation reveals it.
pub(super) struct Token {
    text: String,
    header: HeaderValue,
}

impl Token {
    fn from_environment() -> Result<Option<Self>, Problem> {
        let text = match env::var(TOKEN_VARIABLE) {
            Ok(text) => text,
            Err(VarError::NotPresent) => return Ok(None),
            Err(VarError::NotUnicode(_)) => return Err(bad_token()),
        };
        // A token read from a file ends with a line break.
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        Self::new(text).map(Some).ok_or_else(bad_token)
    }

    fn new(text: &str) -> Option<Self> {
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        header.set_sensitive(true);
        Some(Self { text: text.to_owned(), header })
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    fn masked(&self, text: &str) -> String {
        masking::masked(text, &self.text, MASK)
    }
}

fn bad_token() -> Problem {
    Problem::new(
        "BAD_TOKEN",
        format!("{TOKEN_VARIABLE} has characters that no header can carry"),
        "Set it to the token itself, without quotation marks or ends of lines in it.",
        Exit::Configuration,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_path() {
        let base = |text| ServerUrl::parse(text).map(|server_url| server_url.base);
        for (text, expected) in [
            ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
            ("http://127.0.0.1:8787/", "http://127.0.0.1:8787"),
            ("https://example.com/holdpoint/", "https://example.com/holdpoint"),
        ] {
            assert_eq!(base(text).as_deref(), Some(expected));
        }
        for bad in [
            "",
            "127.0.0.1:8787",
            "localhost",
            "ftp://example.com",
            "http://",
            "http://ann:sesame@example.com",
            "http://example.com/?token=sesame",
            "http://example.com/#runs",
            "http://exa mple.com",
        ] {
            assert_eq!(base(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_loopback_addresses_are_local() {
        let is_loopback = |text| ServerUrl::parse(text).expect("an address").is_loopback;
        for near in ["http://127.0.0.1:8787", "http://127.9.9.9", "http://localhost", "http://[::1]:1"] {
            assert!(is_loopback(near), "{near}");
        }
        for far in ["http://127.example.com", "http://127.0.0.1.example.com:8787", "http://128.0.0.1"] {
            assert!(!is_loopback(far), "{far}");
        }
    }

    #[test]
    fn a_token_that_is_echoed_is_masked() {
        let token = Token::new("open sesame").expect("a header can carry it");
        assert_eq!(token.masked("wrong key: open sesame!"), "wrong key: [token]!");
        assert!(format!("{:?}", token.header()).contains("Sensitive"));
        assert!(Token::new("two\nlines").is_none());
    }
}
