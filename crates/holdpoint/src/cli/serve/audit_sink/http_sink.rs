//! An address that gets records by POST, as lines of JSON.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use machine::id::Digest;
use rustls::{ClientConfig, RootCertStore};

/// Shorter than what makes a delivery late.
const ANSWER_MAX: Duration = Duration::from_secs(4);

type SinkClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(super) struct HttpSink {
    url: String,
    token: Option<String>,
    client: Option<SinkClient>,
}

impl HttpSink {
    pub(super) const fn new(url: String, token: Option<String>) -> Self {
        Self { url, token, client: None }
    }

    /// Under which the store keeps how much this address has taken.
    pub(super) fn id(&self) -> Digest {
        Digest::sha256(self.url.as_bytes())
    }

    /// Any answer of 2xx means that the records are kept.
    pub(super) async fn post(&mut self, text: String) -> Result<(), String> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(client(self.url.starts_with("https://"))?).clone(),
        };
        let mut request = Request::post(&self.url).header(CONTENT_TYPE, "application/x-ndjson");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request =
            request.body(Full::from(text)).map_err(|why| format!("its address is not valid: {why}"))?;
        match tokio::time::timeout(ANSWER_MAX, client.request(request)).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => Err(format!("its address answered {}", answer.status())),
            Ok(Err(why)) => {
                let cause = why.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Err(format!("its address cannot be reached: {why}{cause}"))
            }
            Err(_) => Err(format!("its address did not answer within {} s", ANSWER_MAX.as_secs())),
        }
    }
}

/// Loads the system's CA certificates only for an `https` address.
fn client(is_secure: bool) -> Result<SinkClient, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|why| why.to_string())?;
    let config = if is_secure {
        config.with_native_roots().map_err(|why| format!("no CA certificates are found: {why}"))?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(ANSWER_MAX));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).build(https))
}
