//! Rust text as the rules see it: without comments and strings, and cut into functions and test items.

use std::ops::Range;

/// A function with a body.
pub(super) struct Function {
    pub(super) name: String,
    /// From the line of `fn` to the line of the closing brace, both counted.
    pub(super) line_count: usize,
}

/// The text with every comment, string and character literal replaced by spaces. Lines keep their numbers.
///
/// Rules search the result, so that a rule may be written about, and its own source may name what it forbids.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => end_of_line(&chars, at),
            ('/', Some('*')) => end_of_block_comment(&chars, at),
            ('"', _) => end_of_string(&chars, at),
            ('\'', Some('\\')) => end_after(&chars, at + 3, '\''),
            ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
            (other, _) => {
                code.push(other);
                at += 1;
                continue;
            }
        };
        let literal = &chars[at..end];
        code.extend(literal.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The code without items under `#[cfg(test)]` or `#[test]`. Lines keep their numbers.
pub(super) fn production_code(code: &str) -> String {
    let mut rest = String::with_capacity(code.len());
    let mut at = 0;
    for item in test_items(code) {
        rest.push_str(&code[at..item.start]);
        rest.extend(code[item.clone()].chars().filter(|c| *c == '\n'));
        at = item.end;
    }
    rest.push_str(&code[at..]);
    rest
}

/// How many lines are left when test items are taken away.
pub(super) fn production_line_count(code: &str) -> usize {
    let test_lines: usize = test_items(code).iter().map(|item| code[item.clone()].lines().count()).sum();
    code.lines().count().saturating_sub(test_lines)
}

/// Every function with a body, nested ones included, in the order of their names in the file.
pub(super) fn functions(code: &str) -> Vec<Function> {
    word_places(code, "fn")
        .into_iter()
        .filter_map(|start| {
            let after = code[start + "fn".len()..].trim_start();
            let name: String = after.chars().take_while(|c| is_word_char(*c)).collect();
            // `fn(u8)` is a type.
            if name.is_empty() {
                return None;
            }
            let end = end_of_item(code, start);
            let has_body = code[start..end].ends_with('}');
            has_body.then(|| Function { name, line_count: code[start..end].lines().count() })
        })
        .collect()
}

/// The lines, counted from 1, that contain `word` with no letter, digit or underscore beside it.
pub(super) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    word_places(code, word).into_iter().map(|place| code[..place].matches('\n').count() + 1).collect()
}

fn word_places(code: &str, word: &str) -> Vec<usize> {
    let edge_of_word = |c: char| !is_word_char(c);
    code.match_indices(word)
        .map(|(place, _)| place)
        .filter(|place| {
            let before = code[..*place].chars().next_back();
            let after = code[place + word.len()..].chars().next();
            // A word that begins or ends with punctuation is its own edge: `todo!`, `#[ignore`, `std::`.
            let starts_open = !word.starts_with(is_word_char) || before.is_none_or(edge_of_word);
            let ends_open = !word.ends_with(is_word_char) || after.is_none_or(edge_of_word);
            starts_open && ends_open
        })
        .collect()
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    let mut places: Vec<usize> =
        ["#[cfg(test)]", "#[test]"].iter().flat_map(|mark| code.match_indices(mark)).map(|m| m.0).collect();
    places.sort_unstable();
    for start in places {
        // A `#[test]` inside a `#[cfg(test)]` module is removed with the module.
        let is_inside = items.last().is_some_and(|item| item.contains(&start));
        if !is_inside {
            items.push(start..end_of_item(code, start));
        }
    }
    items
}

/// The end of the item that begins at `start`: after its `;`, or after the brace that closes its body.
fn end_of_item(code: &str, start: usize) -> usize {
    let mut round_or_square = 0_i32;
    let mut curly = 0_i32;
    for (offset, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => round_or_square += 1,
            ')' | ']' => round_or_square -= 1,
            '{' => curly += 1,
            '}' => curly -= 1,
            _ => {}
        }
        let is_outside = round_or_square == 0 && curly == 0;
        if is_outside && (c == ';' || c == '}') {
            return start + offset + 1;
        }
    }
    code.len()
}

fn end_of_line(chars: &[char], start: usize) -> usize {
    chars[start..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| start + length)
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

/// `quote` is the index of the opening quote. The characters before it distinguish a raw string from a plain one.
fn end_of_string(chars: &[char], quote: usize) -> usize {
    let hashes = chars[..quote].iter().rev().take_while(|c| **c == '#').count();
    let is_raw = quote > hashes && chars[quote - hashes - 1] == 'r';
    if is_raw {
        let closing = |at: usize| {
            chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
        };
        return (quote + 1..chars.len()).find(|at| closing(*at)).map_or(chars.len(), |at| at + 1 + hashes);
    }
    let mut at = quote + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_after(chars: &[char], from: usize, wanted: char) -> usize {
    (from..chars.len()).find(|at| chars[*at] == wanted).map_or(chars.len(), |at| at + 1)
}

#[test]
fn comments_strings_and_characters_are_blanked_and_lifetimes_stay() {
    let text = "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# b'k' '\\'' '\"' &'l m";
    let code = code_only(text);
    let left: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(left, "a f r# b &'l m");
    assert_eq!(code.matches('\n').count(), text.matches('\n').count());
}

#[test]
fn a_function_is_measured_over_braces_in_strings_and_array_types() {
    let text = "fn short(x: [u8; 2]) {}\ntype F = fn(u8);\nfn long<T>(t: T)\nwhere\n    T: Copy,\n{\n    let _ = \"}\";\n}\n";
    let found: Vec<(String, usize)> =
        functions(&code_only(text)).into_iter().map(|f| (f.name, f.line_count)).collect();
    assert_eq!(found, [("short".to_owned(), 1), ("long".to_owned(), 6)]);
}

#[test]
fn test_items_do_not_count_as_production_code() {
    let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn b() {}\n}\n#[cfg(test)]\nmod c;\nfn d() {}\n";
    assert_eq!(production_line_count(code), 2);
    let names: Vec<String> = functions(&production_code(code)).into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["a", "d"]);
    assert_eq!(lines_with_word(&production_code(code), "d"), [9]);
}

#[test]
fn a_word_is_found_only_where_it_stands_alone() {
    assert_eq!(lines_with_word("Instant\nInstantly\nan_Instant\nx.Instant()", "Instant"), [1, 4]);
    assert_eq!(lines_with_word("todo!()\nmytodo!()", "todo!"), [1]);
}
