//! Encodes live deltas of a run for other nodes, in payloads that fit into a notification.

use engine::live::{Delta, Part, ToolNote, ToolNoteBody};
use engine::store::LiveUpdate;
use machine::Timestamp;
use machine::id::{CallId, MessageId, RunId, ToolName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::notify::PAYLOAD_BYTES_MAX;

/// Text bytes of one payload, as encoded; the rest of the payload is for names.
const TEXT_BYTES_MAX: usize = 6_000;
/// Reserved for the sender, which is prepended to each payload.
const HEAD_BYTES_MAX: usize = 32;

/// One payload. Names are short because all of it has to fit. A node of an earlier version sends neither `step`, `at`
/// nor `tool`, and ignores them.
#[derive(Serialize, Deserialize)]
struct EncodedDelta {
    run: String,
    after: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    /// In milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// The tool of a log line or of progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(flatten)]
    said: PayloadBody,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PayloadBody {
    Delta { message: String, attempt: u32, part: PayloadPart, offset: u64, text: String },
    Log { call: String, attempt: u32, text: String },
    Progress { call: String, attempt: u32, value: Value },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PayloadPart {
    Text,
    Reasoning,
    Arguments { index: u16, call: Option<String> },
}

/// Encodes each update. An update whose names leave no room is dropped.
pub(super) fn encode(run: &RunId, after: u64, said: Vec<LiveUpdate>) -> Vec<String> {
    let words = said.into_iter().flat_map(|said| {
        let (step, at, tool, bodies) = match said {
            LiveUpdate::Delta(delta) => (delta.step, delta.at, None, split_delta(&delta)),
            LiveUpdate::Note(note) => {
                let tool = note.tool.as_ref().map(|tool| tool.as_str().to_owned());
                (note.step, note.at, tool, vec![tool_note_body(note)])
            }
        };
        bodies.into_iter().map(move |said| (step, at, tool.clone(), said))
    });
    let notes = words.filter_map(|(step, at, tool, said)| {
        let note = EncodedDelta { run: run.as_str().to_owned(), after, step, at: Some(at.0), tool, said };
        serde_json::to_string(&note).ok().filter(|note| note.len() + HEAD_BYTES_MAX <= PAYLOAD_BYTES_MAX)
    });
    notes.collect()
}

/// `now` is the time of an update whose sender, a node of an earlier version, does not say it.
pub(super) fn decode(note: &str, now: impl FnOnce() -> Timestamp) -> Option<(RunId, u64, Vec<LiveUpdate>)> {
    let EncodedDelta { run, after, step, at, tool, said } = serde_json::from_str(note).ok()?;
    let at = at.map_or_else(now, Timestamp);
    let tool_note = |call, attempt, body| {
        let (call_id, tool) = (CallId::from(call), tool.map(ToolName::from));
        LiveUpdate::Note(ToolNote { call_id, tool, attempt, step, at, body })
    };
    let said = match said {
        PayloadBody::Delta { message, attempt, part, offset, text } => {
            let part = match part {
                PayloadPart::Text => Part::Text,
                PayloadPart::Reasoning => Part::Reasoning,
                PayloadPart::Arguments { index, call } => Part::Arguments { index, call_id: call },
            };
            let message_id = MessageId::from(message);
            LiveUpdate::Delta(Delta { message_id, attempt, step, at, part, offset, text })
        }
        PayloadBody::Log { call, attempt, text } => tool_note(call, attempt, ToolNoteBody::Log(text)),
        PayloadBody::Progress { call, attempt, value } => {
            tool_note(call, attempt, ToolNoteBody::Progress(value))
        }
    };
    Some((RunId::from(run), after, vec![said]))
}

fn tool_note_body(note: ToolNote) -> PayloadBody {
    let (call, attempt) = (note.call_id.as_str().to_owned(), note.attempt);
    match note.body {
        // A longer log line is truncated: receivers do not join the pieces of a line.
        ToolNoteBody::Log(text) => PayloadBody::Log {
            call,
            attempt,
            text: split_text(&text).into_iter().next().unwrap_or_default().to_owned(),
        },
        ToolNoteBody::Progress(value) => PayloadBody::Progress { call, attempt, value },
    }
}

fn split_delta(delta: &Delta) -> Vec<PayloadBody> {
    let part = match &delta.part {
        Part::Text => PayloadPart::Text,
        Part::Reasoning => PayloadPart::Reasoning,
        Part::Arguments { index, call_id } => PayloadPart::Arguments { index: *index, call: call_id.clone() },
    };
    let mut offset = delta.offset;
    let pieces = split_text(&delta.text).into_iter().map(|text| {
        let piece = PayloadBody::Delta {
            message: delta.message_id.as_str().to_owned(),
            attempt: delta.attempt,
            part: part.clone(),
            offset,
            text: text.to_owned(),
        };
        offset += text.chars().count() as u64;
        piece
    });
    pieces.collect()
}

/// Splits the text into pieces that are short enough when encoded.
fn split_text(text: &str) -> Vec<&str> {
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, sign) in text.char_indices() {
        let written = match sign {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            sign if sign.is_control() => 6,
            sign => sign.len_utf8(),
        };
        if bytes + written > TEXT_BYTES_MAX {
            pieces.extend(text.get(begin..at));
            (begin, bytes) = (at, 0);
        }
        bytes += written;
    }
    pieces.extend(text.get(begin..).filter(|rest| !rest.is_empty()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(part: Part, offset: u64, text: &str) -> Delta {
        let (message_id, text) = ("msg_run_1".into(), text.into());
        Delta { message_id, attempt: 2, step: Some(1), at: Timestamp(5), part, offset, text }
    }

    fn received_at() -> Timestamp {
        Timestamp(9)
    }

    fn decoded(notes: &[String]) -> Vec<LiveUpdate> {
        let read = notes.iter().map(|note| decode(note, received_at).expect("a note can be read"));
        read.flat_map(|(run, after, said)| {
            assert_eq!((run.as_str(), after), ("run", 7));
            said
        })
        .collect()
    }

    #[test]
    fn encoded_deltas_decode_to_the_same() {
        let arguments = Part::Arguments { index: 3, call_id: Some("call\"1".into()) };
        let note = |body| {
            let (tool, step, at) = (Some("slow".into()), Some(3), Timestamp(6));
            LiveUpdate::Note(ToolNote { call_id: "call".into(), tool, attempt: 1, step, at, body })
        };
        let said = vec![
            LiveUpdate::Delta(delta(Part::Text, 0, "Grüße\0\n")),
            LiveUpdate::Delta(delta(Part::Reasoning, 5, "so")),
            LiveUpdate::Delta(delta(arguments, 9, "{\"a\"")),
            note(ToolNoteBody::Log("half".into())),
            note(ToolNoteBody::Progress(serde_json::json!({ "done": 0.5 }))),
        ];
        let notes = encode(&"run".into(), 7, said.clone());
        assert!(notes.iter().all(|note| !note.contains('\0')), "no notification may carry that");
        assert_eq!(decoded(&notes), said);
        assert_eq!(decode("{}", received_at), None);
    }

    #[test]
    fn a_long_text_goes_in_pieces_that_follow_each_other() {
        for sign in ["a", "\u{1}", "é", "\"", "語", "\u{7f}", "\u{85}"] {
            let text = sign.repeat(20_000);
            let notes = encode(&"run".into(), 7, vec![LiveUpdate::Delta(delta(Part::Text, 10, &text))]);
            assert!(notes.len() > 2 && notes.iter().all(|note| note.len() < PAYLOAD_BYTES_MAX));
            let mut joined = String::new();
            for said in decoded(&notes) {
                let LiveUpdate::Delta(piece) = said else { panic!("only deltas were sent") };
                assert_eq!(piece.offset, 10 + joined.chars().count() as u64);
                joined.push_str(&piece.text);
            }
            assert_eq!(joined, text);
        }
    }

    #[test]
    fn a_payload_of_an_earlier_version_has_no_step_and_the_time_of_its_arrival() {
        let text = r#"{"run":"run","after":7,"delta":{"message":"m","attempt":2,"part":"text","offset":4,"text":"hi"}}"#;
        let (_, _, said) = decode(text, received_at).expect("it can be read");
        let LiveUpdate::Delta(delta) = &said[0] else { panic!("it is a delta") };
        assert_eq!((delta.step, delta.at, delta.offset, &*delta.text), (None, Timestamp(9), 4, "hi"));
        let text = r#"{"run":"run","after":7,"log":{"call":"c","attempt":1,"text":"half"}}"#;
        let (_, _, said) = decode(text, received_at).expect("it can be read");
        let LiveUpdate::Note(note) = &said[0] else { panic!("it is a note") };
        assert_eq!((&note.tool, note.step, note.at), (&None, None, Timestamp(9)));
    }

    /// What a node of an earlier version reads of a payload.
    #[derive(Deserialize)]
    struct EarlierPayload {
        run: String,
        after: u64,
        #[serde(flatten)]
        said: PayloadBody,
    }

    #[test]
    fn a_node_of_an_earlier_version_reads_what_this_one_sends() {
        let sent = encode(&"run".into(), 7, vec![LiveUpdate::Delta(delta(Part::Text, 4, "hi"))]);
        let read: EarlierPayload = serde_json::from_str(&sent[0]).expect("it can be read");
        assert_eq!((read.run.as_str(), read.after), ("run", 7));
        assert!(matches!(read.said, PayloadBody::Delta { attempt: 2, offset: 4, .. }));
    }
}
