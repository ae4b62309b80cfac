//! The program as it is typed: its help, its exit status, its lines.

use std::process::{Command, Output};

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(words).output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_word_that_is_not_known_ends_with_the_help_and_status_2() {
    for words in [["W9"].as_slice(), &["--fast"], &["W1", "--store", "paper"]] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains("Usage: cargo run --release -p bench"), "{words:?}");
    }
}

#[test]
fn the_help_names_every_workload_and_goes_to_stdout() {
    let output = bench(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["W1", "W2", "W4", "W5", "subscribers", "machine", "--store", "--quick", "--json"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn a_workload_on_one_store_gives_json_lines_on_stdout_and_phases_on_stderr() {
    let output = bench(&["W1", "--store", "memory", "--concurrency", "4", "--quick", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert!(lines.lines().count() > 5);
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        assert_eq!((&line["workload"], &line["store"]), (&"W1".into(), &"memory".into()));
    }
    assert!(text(&output.stderr).contains("bench: W1 on memory: 4 at once"));
}
