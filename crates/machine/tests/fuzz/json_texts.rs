//! Arbitrary JSON texts, many of which no value can be made of, or none that could be read back.

use super::chance::Chance;

/// As they are written between the quotes. The reserved ones also with escapes.
const KEYS: [&str; 14] = [
    "a",
    "b",
    "a",
    "",
    "\\u0061",
    "k\\u0000",
    "\u{e9}",
    "type",
    "$serde_json::private::RawValue",
    "$serde_json::private::Number",
    "\\u0024serde_json::private::RawValue",
    "$serde_json\\u003a:private::Number",
    "$serde_json",
    "\\ud83d\\ude00",
];

const SCALARS: [&str; 40] = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "7",
    "1.5",
    "0.1",
    "1e5",
    "1E+22",
    "5e-324",
    "1e-400",
    "1e308",
    "1e309",
    "-1e400",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "01",
    "1.",
    ".5",
    "-",
    "1e",
    "NaN",
    "nul",
    "\"\"",
    "\"plain\"",
    "\"\u{1f980} \u{2028}\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"\\u0000\\n\\t\\/\"",
    "\"\\x\"",
    "\"\u{1}\"",
    "\"open",
];

/// One text; about half of them are JSON that can be stored.
pub(crate) fn json_text(chance: &mut Chance) -> String {
    match chance.below(24) {
        0 => nested(chance),
        1 => many(chance),
        2 => in_strings(chance),
        3 => raw_in_raw(chance),
        _ => value(chance, 0),
    }
}

fn value(chance: &mut Chance, level: u64) -> String {
    let space = if chance.one_in(8) { " \n" } else { "" };
    let text = match chance.below(6) {
        0 | 1 if level < 6 => {
            let count = chance.below(4);
            let items: Vec<String> = (0..count).map(|_| value(chance, level + 1)).collect();
            format!("[{space}{}{space}]", items.join(","))
        }
        2 | 3 if level < 6 => {
            let count = chance.below(4);
            let fields: Vec<String> = (0..count).map(|_| field(chance, level)).collect();
            format!("{{{}{space}}}", fields.join(&format!("{space},")))
        }
        _ => scalar(chance).to_owned(),
    };
    format!("{space}{text}{space}")
}

fn field(chance: &mut Chance, level: u64) -> String {
    // Mostly harmless, so that enough of them are stored.
    let keys = if chance.one_in(6) { &KEYS[..] } else { &["a", "b", "c", "d", "e", "f"] };
    let key = *chance.pick(keys);
    format!("\"{key}\":{}", value(chance, level + 1))
}

fn scalar(chance: &mut Chance) -> &'static str {
    let scalars = if chance.one_in(6) { &SCALARS[..] } else { &["null", "1", "\"x\"", "2.5", "[]"] };
    let scalar: &&str = chance.pick(scalars);
    scalar
}

/// About as deep as a value may be, and far beyond.
fn nested(chance: &mut Chance) -> String {
    let depth = *chance.pick(&[30, 62, 63, 64, 65, 70, 127, 128, 200, 100_000]);
    let (open, close) = *chance.pick(&[("[", "]"), ("{\"a\":", "}")]);
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

/// About as many values as there may be, and a million.
fn many(chance: &mut Chance) -> String {
    let count = *chance.pick(&[100, 10_001, 24_999, 25_000, 50_001, 1_000_000]);
    let item = *chance.pick(&["0,", "{\"\":0},", "[],", "\"\","]);
    format!("[{}0]", item.repeat(count))
}

/// A text of JSON in a string, in a string, in a string.
fn in_strings(chance: &mut Chance) -> String {
    let mut text = value(chance, 4);
    for _ in 0..chance.below(6) {
        text = quoted(&text);
    }
    text
}

/// The form that `serde_json` takes the inside of a string for.
fn raw_in_raw(chance: &mut Chance) -> String {
    let mut text = value(chance, 4);
    for _ in 0..=chance.below(5) {
        let before = *chance.pick(&["", "\"a\":1,", "\"$\":1,", "\"\":{},"]);
        let key = *chance.pick(&KEYS[8..12]);
        text = format!("{{{before}\"{key}\":{}}}", quoted(&text));
        if chance.one_in(3) {
            text = format!("[{text}]");
        }
    }
    text
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}
