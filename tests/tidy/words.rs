//! Words that make a reader ask who does what. Their number may fall and never rise.

use std::collections::BTreeMap;

use super::rust_code::code_only;
use super::tree::{TextFile, assert_no_complaints, file, files};

/// Each hides the actor or the action, or belongs to no engineer's vocabulary. CONTRIBUTING.md says what to write instead.
const WORDS: [&str; 13] = [
    "whoever",
    "somebody",
    "nobody",
    "goes on",
    "become of",
    "becomes of",
    "stands",
    "so many",
    "anew",
    "told",
    "hear",
    "hears",
    "heard",
];

const RATCHET: &str = "tests/words.txt";

/// What a person reads of a file: comments and strings of Rust, all of any other file.
fn prose(source: &TextFile) -> String {
    if !source.has_extension("rs") {
        return source.text.to_lowercase();
    }
    let code = code_only(&source.text);
    let kept = source.text.chars().zip(code.chars());
    let prose: String =
        kept.map(|(read, code)| if code == ' ' || code == '\n' { read } else { ' ' }).collect();
    prose.to_lowercase()
}

fn count(source: &TextFile) -> usize {
    let prose = prose(source);
    WORDS.iter().map(|word| whole_words(&prose, word)).sum()
}

fn whole_words(text: &str, word: &str) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let ends = |at: usize| {
        let before = text[..at].chars().next_back().is_none_or(|letter| !is_part(letter));
        let after = text[at + word.len()..].chars().next().is_none_or(|letter| !is_part(letter));
        before && after
    };
    text.match_indices(word).filter(|(at, _)| ends(*at)).count()
}

/// Golden logs, stores of earlier versions and migrations are kept as they were written, programs write JSON and lock
/// files, and this rule has to name the words.
fn is_judged(source: &TextFile) -> bool {
    let is_kept = ["golden", "fixtures/", "/migrations/"].iter().any(|kept| source.path.contains(kept));
    let is_generated = ["json", "lock"].iter().any(|extension| source.has_extension(extension));
    let is_this_rule = source.path == "tests/tidy/words.rs" || source.path == RATCHET;
    !is_kept && !is_generated && !is_this_rule
}

/// The part of the tree that a file belongs to: a crate, or the first folder.
fn area(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(group @ ("crates" | "tests")), Some(name), Some(_)) => format!("{group}/{name}"),
        (Some(folder), Some(_), _) => folder.to_owned(),
        (_, _, _) => "the root".to_owned(),
    }
}

fn counts<'f>(sources: impl Iterator<Item = &'f TextFile>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in sources.filter(|source| is_judged(source)) {
        *counts.entry(area(&source.path)).or_default() += count(source);
    }
    counts.retain(|_, count| *count > 0);
    counts
}

fn complaints(counts: &BTreeMap<String, usize>, ratchet: &str) -> Vec<String> {
    let mut allowed = BTreeMap::new();
    let mut found = Vec::new();
    for line in ratchet.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match line.rsplit_once(' ').map(|(area, count)| (area, count.parse::<usize>())) {
            Some((area, Ok(count))) => {
                allowed.insert(area.to_owned(), count);
            }
            Some((_, Err(_))) | None => found.push(format!("{RATCHET}: `{line}` is not `area count`")),
        }
    }
    for area in counts.keys().chain(allowed.keys().filter(|area| !counts.contains_key(*area))) {
        let is = counts.get(area).copied().unwrap_or(0);
        let may_be = allowed.get(area).copied().unwrap_or(0);
        if is > may_be {
            found.push(format!("{area}: {is} of {WORDS:?}, at most {may_be}; name who does what"));
        } else if is < may_be {
            found.push(format!("{RATCHET}: {area} has {is}; lower the entry"));
        }
    }
    found
}

#[test]
fn words_that_hide_who_does_what_become_fewer() {
    assert_no_complaints(&complaints(&counts(files().iter()), &file(RATCHET).text));
}

#[test]
fn a_word_is_found_in_comments_strings_and_pages_and_not_in_code() {
    let source = TextFile::new("src/a.rs", "// Whoever asks.\nlet told = \"nobody\";\n");
    assert_eq!(count(&source), 2);
    assert_eq!(count(&TextFile::new("docs/a.md", "It stands there, and goes on; understands.")), 2);
}

#[test]
fn the_ratchet_of_words_turns_one_way_only() {
    let page = TextFile::new("docs/a.md", "nobody and nobody");
    let counts = counts([&page].into_iter());
    assert!(complaints(&counts, "# A comment.\ndocs 2\n").is_empty());
    assert!(complaints(&counts, "docs 1\n")[0].starts_with("docs: 2 of "));
    assert_eq!(complaints(&counts, "docs 3\n"), [format!("{RATCHET}: docs has 2; lower the entry")]);
    assert_eq!(complaints(&counts, "docs 2\nsim 1\n"), [format!("{RATCHET}: sim has 0; lower the entry")]);
    assert_eq!(complaints(&counts, "docs 2\nsim\n"), [format!("{RATCHET}: `sim` is not `area count`")]);
}
