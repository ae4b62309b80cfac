//! The header of a planted fault names a test, or a rule of the kill matrix, that the tree has.
//!
//! `sim/faults/run` runs that test. If the tree no longer had it, nothing would look for the fault.

use super::faults::patches;
use super::rust_code::code_only;
use super::tree::{TextFile, assert_no_complaints, files};

/// The file that lists the rules of the kill matrix.
const KILL_RULES: &str = "tests/kill/src/judge/mod.rs";

/// A header that names a test or a rule names one that `tree` has.
fn header_complaints(patch: &TextFile, tree: &[TextFile]) -> Vec<String> {
    let named = |key: &str| -> Vec<String> {
        let header = patch.text.lines().take_while(|line| !line.starts_with("--- "));
        header.filter_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned()).collect()
    };
    let why = match (named("Test:").as_slice(), named("Kill:").as_slice()) {
        ([], []) => None,
        ([test], []) => test_complaint(test, tree),
        ([], [rule]) => (!kill_rules(tree).contains(rule))
            .then(|| format!("the kill matrix has no rule `{rule}`; the rules are in {KILL_RULES}")),
        (_, _) => Some("the header has more than one line `Test:` or `Kill:`".to_owned()),
    };
    why.map(|why| format!("{}: {why}", patch.path)).into_iter().collect()
}

fn kill_rules(tree: &[TextFile]) -> Vec<String> {
    let file = tree.iter().find(|file| file.path == KILL_RULES);
    let code = file.map(|file| code_only(&file.text)).unwrap_or_default();
    let after = code.split_once("pub enum Rule {").map_or("", |(_, after)| after);
    let variants = after.split_once('}').map_or("", |(variants, _)| variants);
    variants.split(',').map(|variant| variant.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn test_complaint(header: &str, tree: &[TextFile]) -> Option<String> {
    let words: Vec<&str> = header.split_whitespace().collect();
    let [package, binary, test] = words.as_slice() else {
        return Some(format!("`Test: {header}` is not `Test: PACKAGE BINARY NAME`"));
    };
    let Some(folder) = package_folder(package, tree) else {
        return Some(format!("the tree has no package `{package}`"));
    };
    let (binary_folder, main) = match *binary {
        "lib" => (format!("{folder}src/"), format!("{folder}src/lib.rs")),
        _ => (format!("{folder}tests/{binary}/"), format!("{folder}tests/{binary}.rs")),
    };
    let main = [format!("{binary_folder}main.rs"), main];
    let Some(main) = tree.iter().find(|file| main.contains(&file.path)) else {
        return Some(format!("the package `{package}` has no test binary `{binary}`"));
    };
    let is_of_binary = |file: &&TextFile| file.path.starts_with(&binary_folder) || file.path == main.path;
    let sources = tree.iter().filter(is_of_binary).collect();
    let binary_code = Binary { folder: binary_folder, main, sources };
    (!binary_code.has_test(test))
        .then(|| format!("`{package}` has no test `{test}` in its test binary `{binary}`"))
}

/// The folder of a package, with a `/` at its end.
fn package_folder(package: &str, tree: &[TextFile]) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let is_package = |manifest: &&TextFile| {
        let lines = manifest.text.lines().skip_while(|line| *line != "[package]").skip(1);
        lines.take_while(|line| !line.starts_with('[')).any(|line| line == name)
    };
    let mut manifests = tree.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.find(is_package).map(|manifest| manifest.path.replace("Cargo.toml", ""))
}

/// The sources of one test binary.
struct Binary<'a> {
    /// With a `/` at its end. A binary of one file has no such folder.
    folder: String,
    main: &'a TextFile,
    sources: Vec<&'a TextFile>,
}

impl Binary<'_> {
    /// Follows the modules of the path by their files, then looks for the function, or for the macro that makes it.
    fn has_test(&self, path: &str) -> bool {
        let mut segments: Vec<&str> = path.split("::").collect();
        let name = segments.pop().unwrap_or(path);
        let mut module = self.main;
        let mut folder = self.folder.clone();
        while let Some((first, rest)) = segments.split_first() {
            let files = [format!("{folder}{first}.rs"), format!("{folder}{first}/mod.rs")];
            let declares = code_only(&module.text).contains(&format!("mod {first};"));
            let Some(found) = self.sources.iter().find(|file| declares && files.contains(&file.path)) else {
                break;
            };
            module = found;
            folder = format!("{folder}{first}/");
            segments = rest.to_vec();
        }
        let code = code_only(&module.text);
        match segments.as_slice() {
            [] => has_test_function(&code, name),
            [made] => {
                block_after(&code, &format!("mod {made} "))
                    .is_some_and(|inner| has_test_function(inner, name))
                    || self.is_made_by_a_macro(&code, made, name)
            }
            [_, ..] => false,
        }
    }

    /// A macro makes a module for each store, with one test for each function that is listed: either its call lists the
    /// functions (`on_all_stores! { name; }`), or its definition does and its call names the module (`conformance!(sqlite, …)`).
    fn is_made_by_a_macro(&self, code: &str, module: &str, name: &str) -> bool {
        let definitions: Vec<String> = self.sources.iter().map(|file| code_only(&file.text)).collect();
        let calls_by_name = |called: &str| format!("{called}!({module},");
        macros(&definitions).iter().any(|(called, body)| {
            let listed = block_after(code, &format!("{called}! "));
            let makes = body.contains(&format!("mod {module} "))
                || macros(&definitions).iter().any(|(inner, made)| {
                    body.contains(&format!("{inner}! ")) && made.contains(&format!("mod {module} "))
                });
            let by_call = makes && listed.is_some_and(|listed| has_word(listed, name));
            let by_definition = code.contains(&calls_by_name(called)) && has_word(body, name);
            by_call || by_definition
        })
    }
}

/// Every `macro_rules!` with its name and its body.
fn macros(definitions: &[String]) -> Vec<(&str, &str)> {
    let each = definitions
        .iter()
        .flat_map(|code| code.match_indices("macro_rules! ").map(move |(at, _)| &code[at..]));
    each.filter_map(|definition| {
        let definition = definition.strip_prefix("macro_rules! ")?;
        let name = definition.split_whitespace().next()?;
        Some((name, block_after(definition, name)?))
    })
    .collect()
}

/// What is between the braces that open after `opening`.
fn block_after<'a>(code: &'a str, opening: &str) -> Option<&'a str> {
    let start = code.find(opening)? + opening.len();
    let inner = code[start..].trim_start().strip_prefix('{')?;
    let mut depth = 1_u32;
    for (at, character) in inner.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inner[..at]);
        }
    }
    None
}

/// A function of this module itself with an attribute that makes it a test: `#[test]`, `#[tokio::test(…)]`.
fn has_test_function(code: &str, name: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let declares = |line: &str| line.contains(&format!("fn {name}("));
    let braces = |line: &&str, brace: char| line.matches(brace).count();
    lines.iter().enumerate().filter(|(_, line)| declares(line)).any(|(at, _)| {
        let before = &lines[..at];
        let opened: usize = before.iter().map(|line| braces(line, '{')).sum();
        let closed: usize = before.iter().map(|line| braces(line, '}')).sum();
        let mut attributes = before.iter().rev().take_while(|line| line.starts_with("#[") || line.is_empty());
        opened == closed && attributes.any(|line| line.starts_with("#[test]") || line.contains("::test"))
    })
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn every_planted_fault_names_a_test_or_a_rule_of_the_tree() {
    let complaints: Vec<String> =
        patches().iter().flat_map(|patch| header_complaints(patch, files())).collect();
    assert_no_complaints(&complaints);
}

#[test]
fn a_header_with_a_wrong_name_is_found() {
    let stage = "macro_rules! on_one_store {\n($($name:ident;)*) => { mod in_memory { $(fn $name() {})* } };\n}\n\
                 macro_rules! on_all_stores {\n($($name:ident;)*) => { on_one_store! { $($name;)* } mod on_disk { } };\n}\n";
    let rules = "macro_rules! rules {\n($store:ident) => { mod $store { rules! { @tests deeds::kept, } } };\n}\n\
                 rules!(sqlite, Sqlite);\n";
    let tree = [
        TextFile::new("crates/web/Cargo.toml", "[package]\nname = \"holdpoint-web\"\n"),
        TextFile::new("crates/web/src/lib.rs", "mod text {\n#[test]\nfn short() {}\n}\n"),
        TextFile::new("crates/web/tests/one.rs", "#[tokio::test]\nasync fn alone() {}\nfn helper() {}\n"),
        TextFile::new("crates/web/tests/server/main.rs", &format!("mod deeds;\nmod stage;\n{rules}")),
        TextFile::new("crates/web/tests/server/stage.rs", stage),
        TextFile::new(
            "crates/web/tests/server/deeds.rs",
            "on_all_stores! { kept; }\n#[test]\n\nfn plain() {}\nasync fn kept() {}\n// fn disabled() {}\n",
        ),
        TextFile::new(KILL_RULES, "pub enum Rule {\n    /// Kept.\n    OnlyOnce,\n    Never,\n}\n"),
    ];
    let complaints = |header: &str| {
        let text = format!("A story.\n\n{header}\n\n--- a/x.rs\n+++ b/x.rs\n");
        header_complaints(&TextFile::new("sim/faults/a.patch", &text), &tree)
    };
    for right in [
        "",
        "Kill: OnlyOnce",
        "Kill: Never",
        "Test: holdpoint-web one alone",
        "Test: holdpoint-web lib text::short",
        "Test: holdpoint-web server deeds::plain",
        "Test: holdpoint-web server deeds::in_memory::kept",
        "Test: holdpoint-web server deeds::on_disk::kept",
        "Test: holdpoint-web server sqlite::kept",
    ] {
        assert_no_complaints(&complaints(right));
    }
    for wrong in [
        "Kill: Kept",
        "Kill: OnlyOnce\nTest: holdpoint-web one alone",
        "Test: deeds::plain",
        "Test: web one alone",
        "Test: holdpoint-web two alone",
        "Test: holdpoint-web one helper",
        "Test: holdpoint-web one gone",
        "Test: holdpoint-web lib short",
        "Test: holdpoint-web server plain",
        "Test: holdpoint-web server deeds::kept",
        "Test: holdpoint-web server deeds::disabled",
        "Test: holdpoint-web server deeds::on_disk::plain",
        "Test: holdpoint-web server deeds::on_tape::kept",
        "Test: holdpoint-web server postgres::kept",
        "Test: holdpoint-web server sqlite::gone",
    ] {
        assert_eq!(complaints(wrong).len(), 1, "{wrong}");
    }
}
