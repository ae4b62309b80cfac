//! Encryption of connections: as much as the address asks for, and never less.
//!
//! `sslmode` means what it means to PostgreSQL's own programs. `disable` never encrypts. `prefer`, the default,
//! encrypts if the server can, and otherwise continues in plain text. `require` encrypts or fails, and accepts any
//! certificate. `verify-ca` also requires a certificate of a trusted authority; `verify-full` requires in addition that
//! it is issued to the host. `sslrootcert` names a file with the trusted authorities, or `system`; without it the
//! system's CA certificates are used.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Config, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::errors::PostgresOpenError;

/// The ALPN name of PostgreSQL.
const PROTOCOL: &[u8] = b"postgresql";
const MODES: &str = "sslmode is disable, prefer, require, verify-ca or verify-full";

/// The `sslmode` of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The options of an address that we process ourselves, as written there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    mode: Option<String>,
    authorities: Option<String>,
}

impl TlsOptions {
    /// True if the option is one of ours.
    fn set(&mut self, key: &str, value: &str) -> bool {
        match key {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.authorities = Some(value.to_owned()),
            _ => return false,
        }
        true
    }

    fn mode(&self, otherwise: SslMode) -> Result<Mode, PostgresOpenError> {
        match self.mode.as_deref() {
            Some("disable") => Ok(Mode::Disable),
            Some("prefer") => Ok(Mode::Prefer),
            Some("require") => Ok(Mode::Require),
            Some("verify-ca") => Ok(Mode::VerifyCa),
            Some("verify-full") => Ok(Mode::VerifyFull),
            Some(_) => Err(PostgresOpenError::Address(MODES.into())),
            None if otherwise == SslMode::Disable => Ok(Mode::Disable),
            None if otherwise == SslMode::Prefer => Ok(Mode::Prefer),
            // The client library may add modes; none of them asks for less than this.
            None => Ok(Mode::Require),
        }
    }
}

/// Separates our options from the address, because the client library would not know them.
pub(super) fn split_tls_options(address: &str) -> (Cow<'_, str>, TlsOptions) {
    let mut options = TlsOptions::default();
    let is_url = address.starts_with("postgres://") || address.starts_with("postgresql://");
    if !is_url {
        let kept: Vec<&str> = split_words(address)
            .into_iter()
            .filter(|word| {
                let pair = word.split_once('=');
                !pair.is_some_and(|(key, value)| options.set(key.trim(), value.trim().trim_matches('\'')))
            })
            .collect();
        return (kept.join(" ").into(), options);
    }
    // A name or a password may contain anything; options begin after them.
    let host_at = address.find('@').unwrap_or(0);
    let Some(query_at) = address.get(host_at..).and_then(|rest| rest.find('?')).map(|at| host_at + at) else {
        return (address.into(), options);
    };
    let (front, query) = address.split_at(query_at);
    let kept: Vec<&str> = query
        .trim_start_matches('?')
        .split('&')
        .filter(|pair| {
            !pair.split_once('=').is_some_and(|(key, value)| options.set(key, &percent_decode(value)))
        })
        .collect();
    let sign = if kept.is_empty() { "" } else { "?" };
    (format!("{front}{sign}{}", kept.join("&")).into(), options)
}

/// The parts of an address that is not a URL; quoted text stays together.
fn split_words(address: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_end = |sign: char| {
        let ends = sign.is_whitespace() && !is_quoted && !is_escaped;
        is_quoted ^= sign == '\'' && !is_escaped;
        is_escaped = sign == '\\' && !is_escaped;
        ends
    };
    address.split(is_end).filter(|word| !word.is_empty()).collect()
}

/// Decodes `%2F` to `/`. Invalid sequences stay as they are.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Encrypts connections: if the server can, or always, depending on the mode.
#[derive(Clone)]
pub(super) struct Tls {
    client: Arc<ClientConfig>,
}

impl Tls {
    /// Makes the configuration demand as much encryption as the options ask for.
    pub(super) fn new(config: &mut Config, options: &TlsOptions) -> Result<Self, PostgresOpenError> {
        let mode = options.mode(config.get_ssl_mode())?;
        config.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|why| PostgresOpenError::Certificates(why.to_string()))?;
        let by_chain = |verifier: PartialVerifier| {
            builder.clone().dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let builder = match (mode, &options.authorities) {
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => {
                by_chain(PartialVerifier { chain: None, provider })
            }
            (Mode::Require | Mode::VerifyCa, authorities) => {
                let known = Arc::new(root_store(authorities.as_deref())?);
                let chain = WebPkiServerVerifier::builder_with_provider(known, provider.clone()).build();
                let chain = chain.map_err(|why| PostgresOpenError::Certificates(why.to_string()))?;
                by_chain(PartialVerifier { chain: Some(chain), provider })
            }
            (Mode::VerifyFull, authorities) => {
                builder.with_root_certificates(root_store(authorities.as_deref())?)
            }
        };
        let mut client = builder.with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { client: Arc::new(client) })
    }
}

/// The trusted certificate authorities.
fn root_store(named: Option<&str>) -> Result<RootCertStore, PostgresOpenError> {
    let failed = |why: String| PostgresOpenError::Certificates(why);
    let mut known = RootCertStore::empty();
    match named {
        None | Some("system") => {
            known.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let unreadable = |why: String| failed(format!("{file} cannot be read: {why}"));
            let found =
                CertificateDer::pem_file_iter(Path::new(file)).map_err(|why| unreadable(why.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|why| unreadable(why.to_string()))?;
                known.add(certificate).map_err(|why| unreadable(why.to_string()))?;
            }
        }
    }
    if known.is_empty() {
        return Err(failed(format!("{} has no authorities", named.unwrap_or("the system"))));
    }
    Ok(known)
}

/// Verifies only a part of a certificate, as documented for the `sslmode` that the operator chose.
#[derive(Debug)]
struct PartialVerifier {
    /// `None` accepts any certificate; otherwise it must come from a trusted authority, whatever host it names.
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PartialVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = EncryptedStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: self.client.clone().into(), host: host.to_owned() })
    }
}

/// Upgrades one connection to an encrypted one.
pub(super) struct Handshake {
    connector: TlsConnector,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(EncryptedStream(self.connector.connect(host, socket).await?))
        })
    }
}

pub(super) struct EncryptedStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(mode: &str, authorities: Option<&str>) -> TlsOptions {
        TlsOptions { mode: Some(mode.into()), authorities: authorities.map(str::to_owned) }
    }

    #[test]
    fn tls_options_are_found_anywhere_in_an_address() {
        let verified = options("verify-full", Some("/a b/ca.crt"));
        for (address, rest) in [
            (
                "postgres://me:p?ss@db/h?sslmode=verify-full&application_name=a&sslrootcert=%2Fa%20b%2Fca.crt",
                "postgres://me:p?ss@db/h?application_name=a",
            ),
            ("postgresql://db/h?sslrootcert=/a b/ca.crt&sslmode=verify-full", "postgresql://db/h"),
            (
                "host=db sslmode='verify-full' password='it''s  \\' sslmode=disable' sslrootcert='/a b/ca.crt'",
                "host=db password='it''s  \\' sslmode=disable'",
            ),
        ] {
            let (kept, found) = split_tls_options(address);
            assert_eq!((&*kept, &found), (rest, &verified), "{address}");
        }
        assert_eq!(split_tls_options("postgres://db/h").1, TlsOptions::default());
    }

    #[test]
    fn no_mode_is_weaker_than_requested() {
        let mode = |options: &TlsOptions, config| options.mode(config).ok();
        assert_eq!(mode(&TlsOptions::default(), SslMode::Prefer), Some(Mode::Prefer));
        assert_eq!(
            mode(&TlsOptions::default(), SslMode::Require),
            Some(Mode::Require),
            "the client has read it"
        );
        assert_eq!(mode(&options("verify-ca", None), SslMode::Prefer), Some(Mode::VerifyCa));
        for unknown in ["allow", "", "VERIFY-FULL", "verify_full"] {
            assert_eq!(mode(&options(unknown, None), SslMode::Prefer), None, "{unknown}");
        }
    }
}
