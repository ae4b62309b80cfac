//! Key rotation while the server runs, and settings that a reload refuses to change.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{CONFIGURATION, Server, call, configured, write};

/// SHA-256 of `open sesame`, and of `strangers-token-0000`.
const OLD: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";
const NEW: &str = "ec63387b77890a0cdee48fa5c64e6852348efaf0e27e5c205db9479d56c0b44c";
const OLD_TOKEN: &str = "open sesame";
const NEW_TOKEN: &str = "strangers-token-0000";

fn with_keys(keys: &[(&str, &str)]) -> String {
    let table = |(name, sha256): &(&str, &str)| {
        format!(
            "\n[[auth.keys]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\nroles = [\"admin\", \"operator\"]\n"
        )
    };
    format!("{CONFIGURATION}{}", keys.iter().map(table).collect::<String>())
}

fn ask(server: &Server, token: &str, method: &str, path: &str) -> (u16, Value) {
    call(server.address(), method, path, &[("authorization", &format!("Bearer {token}"))], "")
}

/// Opens a stream and reads the beginning of its response.
fn stream(server: &Server, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit can be set");
    let address = server.address();
    let head = format!(
        "GET /v1/approvals/stream HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the request is sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("the response begins");
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

fn said_nothing() -> Value {
    json!({"rules": [{"when": ".*", "replies": [{"text": "Hello."}]}]})
}

#[test]
fn keys_are_rotated_by_a_reload_and_streams_of_the_old_one_end() {
    let folder = configured(&said_nothing());
    write(&folder, "holdpoint.toml", &with_keys(&[("old", OLD)]));
    let mut server = Server::start(folder.path(), &["serve"]);
    assert_eq!(ask(&server, NEW_TOKEN, "GET", "/v1/runs").0, 401);
    let mut open = stream(&server, OLD_TOKEN);

    // Both keys are valid for a while, so that no client is locked out.
    write(&folder, "holdpoint.toml", &with_keys(&[("old", OLD), ("new", NEW)]));
    assert_eq!(ask(&server, OLD_TOKEN, "POST", "/v1/admin/reload").0, 200);
    assert_eq!(ask(&server, OLD_TOKEN, "GET", "/v1/runs").0, 200);
    assert_eq!(ask(&server, NEW_TOKEN, "GET", "/v1/runs").0, 200);

    // A configuration with a mistake is refused and changes nothing: the old key still works.
    write(&folder, "holdpoint.toml", &with_keys(&[("new", "no digest")]));
    let (code, refused) = ask(&server, NEW_TOKEN, "POST", "/v1/admin/reload");
    assert!(code == 400 && refused.to_string().contains("auth.keys[0].sha256"), "{code}: {refused}");
    assert_eq!(ask(&server, OLD_TOKEN, "GET", "/v1/runs").0, 200);

    write(&folder, "holdpoint.toml", &with_keys(&[("new", NEW)]));
    server.signal("HUP");
    server.wait_for("the configuration was reloaded");
    // The line is logged before the new keys take effect, so the test waits for both.
    let until = Instant::now() + Duration::from_secs(30);
    let mut some = [0; 1024];
    while open.read(&mut some).expect("it can be read") > 0 {
        // A stream that stays open sends keep-alives forever, so reads do not time out.
        assert!(Instant::now() < until, "the stream of the old key does not end");
    }
    assert_eq!(ask(&server, OLD_TOKEN, "GET", "/v1/runs").0, 401);
    assert_eq!(ask(&server, NEW_TOKEN, "GET", "/v1/runs").0, 200);
}

#[test]
fn what_cannot_change_while_it_runs_is_refused_by_name() {
    let folder = configured(&said_nothing());
    let open = CONFIGURATION;
    write(&folder, "holdpoint.toml", open);
    let server = Server::start(folder.path(), &["serve"]);
    let closed = with_keys(&[("new", NEW)]);
    for (file, name) in [
        (closed.as_str(), "[auth]"),
        (&open.replace("127.0.0.1:0", "127.0.0.1:1"), "server.listen"),
        (
            &open.replace("drain = \"20s\"", "max_running_runs = 2"),
            "server.max_running_runs and server.drain",
        ),
        (&format!("{open}\n[store]\nurl = \"memory:\"\n"), "store.url"),
    ] {
        write(&folder, "holdpoint.toml", file);
        let (code, refused) = server.post_nothing("/v1/admin/reload");
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(code == 400 && message.contains(name) && message.contains("restart it"), "{code}: {refused}");
        assert_eq!(server.get("/v1/runs").0, 200, "the server still needs no key");
    }
    drop(server);

    write(&folder, "holdpoint.toml", &closed);
    let server = Server::start(folder.path(), &["serve"]);
    write(&folder, "holdpoint.toml", open);
    let (code, refused) = ask(&server, NEW_TOKEN, "POST", "/v1/admin/reload");
    assert!(code == 400 && refused.to_string().contains("[auth]"), "{code}: {refused}");
    assert_eq!(server.get("/v1/runs").0, 401, "the server still needs a key");
}
