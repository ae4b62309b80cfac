//! Live updates, which are not stored: deltas of a model's answer, progress and logs of tools.
//!
//! Nothing is queued per watcher. A run has one text so far, and each watcher reads from it at its own pace. So the
//! slowest watcher costs the run nothing, and a late one gets the text so far as one delta.

use std::collections::VecDeque;
use std::fmt;
use std::slice::SliceIndex;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::Timestamp;
use machine::id::{CallId, MessageId, ToolName};
use serde_json::Value;

use crate::clock::Clock;
use crate::feed::RunFeed;

/// A piece of an answer. The event that follows carries the complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    pub message_id: MessageId,
    pub attempt: u32,
    /// None only from a process of an earlier version.
    pub step: Option<u32>,
    /// When the last of its text arrived.
    pub at: Timestamp,
    pub part: Part,
    /// In characters, from 0 within its part and attempt.
    pub offset: u64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text,
    Reasoning,
    /// Arguments of the call at this index of the answer, under the model's own id.
    Arguments {
        index: u16,
        call_id: Option<String>,
    },
}

/// A tool's note while it works. It changes no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNote {
    pub call_id: CallId,
    /// None only from a process of an earlier version.
    pub tool: Option<ToolName>,
    pub attempt: u32,
    /// The step that asked for the call. None only from a process of an earlier version.
    pub step: Option<u32>,
    pub at: Timestamp,
    pub body: ToolNoteBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolNoteBody {
    Log(String),
    Progress(Value),
}

/// A live update for one watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveItem {
    Delta(Delta),
    Reset(Reset),
    Note(ToolNote),
}

/// An attempt at an answer begins: discard what was received of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    pub message_id: MessageId,
    pub attempt: u32,
    pub step: Option<u32>,
    pub at: Timestamp,
}

/// Where live updates go, and the clock that stamps them.
#[derive(Clone)]
pub(crate) struct LiveOutput {
    pub(crate) feed: Arc<RunFeed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) step: u32,
}

/// Where a model sends its deltas.
#[derive(Clone)]
pub struct Deltas {
    output: Option<LiveOutput>,
    message_id: MessageId,
    attempt: u32,
}

impl Deltas {
    pub(crate) const fn new(output: LiveOutput, message_id: MessageId, attempt: u32) -> Self {
        Self { output: Some(output), message_id, attempt }
    }

    /// For callers without a feed: discards everything.
    #[must_use]
    pub fn discarding() -> Self {
        Self { output: None, message_id: MessageId::from(""), attempt: 1 }
    }

    pub fn text(&self, text: &str) {
        self.push(Part::Text, text);
    }

    pub fn reasoning(&self, text: &str) {
        self.push(Part::Reasoning, text);
    }

    pub fn arguments(&self, index: u16, call_id: Option<&str>, text: &str) {
        self.push(Part::Arguments { index, call_id: call_id.map(str::to_owned) }, text);
    }

    fn push(&self, part: Part, text: &str) {
        if let Some(LiveOutput { feed, clock, step }) = &self.output
            && !text.is_empty()
        {
            let (message_id, attempt) = (&self.message_id, self.attempt);
            let (step, at) = (Some(*step), clock.now());
            feed.live().append(&Piece { message_id, attempt, step, at, part: &part, text });
            feed.signal();
        }
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deltas of {}, attempt {}", self.message_id, self.attempt)
    }
}

/// Where a tool sends its progress and logs.
#[derive(Clone)]
pub struct ToolNotes {
    output: Option<LiveOutput>,
    call_id: CallId,
    tool: ToolName,
    attempt: u32,
}

impl ToolNotes {
    pub(crate) const fn new(output: LiveOutput, call_id: CallId, tool: ToolName, attempt: u32) -> Self {
        Self { output: Some(output), call_id, tool, attempt }
    }

    /// For callers without a feed: discards everything.
    #[must_use]
    pub fn discarding() -> Self {
        Self { output: None, call_id: CallId::from(""), tool: ToolName::from(""), attempt: 1 }
    }

    pub fn log(&self, text: &str) {
        self.push(ToolNoteBody::Log(text.chars().take(NOTE_CHARS_MAX).collect()));
    }

    /// Larger values are dropped.
    pub fn progress(&self, progress: Value) {
        if progress.to_string().len() <= NOTE_CHARS_MAX {
            self.push(ToolNoteBody::Progress(progress));
        }
    }

    fn push(&self, body: ToolNoteBody) {
        if let Some(LiveOutput { feed, clock, step }) = &self.output {
            let (call_id, tool, attempt) = (self.call_id.clone(), Some(self.tool.clone()), self.attempt);
            feed.live().note(ToolNote { call_id, tool, attempt, step: Some(*step), at: clock.now(), body });
            feed.signal();
        }
    }
}

impl fmt::Debug for ToolNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolNotes of {}", self.call_id)
    }
}

/// Maximum text of one answer that is kept for watchers; anything beyond comes only with the event.
pub const LIVE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Number of latest tool notes that are kept for watchers.
const NOTES_MAX: usize = 256;
/// Maximum characters of one tool note.
pub const NOTE_CHARS_MAX: usize = 4096;
/// A watcher that is further behind gets what it missed in one piece.
const UNREAD_PIECES_MAX: usize = 1024;

/// The answer in progress, and the latest notes.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Counts answers and attempts.
    generation: u64,
    message: Option<(MessageId, u32)>,
    /// The step of that answer.
    step: Option<u32>,
    /// When its attempt began.
    began_at: Timestamp,
    /// The last finished answer: nothing more is added to it.
    finished: Option<(MessageId, u32)>,
    parts: Vec<PartText>,
    pieces: Vec<PieceRange>,
    byte_count: usize,
    notes: VecDeque<KnownNote>,
    /// Number of notes that were dropped from the front of the queue.
    notes_dropped: u64,
}

#[derive(Debug)]
struct KnownNote {
    note: ToolNote,
    /// From another process, which has sent it to all others too.
    received: bool,
}

#[derive(Debug)]
struct PartText {
    part: Part,
    text: String,
    char_count: u64,
    /// When the last of the text arrived.
    at: Timestamp,
}

/// Text that is appended to a part.
struct Piece<'p> {
    message_id: &'p MessageId,
    attempt: u32,
    step: Option<u32>,
    at: Timestamp,
    part: &'p Part,
    text: &'p str,
}

/// The position of a delta in its part.
#[derive(Clone, Copy, Debug)]
struct PieceRange {
    part: usize,
    begin: usize,
    end: usize,
    offset: u64,
    at: Timestamp,
}

/// How far one watcher has read.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveCursor {
    generation: u64,
    piece: usize,
    /// The answer and attempt of which something was read, to report when it starts over.
    seen: Option<(MessageId, u32)>,
    notes_read: u64,
}

impl LiveCursor {
    /// The reset for this watcher when a later attempt at an answer begins; None if it has read nothing of an earlier
    /// attempt.
    pub(crate) fn restart(&mut self, reset: &Reset) -> Option<LiveItem> {
        self.seen.take_if(|(id, seen)| *id == reset.message_id && *seen < reset.attempt)?;
        Some(LiveItem::Reset(reset.clone()))
    }

    /// As if nothing of the answer had been read. Notes are delivered only once.
    pub(crate) fn start_over(&mut self) {
        *self = Self { notes_read: self.notes_read, ..Self::default() };
    }
}

impl Live {
    /// A delta from another process. False if something before it is missing: it is then rejected, because the text
    /// kept here has no gaps.
    pub(crate) fn receive(&mut self, delta: &Delta) -> bool {
        let is_current = self.is_current(&delta.message_id, delta.attempt);
        if !is_current && self.is_late(&delta.message_id, delta.attempt) {
            return true;
        }
        let part = self.parts.iter().find(|known| is_current && known.part == delta.part);
        let known = part.map_or(0, |part| part.char_count);
        if delta.offset > known {
            return false;
        }
        let skipped = usize::try_from(known - delta.offset).unwrap_or(usize::MAX);
        if let Some((begin, _)) = delta.text.char_indices().nth(skipped) {
            let news = delta.text.get(begin..).unwrap_or_default();
            let Delta { message_id, attempt, step, at, part, .. } = delta;
            self.append(&Piece { message_id, attempt: *attempt, step: *step, at: *at, part, text: news });
        }
        true
    }

    /// The store has the event with this answer: nothing more is added to it.
    pub(crate) fn mark_stored(&mut self, message_id: &MessageId) {
        if self.message.as_ref().is_some_and(|(id, _)| id == message_id) {
            self.clear();
        }
        self.finished = Some((message_id.clone(), u32::MAX));
    }

    /// The answer starts over: watchers no longer receive text of an earlier attempt.
    pub(crate) fn restart(&mut self, reset: &Reset) {
        let Reset { message_id, attempt, step, at } = reset;
        if self.message.as_ref().is_some_and(|(id, known)| id == message_id && known < attempt) {
            self.clear();
            self.begin(message_id, *attempt, *step, *at);
        }
    }

    fn begin(&mut self, message_id: &MessageId, attempt: u32, step: Option<u32>, at: Timestamp) {
        self.message = Some((message_id.clone(), attempt));
        self.step = step;
        self.began_at = at;
    }

    fn is_current(&self, message_id: &MessageId, attempt: u32) -> bool {
        self.message.as_ref().is_some_and(|(id, known)| id == message_id && *known == attempt)
    }

    /// Late text of an abandoned attempt, or of an answer that is already stored, is ignored.
    fn is_late(&self, message_id: &MessageId, attempt: u32) -> bool {
        [&self.message, &self.finished]
            .into_iter()
            .flatten()
            .any(|(id, last)| id == message_id && *last >= attempt)
    }

    fn append(&mut self, piece: &Piece<'_>) {
        let Piece { message_id, attempt, step, at, part, text } = *piece;
        if !self.is_current(message_id, attempt) {
            if self.is_late(message_id, attempt) {
                return;
            }
            self.clear();
            self.begin(message_id, attempt, step, at);
        }
        if self.byte_count + text.len() > LIVE_BYTES_MAX {
            return;
        }
        self.byte_count += text.len();
        let place = match self.parts.iter().position(|known| known.part == *part) {
            Some(place) => place,
            None => {
                self.parts.push(PartText { part: part.clone(), text: String::new(), char_count: 0, at });
                self.parts.len() - 1
            }
        };
        let Some(whole) = self.parts.get_mut(place) else { return };
        let (begin, offset) = (whole.text.len(), whole.char_count);
        whole.text.push_str(text);
        whole.char_count += text.chars().count() as u64;
        whole.at = at;
        self.pieces.push(PieceRange { part: place, begin, end: whole.text.len(), offset, at });
    }

    pub(crate) fn note(&mut self, note: ToolNote) {
        self.add_note(KnownNote { note, received: false });
    }

    /// A note that needs no relay: every process receives it.
    pub(crate) fn receive_note(&mut self, note: ToolNote) {
        self.add_note(KnownNote { note, received: true });
    }

    fn add_note(&mut self, note: KnownNote) {
        if self.notes.len() == NOTES_MAX {
            self.notes.pop_front();
            self.notes_dropped += 1;
        }
        self.notes.push_back(note);
    }

    /// The answer is stored, or starts over.
    pub(crate) fn clear(&mut self) {
        self.generation += 1;
        self.finished = self.message.take().or(self.finished.take());
        self.parts.clear();
        self.pieces.clear();
        self.byte_count = 0;
    }

    /// Everything that this watcher has not read yet.
    pub(crate) fn read(&self, cursor: &mut LiveCursor, into: &mut impl Extend<LiveItem>) {
        self.read_answer(cursor, UNREAD_PIECES_MAX, into);
        self.read_notes(cursor, |_| true, into);
    }

    /// What other processes have not received yet, with one piece for each part.
    pub(crate) fn read_joined(&self, cursor: &mut LiveCursor, into: &mut impl Extend<LiveItem>) {
        self.read_answer(cursor, 1, into);
        self.read_notes(cursor, |known| !known.received, into);
    }

    fn read_notes(
        &self,
        cursor: &mut LiveCursor,
        wanted: impl Fn(&KnownNote) -> bool,
        into: &mut impl Extend<LiveItem>,
    ) {
        let unread = cursor.notes_read.saturating_sub(self.notes_dropped);
        let unread = self.notes.iter().skip(usize::try_from(unread).unwrap_or(usize::MAX));
        into.extend(unread.filter(|known| wanted(known)).map(|known| LiveItem::Note(known.note.clone())));
        cursor.notes_read = self.notes_dropped + self.notes.len() as u64;
    }

    fn read_answer(&self, cursor: &mut LiveCursor, pieces_max: usize, into: &mut impl Extend<LiveItem>) {
        let Some((message_id, attempt)) = &self.message else { return };
        if cursor.generation != self.generation {
            let (message_id, attempt) = (message_id.clone(), *attempt);
            into.extend(cursor.restart(&Reset { message_id, attempt, step: self.step, at: self.began_at }));
            let notes_read = cursor.notes_read;
            *cursor = LiveCursor { generation: self.generation, piece: 0, seen: None, notes_read };
            // A late watcher gets the text so far, part by part.
            if self.pieces.len() > 1 {
                cursor.seen.clone_from(&self.message);
                into.extend(self.parts.iter().filter_map(|whole| self.delta(whole, 0.., 0, whole.at)));
                cursor.piece = self.pieces.len();
                return;
            }
        }
        let missed = self.pieces.get(cursor.piece..).unwrap_or_default();
        cursor.piece = self.pieces.len();
        if cursor.seen.is_none() && !missed.is_empty() {
            cursor.seen.clone_from(&self.message);
        }
        if missed.len() > pieces_max {
            for (place, whole) in self.parts.iter().enumerate() {
                if let Some(first) = missed.iter().find(|piece| piece.part == place) {
                    into.extend(self.delta(whole, first.begin.., first.offset, whole.at));
                }
            }
            return;
        }
        into.extend(missed.iter().filter_map(|piece| {
            self.delta(self.parts.get(piece.part)?, piece.begin..piece.end, piece.offset, piece.at)
        }));
    }

    fn delta(
        &self,
        whole: &PartText,
        range: impl SliceIndex<str, Output = str>,
        offset: u64,
        at: Timestamp,
    ) -> Option<LiveItem> {
        let (message_id, attempt) = self.message.clone()?;
        let (part, text) = (whole.part.clone(), whole.text.get(range)?.to_owned());
        Some(LiveItem::Delta(Delta { message_id, attempt, step: self.step, at, part, offset, text }))
    }
}

/// A panic elsewhere leaves the data as it was, which is good enough to read.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(7);

    fn piece(attempt: u32, offset: u64, text: &str) -> Delta {
        let (step, at) = (Some(1), AT);
        Delta { message_id: "msg".into(), attempt, step, at, part: Part::Text, offset, text: text.into() }
    }

    fn append(live: &mut Live, attempt: u32, text: &str) {
        append_at(live, AT, attempt, text);
    }

    fn append_at(live: &mut Live, at: Timestamp, attempt: u32, text: &str) {
        let message_id = &"msg".into();
        live.append(&Piece { message_id, attempt, step: Some(1), at, part: &Part::Text, text });
    }

    fn reset_of(id: &str, attempt: u32) -> Reset {
        Reset { message_id: id.into(), attempt, step: Some(1), at: AT }
    }

    fn read(live: &Live, cursor: &mut LiveCursor) -> Vec<LiveItem> {
        let mut items = Vec::new();
        live.read(cursor, &mut items);
        items
    }

    #[test]
    fn deltas_of_another_process_are_taken_once_and_never_over_a_gap() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        assert!(!live.receive(&piece(1, 4, "two ")), "something before it is missing");
        assert_eq!(read(&live, &mut cursor), []);
        assert!(live.receive(&piece(1, 0, "ünö ")));
        assert!(live.receive(&piece(1, 0, "ünö two ")), "the text so far, sent again");
        assert!(live.receive(&piece(1, 0, "ü")));
        assert!(!live.receive(&piece(1, 9, "four")));
        let whole = [LiveItem::Delta(piece(1, 0, "ünö two "))];
        assert_eq!(read(&live, &mut cursor), whole, "a late reader gets it in one piece");
        assert!(live.receive(&piece(1, 8, "three")));
        assert_eq!(read(&live, &mut cursor), [LiveItem::Delta(piece(1, 8, "three"))]);
    }

    #[test]
    fn a_later_attempt_starts_over_and_an_answer_that_is_stored_is_over() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        assert!(live.receive(&piece(1, 0, "one")));
        read(&live, &mut cursor);
        assert!(live.receive(&piece(2, 0, "two")));
        let reset = LiveItem::Reset(reset_of("msg", 2));
        assert_eq!(read(&live, &mut cursor), [reset, LiveItem::Delta(piece(2, 0, "two"))]);
        live.mark_stored(&"msg".into());
        assert!(live.receive(&piece(2, 0, "two")));
        assert!(live.receive(&piece(3, 0, "three")));
        assert!(live.receive(&piece(3, 5, "four")), "nothing is missing of what is over");
        assert_eq!(read(&live, &mut cursor), []);
    }

    #[test]
    fn an_abandoned_attempt_is_dropped_before_the_next_one_has_text() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        append(&mut live, 1, "one");
        read(&live, &mut cursor);
        live.restart(&reset_of("msg", 2));
        assert_eq!(read(&live, &mut LiveCursor::default()), [], "a late reader does not get it");
        let reset = |attempt| LiveItem::Reset(reset_of("msg", attempt));
        assert_eq!(read(&live, &mut cursor), [reset(2)]);
        live.restart(&reset_of("msg", 3));
        assert_eq!(read(&live, &mut cursor), [], "of the second attempt nothing was read");
        append(&mut live, 2, "late");
        append(&mut live, 3, "three");
        assert_eq!(read(&live, &mut cursor), [LiveItem::Delta(piece(3, 0, "three"))]);
        // A watcher that reads of the restart in the log gets the reset there, and not again.
        assert_eq!(cursor.restart(&reset_of("msg", 3)), None);
        assert_eq!(cursor.restart(&reset_of("other", 4)), None);
        assert_eq!(cursor.restart(&reset_of("msg", 4)), Some(reset(4)));
        live.restart(&reset_of("msg", 4));
        assert_eq!(read(&live, &mut cursor), []);
    }

    #[test]
    fn a_relay_reads_each_part_in_one_piece_and_can_start_over() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        for text in ["one ", "two ", "three"] {
            append(&mut live, 1, text);
        }
        let joined = |live: &Live, cursor: &mut LiveCursor| {
            let mut items = Vec::new();
            live.read_joined(cursor, &mut items);
            items
        };
        let whole = [LiveItem::Delta(piece(1, 0, "one two three"))];
        assert_eq!(joined(&live, &mut cursor), whole);
        for text in [" four", " five"] {
            append(&mut live, 1, text);
        }
        assert_eq!(joined(&live, &mut cursor), [LiveItem::Delta(piece(1, 13, " four five"))]);
        assert_eq!(joined(&live, &mut cursor), []);
        cursor.start_over();
        assert_eq!(joined(&live, &mut cursor), [LiveItem::Delta(piece(1, 0, "one two three four five"))]);
    }

    #[test]
    fn text_that_is_joined_has_the_time_of_its_last_piece_and_a_reset_that_of_the_attempt() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        append_at(&mut live, Timestamp(10), 1, "one ");
        append_at(&mut live, Timestamp(20), 1, "two ");
        let at = |at, delta| LiveItem::Delta(Delta { at: Timestamp(at), ..delta });
        assert_eq!(read(&live, &mut cursor), [at(20, piece(1, 0, "one two "))]);
        append_at(&mut live, Timestamp(30), 1, "three");
        assert_eq!(read(&live, &mut cursor), [at(30, piece(1, 8, "three"))]);
        append_at(&mut live, Timestamp(40), 2, "one");
        append_at(&mut live, Timestamp(50), 2, " more");
        let reset = LiveItem::Reset(Reset { at: Timestamp(40), ..reset_of("msg", 2) });
        assert_eq!(read(&live, &mut cursor), [reset, at(50, piece(2, 0, "one more"))]);
    }
}
