//! Whatever passes the walk over its text is stored and read back as it is; everything else is refused as text.

use machine::event::{Fact, ResultFrom};
use machine::id::CallId;
use machine::json::Json;
use machine::json_text::{Bounds, parse, walk};
use machine::json_value::{fault, memory_bytes};
use machine::{Event, Timestamp, event_codec};
use serde_json::Value;

use crate::chance::Chance;
use crate::json_texts::json_text;

const TEXT_COUNT: u64 = 1_000;

#[test]
fn any_json_text_is_refused_or_stored_and_read_back_as_it_is() {
    let (mut kept, mut refused) = (0, 0);
    for seed in 0..TEXT_COUNT {
        let text = json_text(&mut Chance::from_seed(seed));
        let shown = || format!("seed {seed}: {}", text.chars().take(300).collect::<String>());
        let plain = serde_json::from_str::<Value>(&text);
        match parse(&text, &Bounds::VALUE) {
            Ok(value) => {
                assert_eq!(fault(&value), None, "{}", shown());
                assert_eq!(plain.ok().as_ref(), Some(&value), "{}", shown());
                assert_eq!(read_back(&value), value, "{}", shown());
                let cost = walk(text.as_bytes(), &Bounds::VALUE).expect("it was walked");
                assert!(cost.memory_bytes >= memory_bytes(&value), "{}", shown());
                // Escapes make the text longer than the value.
                assert!(cost.memory_bytes <= memory_bytes(&value) + 6 * text.len(), "{}", shown());
                kept += 1;
            }
            Err(why) if why.is_syntax() => {
                assert!(plain.is_err(), "{}: {why}", shown());
                refused += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(kept > TEXT_COUNT / 4 && refused > TEXT_COUNT / 4, "{kept} kept, {refused} refused");
}

fn read_back(value: &Value) -> Value {
    let fact = Fact::ExecutionSucceeded {
        call_id: CallId::from("A"),
        result: Json::from(value),
        warning: None,
        by: ResultFrom::Tool,
    };
    let event = Event { seq: 1, at: Timestamp(1), step: Some(1), fact };
    let text = event_codec::encode(&event).expect("an event can be written");
    let fact = event_codec::decode(&text).expect("what was written is read").fact;
    let Fact::ExecutionSucceeded { result, .. } = &fact else { panic!("{fact:?}") };
    result.to_value()
}
