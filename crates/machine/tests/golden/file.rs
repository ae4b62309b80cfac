//! Reads a story file: events, and what must follow from them.

use std::fs;
use std::path::PathBuf;

use machine::{Event, event_codec};
use serde_json::Value;

pub(crate) struct StoryFile {
    pub(crate) name: String,
    /// The stored form, as it stands in the file.
    pub(crate) lines: Vec<String>,
    pub(crate) events: Vec<Event>,
    pub(crate) sections: Vec<Section>,
}

pub(crate) struct Section {
    /// How many events come before.
    pub(crate) after: usize,
    pub(crate) expected: Expected,
}

pub(crate) enum Expected {
    Control(Value),
    ModelInput(Vec<String>),
}

/// Every story, in the order of their names.
pub(crate) fn all() -> Vec<StoryFile> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "golden"))
        .collect();
    paths.sort();
    paths.into_iter().map(|path| read(path.file_stem().unwrap().to_str().unwrap())).collect()
}

pub(crate) fn read(name: &str) -> StoryFile {
    let text = fs::read_to_string(folder().join(format!("{name}.golden"))).unwrap();
    let (log, rest) = text.split_once("\n== ").unwrap_or_else(|| panic!("{name} expects nothing"));
    let lines: Vec<String> = content_lines(log).map(str::to_owned).collect();
    let events: Vec<Event> = lines
        .iter()
        .map(|line| {
            event_codec::decode(line).unwrap_or_else(|unreadable| panic!("{name}: {unreadable}\n{line}"))
        })
        .collect();
    let sections = rest.split("\n== ").map(|section| read_section(name, section, events.len())).collect();
    StoryFile { name: name.to_owned(), lines, events, sections }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The lines that are neither empty nor prose.
fn content_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn read_section(name: &str, section: &str, event_count: usize) -> Section {
    let (title, body) = section.split_once('\n').unwrap_or_else(|| panic!("{name}: an empty section"));
    let (what, after) = match title.split_once(" after event ") {
        Some((what, number)) => (what, number.parse().unwrap()),
        None => (title, event_count),
    };
    assert!(after > 0 && after <= event_count, "{name}: there is no event {after}");
    let expected = match what {
        "control" => Expected::Control(
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{name}, {title}: {error}")),
        ),
        "model input" => Expected::ModelInput(content_lines(body).map(str::to_owned).collect()),
        other => panic!("{name}: nobody knows what `{other}` expects"),
    };
    Section { after, expected }
}
