//! Markdown as the rules see it: its headings' anchors, its links, and what it shows as code.

/// What one document contains, each thing with its line, counted from 1.
#[derive(Default)]
pub(super) struct Document {
    pub(super) anchors: Vec<String>,
    pub(super) links: Vec<(usize, String)>,
    /// Code spans, and the lines of code blocks.
    pub(super) code: Vec<(usize, String)>,
}

pub(super) fn parse(text: &str) -> Document {
    let mut document = Document::default();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let opening = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        if let Some(mark) = fence {
            if opening == Some(mark) {
                fence = None;
            } else {
                document.code.push((number, line.to_owned()));
            }
            continue;
        }
        if opening.is_some() {
            fence = opening;
            continue;
        }
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let anchor = anchor(heading, &document.anchors);
            document.anchors.push(anchor);
        }
        let (prose, spans) = split_code_spans(line);
        document.code.extend(spans.into_iter().map(|span| (number, span)));
        document.links.extend(link_targets(&prose).into_iter().map(|target| (number, target)));
    }
    document
}

/// The name by which a heading is linked to: lower case, without punctuation, numbered when it repeats.
fn anchor(heading: &str, earlier: &[String]) -> String {
    let base: String = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    if !earlier.contains(&base) {
        return base;
    }
    let mut number = 1;
    while earlier.contains(&format!("{base}-{number}")) {
        number += 1;
    }
    format!("{base}-{number}")
}

/// The line with its code spans cut out, and the spans.
fn split_code_spans(line: &str) -> (String, Vec<String>) {
    let mut prose = String::new();
    let mut spans = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].chars().take_while(|c| *c == '`').count();
        let mark = &rest[start..start + ticks];
        let inside = &rest[start + ticks..];
        let Some(length) = inside.find(mark) else {
            break;
        };
        prose.push_str(&rest[..start]);
        spans.push(inside[..length].to_owned());
        rest = &inside[length + ticks..];
    }
    prose.push_str(rest);
    (prose, spans)
}

fn link_targets(prose: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let inline = prose.match_indices("](").map(|(place, mark)| &prose[place + mark.len()..]);
    for after in inline {
        if let Some(length) = after.find(')') {
            targets.push(&after[..length]);
        }
    }
    // `[name]: target` at the beginning of a line defines a link for the whole document.
    if prose.starts_with('[')
        && let Some((_, target)) = prose.split_once("]: ")
    {
        targets.push(target);
    }
    // A title may follow the target.
    targets.iter().filter_map(|target| target.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn anchors_links_and_code_are_found() {
    let text = "# The `log`, replayed\n[a](b.md \"Title\") and `[not](a link)` [c](#d)\n\
                [e]: f.md\n```text\n# no heading\n[no](link)\n```\n# The log replayed\n#hash\n";
    let document = parse(text);
    assert_eq!(document.anchors, ["the-log-replayed", "the-log-replayed-1"]);
    assert_eq!(document.links, [(2, "b.md".to_owned()), (2, "#d".to_owned()), (3, "f.md".to_owned())]);
    let code: Vec<&str> = document.code.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(code, ["log", "[not](a link)", "# no heading", "[no](link)"]);
}
