//! The script of a letter, used to find words that mix scripts.

/// Blocks of the scripts in common use, by the ranges of Blocks.txt and Scripts.txt. All other scripts count as one, so
/// a word of such a script is not mixed with itself.
const SCRIPTS: [(u32, u32, &str); 74] = [
    (0x41, 0x24f, LATIN),
    (0x250, 0x2af, LATIN),
    (0x370, 0x3ff, "Greek"),
    (0x400, 0x52f, "Cyrillic"),
    (0x530, 0x58f, "Armenian"),
    (0x590, 0x5ff, "Hebrew"),
    (0x600, 0x6ff, "Arabic"),
    (0x700, 0x74f, "Syriac"),
    (0x750, 0x77f, "Arabic"),
    (0x780, 0x7bf, "Thaana"),
    (0x860, 0x86f, "Syriac"),
    (0x870, 0x8ff, "Arabic"),
    (0x900, 0x97f, "Devanagari"),
    (0x980, 0x9ff, "Bengali"),
    (0xa00, 0xa7f, "Gurmukhi"),
    (0xa80, 0xaff, "Gujarati"),
    (0xb00, 0xb7f, "Oriya"),
    (0xb80, 0xbff, "Tamil"),
    (0xc00, 0xc7f, "Telugu"),
    (0xc80, 0xcff, "Kannada"),
    (0xd00, 0xd7f, "Malayalam"),
    (0xd80, 0xdff, "Sinhala"),
    (0xe00, 0xe7f, "Thai"),
    (0xe80, 0xeff, "Lao"),
    (0xf00, 0xfff, "Tibetan"),
    (0x1000, 0x109f, "Myanmar"),
    (0x10a0, 0x10ff, "Georgian"),
    (0x1100, 0x11ff, EAST_ASIAN),
    (0x1200, 0x139f, "Ethiopic"),
    (0x13a0, 0x13ff, "Cherokee"),
    (0x1780, 0x17ff, "Khmer"),
    (0x1800, 0x18af, "Mongolian"),
    (0x1c80, 0x1c8f, "Cyrillic"),
    (0x1c90, 0x1cbf, "Georgian"),
    (0x1cd0, 0x1cff, "Devanagari"),
    (0x1d00, 0x1dbf, LATIN),
    (0x1e00, 0x1eff, LATIN),
    (0x1f00, 0x1fff, "Greek"),
    (0x2100, 0x214f, STYLED),
    (0x24b6, 0x24e9, STYLED),
    (0x2c60, 0x2c7f, LATIN),
    (0x2c80, 0x2cff, "Coptic"),
    (0x2d00, 0x2d2f, "Georgian"),
    (0x2d80, 0x2ddf, "Ethiopic"),
    (0x2de0, 0x2dff, "Cyrillic"),
    (0x2e80, 0x2fdf, EAST_ASIAN),
    (0x3005, 0x318f, EAST_ASIAN),
    (0x31a0, 0x31ff, EAST_ASIAN),
    (0x3400, 0x9fff, EAST_ASIAN),
    (0xa640, 0xa69f, "Cyrillic"),
    (0xa720, 0xa7ff, LATIN),
    (0xa8e0, 0xa8ff, "Devanagari"),
    (0xa960, 0xa97f, EAST_ASIAN),
    (0xa9e0, 0xa9ff, "Myanmar"),
    (0xaa60, 0xaa7f, "Myanmar"),
    (0xab00, 0xab2f, "Ethiopic"),
    (0xab30, 0xab6f, LATIN),
    (0xab70, 0xabbf, "Cherokee"),
    (0xac00, 0xd7ff, EAST_ASIAN),
    (0xf900, 0xfaff, EAST_ASIAN),
    (0xfb00, 0xfb06, LATIN),
    (0xfb13, 0xfb17, "Armenian"),
    (0xfb1d, 0xfb4f, "Hebrew"),
    (0xfb50, 0xfdff, "Arabic"),
    (0xfe70, 0xfeff, "Arabic"),
    (0xff21, 0xff3a, STYLED),
    (0xff41, 0xff5a, STYLED),
    (0xff66, 0xffdc, EAST_ASIAN),
    (0x1_1b00, 0x1_1b5f, "Devanagari"),
    (0x1_aff0, 0x1_b16f, EAST_ASIAN),
    (0x1_d400, 0x1_d7ff, STYLED),
    (0x1_ee00, 0x1_eeff, "Arabic"),
    (0x1_f130, 0x1_f189, STYLED),
    (0x2_0000, 0x3_ffff, EAST_ASIAN),
];

const LATIN: &str = "Latin";
/// Han, Kana, Hangul and Bopomofo are written together, and Latin letters among them are normal.
const EAST_ASIAN: &str = "East Asian";
/// Letters that are designed to look like others: mathematical, fullwidth, circled.
const STYLED: &str = "styled letters";
const OTHER: &str = "other";
/// Used before units in Latin letters.
const MICRO_SIGN: char = '\u{b5}';

/// None for characters that are not letters, and for the micro sign.
pub(super) fn letter_script(c: char) -> Option<&'static str> {
    if !c.is_alphabetic() || c == MICRO_SIGN {
        return None;
    }
    let code = u32::from(c);
    let index = SCRIPTS.partition_point(|(first, ..)| *first <= code).checked_sub(1);
    let row = index.and_then(|index| SCRIPTS.get(index));
    Some(row.filter(|(_, last, _)| code <= *last).map_or(OTHER, |(.., script)| script))
}

/// Digits, combining marks and joining punctuation do not end a word.
pub(super) fn is_inside_a_word(c: char) -> bool {
    let is_mark = matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{900}'..='\u{dff}' | '\u{e31}'..='\u{e4e}');
    c.is_alphanumeric() || c == '_' || is_mark
}

pub(super) fn may_share_a_word(one: &str, other: &str) -> bool {
    one == other || [[one, other], [other, one]].contains(&[LATIN, EAST_ASIAN])
}

/// The blocks that Unicode reserves for scripts written from right to left.
pub(super) fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

#[test]
fn the_table_is_in_order_so_that_it_can_be_searched() {
    assert!(SCRIPTS.iter().all(|(first, last, _)| first <= last));
    assert!(SCRIPTS.windows(2).all(|rows| rows[0].1 < rows[1].0));
}
