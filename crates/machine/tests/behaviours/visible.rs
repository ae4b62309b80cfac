//! Text as an approver is shown it: what cannot be seen is escaped, and what may not be what it looks like is flagged.

use std::collections::BTreeSet;

use machine::visible::{Warning, escaped, is_visible, json_warnings, looks_like, warnings};
use serde_json::{Value, json};

/// Default_Ignorable_Code_Point and Bidi_Control of DerivedCoreProperties.txt and PropList.txt, and spaces.
const IGNORABLE: [(u32, u32); 22] = [
    (0x00, 0x1f),
    (0x7f, 0xa0),
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x2000, 0x200f),
    (0x2028, 0x202f),
    (0x205f, 0x206f),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
    (0xf0000, 0x10_ffff),
];

#[test]
fn no_ignorable_code_point_is_left_of_all_that_there_are() {
    for c in (0..=0x10_ffff).filter_map(char::from_u32) {
        let code = u32::from(c);
        let ignorable = IGNORABLE.iter().any(|(first, last)| (*first..=*last).contains(&code));
        let text = c.to_string();
        if ignorable || !is_visible(c) {
            assert!(!is_visible(c), "U+{code:04X} would be shown");
            assert!(escaped(&text).is_ascii() && escaped(&text).starts_with('\\'), "U+{code:04X}");
            let ordinary = matches!(c, '\n' | '\t' | '\r');
            assert_eq!(warnings(&text).contains(&Warning::Invisible), !ordinary, "U+{code:04X}");
        } else {
            assert_eq!(escaped(&text), text, "U+{code:04X}");
        }
    }
}

#[test]
fn ascii_and_ordinary_text_of_common_scripts_are_unchanged() {
    let ascii: String = (' '..='~').collect();
    for (text, expected) in [
        (ascii.as_str(), &[][..]),
        ("Grüße an Jürgen Weiß, 5 € für 3 Äpfel", &[]),
        ("Καλημέρα κόσμε", &[]),
        ("Привет, мир! Hello, world", &[]),
        ("東京で寿司を食べる、Tシャツとコーヒー", &[]),
        ("안녕하세요 세계", &[]),
        ("नमस्ते दुनिया", &[]),
        ("สวัสดีชาวโลก", &[]),
        ("Tiếng Việt, e\u{301}te\u{301}", &[]),
        ("مرحبا بالعالم", &[Warning::RightToLeft]),
        ("שלום עולם", &[Warning::RightToLeft]),
        ("✓ → 😀 «quoted» — “so” 100 % 5 µm", &[]),
    ] {
        assert_eq!(escaped(text), text);
        assert_eq!(warnings(text).into_iter().collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn names_that_differ_only_in_case_or_punctuation_look_alike() {
    for (one, other) in [("pay", "pay"), ("pay", "Pay"), ("files.read", "files_read"), ("-", "-")] {
        assert!(looks_like(one, other) && looks_like(other, one), "{one} {other}");
    }
    for (one, other) in [("pay", "pays"), ("-", "_"), ("", "-"), ("pay", ""), ("pay1", "pay2")] {
        assert!(!looks_like(one, other) && !looks_like(other, one), "{one} {other}");
    }
}

#[test]
fn words_of_two_scripts_are_flagged() {
    for text in [
        "p\u{430}ypal",
        "bo\u{200b}\u{432}",
        "\u{1d41b}ob",
        "\u{ff42}ob",
        "x\u{3bf}",
        "ab1\u{441}",
        "ab_\u{441}",
        "e\u{301}\u{430}",
    ] {
        assert!(warnings(text).contains(&Warning::MixedScripts), "{text}");
    }
    for text in ["pay \u{43c}\u{438}\u{440}", "a-\u{431}", "a\n\u{431}"] {
        assert!(!warnings(text).contains(&Warning::MixedScripts), "{text}");
    }
}

#[test]
fn names_that_carry_hidden_characters_show_them() {
    let hidden: String = "bob".chars().flat_map(|c| [c, '\u{fe01}', '\u{e0142}', '\u{3164}']).collect();
    let value = json!({"a\u{9b}": [{"to": hidden}], "n": 1});
    assert_eq!(json_warnings(&value), BTreeSet::from([Warning::Invisible]));
    let shown = escaped(&value.to_string());
    assert!(shown.contains("\"b\\ufe01\\udb40\\udd42\\u3164o"), "{shown}");
    assert_eq!(serde_json::from_str::<Value>(&shown).expect("it is JSON"), value);
    assert_eq!(json_warnings(&json!({"\u{5d0}": "\u{430}b"})).len(), 2);
    assert!(json_warnings(&json!({"a": [null, true, 1, "b\nc"]})).is_empty());
}

#[test]
fn every_warning_has_a_name_of_its_own() {
    assert_eq!(Warning::ALL.map(Warning::as_str), ["invisible", "mixed_scripts", "right_to_left"]);
}
