//! TLS: a store connects with the `sslmode` that its address asks for, or not at all.

use std::sync::OnceLock;

use stores::postgres::{PostgresOpenError, PostgresSettings, PostgresStore};

use crate::nodes::{Cluster, until};
use crate::postgres_server::{Server, server};

fn encrypting() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::encrypted();
        server.make_authority("stranger");
        server
    })
}

/// A URL whose application name identifies the connections of the test.
fn url(server: &Server, host: &str, name: &str, asks: &str) -> String {
    format!("postgres://holdpoint@{host}:{}/postgres?application_name={name}&{asks}", server.port)
}

fn authority(name: &str) -> String {
    format!("sslrootcert={}", encrypting().authority(name).display())
}

async fn open(address: &str, cluster: &Cluster<'_>) -> Result<PostgresStore, PostgresOpenError> {
    let settings = PostgresSettings { schema: cluster.schema.clone(), ..PostgresSettings::default() };
    PostgresStore::open_with(address, settings).await
}

/// Waits for the connections of a node with this application name, and returns whether each is encrypted.
async fn are_encrypted(cluster: &Cluster<'_>, name: &str) -> Vec<bool> {
    let client = cluster.client().await;
    let sql = "SELECT s.ssl FROM pg_stat_activity a JOIN pg_stat_ssl s ON s.pid = a.pid WHERE a.application_name = $1";
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    until("the node's connections", || async {
        client.query_one(count, &[&name]).await.unwrap().get::<_, i64>(0) >= 3
    })
    .await;
    client.query(sql, &[&name]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn every_connection_of_a_node_is_encrypted() {
    let server = encrypting();
    let known = authority("authority");
    for (name, asks) in [
        ("tls_full", format!("sslmode=verify-full&{known}")),
        ("tls_require", "sslmode=require".to_owned()),
        ("tls_prefer", "sslmode=prefer".to_owned()),
        ("tls_silent", "connect_timeout=5".to_owned()),
    ] {
        let cluster = Cluster::on(server);
        let _node = open(&url(server, "localhost", name, &asks), &cluster).await.expect("the store opens");
        let encrypted = are_encrypted(&cluster, name).await;
        assert!(encrypted.iter().all(|encrypted| *encrypted), "{name}: {encrypted:?}");
    }
    let cluster = Cluster::on(server);
    let address = url(server, "localhost", "tls_plain", "sslmode=disable");
    let _node = open(&address, &cluster).await.expect("the store opens");
    let encrypted = are_encrypted(&cluster, "tls_plain").await;
    assert!(!encrypted.contains(&true), "sslmode=disable was encrypted: {encrypted:?}");
}

#[tokio::test]
async fn a_server_that_cannot_prove_who_it_is_is_refused() {
    let server = encrypting();
    let cluster = Cluster::on(server);
    let (known, stranger) = (authority("authority"), authority("stranger"));
    // The certificate is for localhost only.
    for (host, asks) in [
        ("localhost", format!("sslmode=verify-full&{stranger}")),
        ("localhost", "sslmode=verify-full&sslrootcert=system".to_owned()),
        ("localhost", format!("sslmode=verify-ca&{stranger}")),
        ("localhost", format!("sslmode=require&{stranger}")),
        ("127.0.0.1", format!("sslmode=verify-full&{known}")),
    ] {
        let failed = open(&url(server, host, "tls_refused", &asks), &cluster).await;
        let printed = failed.err().unwrap_or_else(|| panic!("{host} {asks} was accepted")).to_string();
        assert!(
            printed.contains("certificate") || printed.contains("authorities"),
            "{host} {asks}: {printed}"
        );
    }
    for asks in [format!("sslmode=verify-ca&{known}"), format!("sslmode=require&{known}")] {
        open(&url(server, "127.0.0.1", "tls_let_in", &asks), &cluster)
            .await
            .expect("the certificate is from this authority");
    }
}

#[tokio::test]
async fn what_was_to_be_encrypted_is_never_sent_in_plain_text() {
    let plain = server();
    let cluster = Cluster::on(plain);
    for asks in
        ["sslmode=require", "sslmode=verify-ca", &format!("sslmode=verify-full&{}", authority("authority"))]
    {
        let failed = open(&url(plain, "localhost", "tls_never", asks), &cluster).await;
        let printed = failed.err().unwrap_or_else(|| panic!("{asks} connected in plain text")).to_string();
        assert!(printed.contains("TLS"), "{asks}: {printed}");
    }
    let address = plain.address();
    let opened = tokio_postgres::connect(&address, tokio_postgres::NoTls).await;
    let (client, connection) = opened.expect("a connection");
    tokio::spawn(connection);
    let there = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let there: i64 = client.query_one(there, &[&cluster.schema]).await.unwrap().get(0);
    assert_eq!(there, 0, "no schema was created");
    open(&url(plain, "localhost", "tls_maybe", "sslmode=prefer"), &cluster)
        .await
        .expect("sslmode=prefer accepts plain text");
}

#[tokio::test]
async fn an_address_that_asks_for_something_else_is_refused_before_anything_is_sent() {
    let cluster = Cluster::on(server());
    for asks in ["sslmode=allow", "sslmode=verify", "sslmode=verify-full&sslcert=mine.crt"] {
        let failed = open(&url(server(), "localhost", "tls_other", asks), &cluster).await;
        assert!(matches!(failed, Err(PostgresOpenError::Address(_))), "{asks}: {failed:?}");
    }
    let address = url(server(), "localhost", "tls_no_file", "sslmode=verify-full&sslrootcert=/none");
    let failed = open(&address, &cluster).await;
    assert!(matches!(failed, Err(PostgresOpenError::Certificates(why)) if why.contains("/none")));
}
