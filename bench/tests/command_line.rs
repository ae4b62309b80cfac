//! The program as it is typed: its help, its exit status, its lines.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const CLEANED_UP_WITHIN: Duration = Duration::from_secs(30);

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
    for word in [
        "W1",
        "W2",
        "W3",
        "W4",
        "W5",
        "W6",
        "subscribers",
        "http",
        "costly",
        "front-ends",
        "tools",
        "machine",
        "--store",
        "--quick",
        "--json",
    ] {
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
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        assert_eq!((&line["workload"], &line["store"]), (&"W1".into(), &"memory".into()));
    }
    assert!(text(&output.stderr).contains("bench: W1 on memory: 4 at once"));
}

#[test]
fn calls_of_a_tool_behind_an_address_use_connections_again() {
    for store in ["memory", "sqlite"] {
        let lines = lines_of(&["tools", "--store", store, "--quick", "--json"]);
        let value = |metric: &str| {
            let line = lines.iter().find(|line| line["metric"] == metric);
            line.and_then(|line| line["value"].as_f64()).unwrap_or_else(|| panic!("{metric} is not measured"))
        };
        assert!(value("calls_per_s") > 0.0 && value("exchange_p99_ms") > 0.0, "{lines:?}");
        // There were more than 400 calls, 64 at once.
        assert!(value("connections") <= 200.0, "{lines:?}");
    }
}

fn lines_of(words: &[&str]) -> Vec<Value> {
    let output = bench(words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn value(lines: &[Value], metric: &str) -> f64 {
    let line = lines.iter().find(|line| line["metric"] == metric);
    line.and_then(|line| line["value"].as_f64()).unwrap_or_else(|| panic!("{metric} is not measured"))
}

/// A folder that the account of PostgreSQL can reach. The build folder may be inside a home that only its owner can enter.
fn server_folder() -> String {
    let folder = env::temp_dir().join("holdpoint-bench-tests");
    fs::create_dir_all(&folder).expect("the folder of temporary files is writable");
    folder.to_str().expect("its name is UTF-8").to_owned()
}

#[test]
fn a_fleet_is_copied_opened_by_another_process_and_woken() {
    // A copy whose log does not fold to its control, or a run that does not end as it must, is an error.
    let folder = env!("CARGO_TARGET_TMPDIR");
    let lines = lines_of(&["W3", "--runs", "1300", "--quick", "--json", "--folder", folder]);
    let bytes = value(&lines, "bytes_per_run_n1300");
    assert!((2_000.0..20_000.0).contains(&bytes), "{bytes} bytes for a run");
    assert!(value(&lines, "commits_to_end_warm_n1300") >= 5.0);
    assert!(value(&lines, "wake_to_tool_start_p99_ms_warm_n1300") > 0.0);
    assert!(value(&lines, "memory_peak_mb_warm_n1300") > 1.0);
}

#[test]
fn a_decision_reaches_a_tool_that_is_another_process_with_one_commit() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let lines = lines_of(&["W2", "--store", "sqlite", "--quick", "--json", "--folder", folder]);
    assert!((value(&lines, "commits_to_tool_process") - 1.0).abs() < f64::EPSILON);
    let (half, most) =
        (value(&lines, "decision_to_tool_process_p50_ms"), value(&lines, "decision_to_tool_process_p99_ms"));
    assert!(0.0 < half && half <= most, "{half}, {most}");
}

#[test]
fn a_fleet_in_a_database_is_copied_watched_by_idle_nodes_and_woken() {
    // A copy whose log does not fold to its control, or a run that does not end as it must, is an error.
    let folder = server_folder();
    let words = ["W3", "--store", "postgres", "--runs", "1100", "--quick", "--json", "--folder", &folder];
    let lines = lines_of(&words);
    assert!(value(&lines, "commits_to_end_nodes3_n1100") >= 5.0);
    assert!(value(&lines, "wake_to_tool_start_p99_ms_nodes3_n1100") > 0.0);
    assert!(value(&lines, "table_bytes_per_run_n1100") > 2_000.0);
    let idle = value(&lines, "idle_server_percent_nodes3_n1100");
    assert!((0.0..100.0).contains(&idle), "{idle} % of a processor");
}

#[test]
fn a_server_is_gone_with_the_process_that_started_it_even_if_that_was_killed() {
    let folder = server_folder();
    let mut process = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--postgres-server", "--folder", &folder])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let stdout = process.stdout.take().expect("a pipe");
    let address = BufReader::new(stdout).lines().next().expect("a line").expect("it can be read");
    assert!(address.starts_with("postgres://"), "{address}");
    let name = format!("bench-postgres-{}-0", process.id());
    let (data, socket) = (Path::new(&folder).join(&name), env::temp_dir().join(&name));
    let number = fs::read_to_string(data.join("data/postmaster.pid")).expect("the server runs");
    let server = Path::new("/proc").join(number.lines().next().expect("its number"));
    assert!(server.exists() && socket.exists());
    process.kill().expect("it can be killed");
    process.wait().expect("it is ours");
    let begin = Instant::now();
    while data.exists() || socket.exists() || server.exists() {
        assert!(begin.elapsed() < CLEANED_UP_WITHIN, "something of {name} stays behind");
        thread::yield_now();
    }
}
