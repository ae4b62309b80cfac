//! However a run is cut into segments, the client ends up with the conversation of the log.

use std::collections::BTreeMap;

use crate::feed_story::DIALECTS;
use crate::reader::Reader;
use crate::world::{Dice, Maker};

const WORLDS: u64 = 400;

#[test]
fn streams_of_all_segments_fold_to_the_conversation_of_the_log() {
    let (mut segments, mut ends) = (0, BTreeMap::<String, usize>::new());
    for seed in 1..=WORLDS {
        let world = Maker::make(seed);
        for dialect in DIALECTS {
            for cuts in [0, 30, 70] {
                let mut reader = Reader::new(&world, dialect, Dice::new(seed * 7 + cuts as u64), cuts);
                reader.read_to_the_end();
                reader.assert_conversation(seed);
                segments += reader.segments;
                for end in reader.ends {
                    *ends.entry(end).or_default() += 1;
                }
            }
        }
    }
    // The worlds are rich enough to mean something.
    assert!(segments > WORLDS as usize * 12, "{segments} segments");
    for end in ["success", "interrupt", "pending", "cancelled", "RUN_ERROR", "cut"] {
        assert!(ends.get(end).is_some_and(|count| *count > 50), "{end}: {ends:?}");
    }
}
