//! With types that are generated from the OpenAPI document, a TypeScript compiler knows what each event contains.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn compile(document: &Path) -> Result<(), String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/typescript/check");
    let ended = Command::new(&script).arg(document).output().expect("the script can be run");
    let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let text = printed(&ended.stdout) + &printed(&ended.stderr);
    if ended.status.success() { Ok(()) } else { Err(text) }
}

#[test]
fn generated_types_narrow_every_event_by_its_type() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    compile(&document).unwrap_or_else(|text| panic!("{text}"));

    // An event without a case in narrow.ts is an error, so the switch is exhaustive.
    let mut changed: Value = serde_json::from_str(&std::fs::read_to_string(&document).unwrap()).unwrap();
    let schemas = changed["components"]["schemas"].as_object_mut().unwrap();
    let mut further = schemas["TextDeltaFrame"].clone();
    further["properties"]["type"]["enum"] = json!(["text.sung"]);
    schemas.insert("TextSungFrame".to_owned(), further);
    let reference = "#/components/schemas/TextSungFrame";
    schemas["Event"]["oneOf"].as_array_mut().unwrap().push(json!({"$ref": reference}));
    schemas["Event"]["discriminator"]["mapping"]["text.sung"] = json!(reference);
    let file = std::env::temp_dir().join(format!("holdpoint-openapi-{}.json", std::process::id()));
    std::fs::write(&file, changed.to_string()).unwrap();
    let compiled = compile(&file);
    std::fs::remove_file(&file).unwrap();
    let text = compiled.expect_err("an event without a case does not compile");
    assert!(text.contains("narrow.ts") && text.contains("never"), "{text}");
}

#[test]
fn a_stream_of_a_thread_without_the_union_does_not_compile() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let mut changed: Value = serde_json::from_str(&std::fs::read_to_string(document).unwrap()).unwrap();
    let content = &mut changed["paths"]["/v1/threads/{id}/events"]["get"]["responses"]["200"]["content"];
    content["text/event-stream"]["schema"] = json!({"type": "string"});
    let file = std::env::temp_dir().join(format!("holdpoint-thread-{}.json", std::process::id()));
    std::fs::write(&file, changed.to_string()).unwrap();
    let compiled = compile(&file);
    std::fs::remove_file(&file).unwrap();
    let text = compiled.expect_err("the items of the stream are not events");
    assert!(text.contains("narrow.ts") && text.contains("TS2322"), "{text}");
}
