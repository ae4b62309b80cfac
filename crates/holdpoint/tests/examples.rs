//! Every example prints the text in its first lines: each is run as a program, and its output is compared.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Far longer than any example takes: an example that hangs fails its test and does not block the others.
const PATIENCE: Duration = Duration::from_secs(120);

/// `cargo test` puts the examples into a folder next to that of the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(Path::parent).expect("tests are in `deps`, next to `examples`");
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(format!("{name}.rs"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The contents of the first `text` block.
fn promised(source: &str) -> String {
    let lines = source.lines().skip_while(|line| *line != "//! ```text").skip(1);
    let block = lines.take_while(|line| *line != "//! ```");
    block.map(|line| format!("{}\n", line.strip_prefix("//! ").unwrap_or_default())).collect()
}

fn prints_what_it_promises(name: &str) {
    let program = program(name);
    let mut process = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo test -p holdpoint` without `--test` builds it", program.display())
    });
    let mut output = process.stdout.take().expect("its output is piped");
    let (sender, printed) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text).map(|_| text);
        sender.send(read)
    });
    let in_time = printed.recv_timeout(PATIENCE);
    if in_time.is_err() {
        process.kill().expect("it can be killed");
    }
    let status = process.wait().expect("it has ended");
    let text = in_time.expect("it ends by itself").expect("it prints text");
    assert!(status.success(), "{name} ended with {status} after it had printed:\n{text}");
    let promised = promised(&source(name));
    assert!(!promised.is_empty(), "{name} has no `text` block");
    assert_eq!(text, promised);
}

#[test]
fn the_smallest_agent_answers() {
    prints_what_it_promises("minimal");
}

#[test]
fn an_approval_is_carried_out_while_a_sibling_runs() {
    prints_what_it_promises("approval");
}

#[test]
fn a_plugin_blocks_one_call_holds_another_and_answers_a_third() {
    prints_what_it_promises("plugin");
}

#[test]
fn a_run_that_was_killed_twice_continues_and_every_effect_happens_once() {
    prints_what_it_promises("continued");
}

#[test]
fn the_approval_of_a_delegated_call_lists_its_path() {
    prints_what_it_promises("delegate");
}
