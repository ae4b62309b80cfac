//! Client commands against unreachable servers, without permission, and with wrong command lines.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::client::{CannedServer, Client, answer, configuration};
use crate::program::Folder;
use crate::server::{Server, call, configured, write};

/// Tokens of two tenants, and the SHA-256 of each.
const ANN: (&str, &str) = ("open sesame", "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb");
const EVE: (&str, &str) =
    ("strangers-token-0000", "ec63387b77890a0cdee48fa5c64e6852348efaf0e27e5c205db9479d56c0b44c");

fn with_keys() -> Folder {
    let folder = configured(&serde_json::json!({"rules": [{"when": ".*", "replies": [{"text": "Hello."}]}]}));
    let key = |name: &str, (_, sha256): (&str, &str), roles: &str| {
        format!(
            "\n[[auth.keys]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\ntenant = \"{name}\"\nroles = [{roles}]\n"
        )
    };
    let keys = key("ann", ANN, "\"run\"") + &key("eve", EVE, "\"admin\"");
    write(&folder, "holdpoint.toml", &configuration(&keys));
    folder
}

#[test]
fn requests_without_the_right_token_are_refused() {
    let folder = with_keys();
    let server = Server::start(folder.path(), &["serve"]);
    let bearer = format!("Bearer {}", ANN.0);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let message = r#"{"agent": "clerk", "text": "Hi."}"#;
    assert_eq!(call(server.address(), "POST", "/v1/threads", &headers, r#"{"id": "t"}"#).0, 201);
    let (_, posted) = call(server.address(), "POST", "/v1/threads/t/messages", &headers, message);
    let run = posted["run_id"].as_str().unwrap_or_else(|| panic!("{posted}"));

    let refused = Client::for_server(&server).fails(&["runs", "list"], 1);
    assert!(refused.starts_with("UNAUTHORIZED: ") && refused.contains("HOLDPOINT_TOKEN"), "{refused}");
    let wrong = Client::for_server(&server).with_token("wrong-token-4711").fails(&["approvals", "list"], 1);
    assert!(wrong.starts_with("UNAUTHORIZED: ") && !wrong.contains("4711"), "{wrong}");
    let ann = Client::for_server(&server).with_token(ANN.0);
    assert!(ann.shows(&["runs", "list"]).contains(run));
    // A token that is read from a file ends with a newline.
    assert!(Client::for_server(&server).with_token(&format!("{}\n", ANN.0)).shows(&["runs"]).contains(run));
    let refused = ann.fails(&["approvals", "list"], 1);
    assert!(refused.starts_with("FORBIDDEN: ") && refused.contains("the role"), "{refused}");
    // Another tenant's runs are not visible.
    let eve = Client::for_server(&server).with_token(EVE.0);
    assert_eq!(eve.shows(&["runs", "list", "--json"]), "{\"runs\":[],\"next_cursor\":null}\n");
    for arguments in
        [&["runs", "show", run][..], &["runs", "watch", run], &["runs", "interrupt", run], &["replay", run]]
    {
        assert!(eve.fails(arguments, 1).starts_with("RUN_NOT_FOUND: "), "{arguments:?}");
    }
    assert!(
        eve.fails(&["approvals", "approve", "apr_0", "--yes", "--expect-digest", "d"], 1)
            .starts_with("APPROVAL_NOT_FOUND: ")
    );
}

#[test]
fn a_request_with_the_wrong_scheme_names_the_right_one() {
    let http = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    // A TLS server answers a plain-text request with the alert `unexpected_message`.
    let tls = b"\x15\x03\x03\x00\x02\x02\x0a";
    for (scheme, answer, speaks, instead) in
        [("https", &http[..], "plain HTTP", "http"), ("http", &tls[..], "speaks TLS", "https")]
    {
        for arguments in [&["runs", "list"][..], &["runs", "watch", "run_0"]] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("an address");
            let answering = std::thread::spawn(move || {
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().expect("a client connects");
                    assert!(stream.read(&mut [0; 4_096]).expect("a request") > 0);
                    stream.write_all(answer).expect("the response is sent");
                }
            });
            let said = Client::at(&format!("{scheme}://{address}")).fails(arguments, 2);
            answering.join().expect("both forms of the command sent a request");
            assert!(said.starts_with("WRONG_SCHEME: ") && said.contains(speaks), "{said}");
            assert!(said.contains(&format!("next: Write {instead}:// in --url")), "{said}");
        }
    }
}

#[test]
fn an_answer_that_is_neither_http_nor_tls_does_not_blame_the_scheme() {
    let ssh = "SSH-2.0-OpenSSH_9.6\r\n\r\n";
    for (arguments, next) in [
        (&["runs", "list"][..], "Try again."),
        (&["runs", "interrupt", "run_0"], "It may have been received"),
        (&["approvals", "reject", "apr_0"], "It may have been received"),
    ] {
        let canned_server = CannedServer::answering(vec![ssh.to_owned(), ssh.to_owned()]);
        let said = Client::at(&format!("http://{}", canned_server.address)).fails(arguments, 1);
        assert!(said.starts_with("NO_ANSWER: ") && said.contains(&format!("next: {next}")), "{said}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let answering = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a client connects");
            assert!(stream.read(&mut [0; 4_096]).expect("a handshake") > 0);
            stream.write_all(ssh.as_bytes()).expect("the response is sent");
        }
    });
    let said = Client::at(&url).fails(&["runs", "list"], 1);
    answering.join().expect("both forms of the command sent a request");
    assert!(said.starts_with("UNREACHABLE: "), "{said}");
}

#[test]
fn a_missing_or_foreign_server_is_reported() {
    // No process listens on port 1.
    let away = Client::at("http://127.0.0.1:1");
    for arguments in [
        &["runs", "list"][..],
        &["runs", "watch", "run_0"],
        &["runs", "interrupt", "run_0"],
        &["approvals", "reject", "apr_0"],
        &["replay", "run_0"],
    ] {
        let said = away.fails(arguments, 1);
        assert!(said.starts_with("UNREACHABLE: no connection to http://127.0.0.1:1: "), "{said}");
    }
    for (status, body) in
        [("200 OK", "<html>a \u{1b}[2Jpage"), ("200 OK", "{}"), ("502 Bad Gateway", "no"), ("302 Found", "")]
    {
        let canned_server = CannedServer::answering(vec![answer(status, body), answer(status, body)]);
        let said = Client::at(&format!("http://{}", canned_server.address)).fails(&["runs", "list"], 1);
        assert!(said.starts_with("NOT_HOLDPOINT: ") && !said.contains('\u{1b}'), "{said}");
    }
    // The response is cut off: the server may have received the decision.
    let torn = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    let canned_server = CannedServer::answering(vec![torn.to_owned(), torn.to_owned()]);
    let said =
        Client::at(&format!("http://{}", canned_server.address)).fails(&["approvals", "reject", "apr_0"], 1);
    assert!(said.starts_with("NO_ANSWER: ") && said.contains("may have been received"), "{said}");
}

#[test]
fn a_token_is_sent_and_never_shown_even_if_the_server_echoes_it() {
    let token = "secret-token-4722";
    let refusal = format!(
        r#"{{"error":{{"code":"UNAUTHORIZED","message":"bad: Bearer {token}","details":{{"token":"{token}"}}}}}}"#
    );
    let answers = vec![answer("401 Unauthorized", &refusal), answer("401 Unauthorized", &refusal)];
    let canned_server = CannedServer::answering(answers);
    let client = Client::at(&format!("http://{}", canned_server.address)).with_token(token);
    let said = client.fails(&["runs", "list"], 1);
    assert!(said.starts_with("UNAUTHORIZED: bad: Bearer [token]\n"), "{said}");
    assert!(canned_server.next_request().contains(&format!("authorization: Bearer {token}\r\n")));
    let canned_server = CannedServer::answering(vec![answer("200 OK", token), answer("200 OK", &refusal)]);
    let client = Client::at(&format!("http://{}", canned_server.address)).with_token(token);
    for said in [client.run(&["runs", "list"]), client.run(&["runs", "list", "--json"])] {
        assert!(said.code == Some(1) && !said.err.contains(token) && !said.out.contains(token), "{said:?}");
    }
}

#[test]
fn https_never_falls_back_to_clear_text() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let mut heard = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a client connects");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("the response is sent");
            let mut bytes = [0; 4096];
            // A client that closes the connection at once sends no more bytes.
            let count = stream.read(&mut bytes).unwrap_or_default();
            heard.extend_from_slice(&bytes[..count]);
        }
        heard
    });
    let said = Client::at(&url).with_token("secret-token-4724").fails(&["runs", "list"], 2);
    assert!(said.starts_with("WRONG_SCHEME: "), "{said}");
    let heard = server.join().expect("the server thread ends");
    assert!(
        !String::from_utf8_lossy(&heard).contains("secret-token-4724"),
        "the token was sent in clear text"
    );
    // The beginning of a TLS handshake, not of an HTTP request.
    assert_eq!(heard.first(), Some(&22));
}

#[test]
fn a_wrong_command_line_is_refused_before_a_request_is_sent() {
    let client = Client::at("http://127.0.0.1:1");
    for arguments in [
        &["runs", "list", "--store", "sqlite:a.db"][..],
        &["approvals", "list", "--store", "memory:"],
        &["replay", "run_0", "--store", "sqlite:a.db", "--url", "http://127.0.0.1:1"],
    ] {
        assert!(client.fails(arguments, 2).starts_with("WRONG_COMMAND_LINE: "), "{arguments:?}");
    }
    let wrong: [&[&str]; 8] = [
        &["runs", "shout"],
        &["runs", "show"],
        &["runs", "list", "--status", "tired"],
        &["runs", "list", "--limit", "0"],
        &["runs", "watch", "run_0", "--after", "now"],
        &["approvals", "reject", "apr_0", "--then", "sulk"],
        &["approvals", "list", "--status", "open"],
        &["replay"],
    ];
    for arguments in wrong {
        let said = client.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
    }
    for url in [
        "localhost:8787",
        "ftp://127.0.0.1",
        "http://ann:password-4714@127.0.0.1:1",
        "http://127.0.0.1:1/?a=password-4714",
    ] {
        for said in [Client::at(url).fails(&["runs"], 2), client.fails(&["runs", "--url", url], 2)] {
            assert!(said.starts_with("BAD_URL: ") && !said.contains("4714"), "{said}");
        }
    }
    let said = Client::at("http://127.0.0.1:1").with_token("two\nlines-4723").fails(&["runs"], 2);
    assert!(said.starts_with("BAD_TOKEN: ") && !said.contains("4723"), "{said}");
    // The token has no place on a command line, where others could read it.
    assert_eq!(client.run(&["runs", "--token", "x"]).code, Some(2));
}
