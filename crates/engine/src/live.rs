//! Live updates, which are not stored: deltas of a model's answer, progress and logs of tools.
//!
//! Nothing is queued per watcher. A run has one text so far, and each watcher reads from it at its own pace. So the
//! slowest watcher costs the run nothing, and a late one gets the text so far as one delta.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::id::{CallId, MessageId};
use serde_json::Value;

use crate::feed::RunFeed;

/// A piece of an answer. The event that follows carries the complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    pub message_id: MessageId,
    pub attempt: u32,
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
    pub attempt: u32,
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
    /// Discard what was received of an earlier attempt.
    Reset {
        message_id: MessageId,
        attempt: u32,
    },
    Note(ToolNote),
}

/// Where a model sends its deltas.
#[derive(Clone)]
pub struct Deltas {
    feed: Option<Arc<RunFeed>>,
    message_id: MessageId,
    attempt: u32,
}

impl Deltas {
    pub(crate) fn new(feed: Arc<RunFeed>, message_id: MessageId, attempt: u32) -> Self {
        Self { feed: Some(feed), message_id, attempt }
    }

    /// For callers without a feed: discards everything.
    #[must_use]
    pub fn discarding() -> Self {
        Self { feed: None, message_id: MessageId::from(""), attempt: 1 }
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
        if let Some(feed) = &self.feed
            && !text.is_empty()
        {
            feed.live().append(&self.message_id, self.attempt, part, text);
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
    feed: Option<Arc<RunFeed>>,
    call_id: CallId,
    attempt: u32,
}

impl ToolNotes {
    pub(crate) fn new(feed: Arc<RunFeed>, call_id: CallId, attempt: u32) -> Self {
        Self { feed: Some(feed), call_id, attempt }
    }

    /// For callers without a feed: discards everything.
    #[must_use]
    pub fn discarding() -> Self {
        Self { feed: None, call_id: CallId::from(""), attempt: 1 }
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
        if let Some(feed) = &self.feed {
            let note = ToolNote { call_id: self.call_id.clone(), attempt: self.attempt, body };
            feed.live().note(note);
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
    /// The last finished answer: nothing more is added to it.
    finished: Option<(MessageId, u32)>,
    parts: Vec<PartText>,
    pieces: Vec<Piece>,
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
}

/// The position of a delta in its part.
#[derive(Clone, Copy, Debug)]
struct Piece {
    part: usize,
    begin: usize,
    end: usize,
    offset: u64,
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
    pub(crate) fn restart(&mut self, message_id: &MessageId, attempt: u32) -> Option<LiveItem> {
        self.seen.take_if(|(id, seen)| id == message_id && *seen < attempt)?;
        Some(LiveItem::Reset { message_id: message_id.clone(), attempt })
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
            self.append(&delta.message_id, delta.attempt, delta.part.clone(), news);
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
    pub(crate) fn restart(&mut self, message_id: &MessageId, attempt: u32) {
        if self.message.as_ref().is_some_and(|(id, known)| id == message_id && *known < attempt) {
            self.clear();
            self.message = Some((message_id.clone(), attempt));
        }
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

    fn append(&mut self, message_id: &MessageId, attempt: u32, part: Part, text: &str) {
        if !self.is_current(message_id, attempt) {
            if self.is_late(message_id, attempt) {
                return;
            }
            self.clear();
            self.message = Some((message_id.clone(), attempt));
        }
        if self.byte_count + text.len() > LIVE_BYTES_MAX {
            return;
        }
        self.byte_count += text.len();
        let place = match self.parts.iter().position(|known| known.part == part) {
            Some(place) => place,
            None => {
                self.parts.push(PartText { part, text: String::new(), char_count: 0 });
                self.parts.len() - 1
            }
        };
        let Some(whole) = self.parts.get_mut(place) else { return };
        let (begin, offset) = (whole.text.len(), whole.char_count);
        whole.text.push_str(text);
        whole.char_count += text.chars().count() as u64;
        self.pieces.push(Piece { part: place, begin, end: whole.text.len(), offset });
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
            into.extend(cursor.restart(message_id, *attempt));
            let notes_read = cursor.notes_read;
            *cursor = LiveCursor { generation: self.generation, piece: 0, seen: None, notes_read };
            // A late watcher gets the text so far, part by part.
            if self.pieces.len() > 1 {
                cursor.seen = Some((message_id.clone(), *attempt));
                into.extend(self.parts.iter().map(|whole| self.delta(message_id, *attempt, whole, 0, 0)));
                cursor.piece = self.pieces.len();
                return;
            }
        }
        let missed = self.pieces.get(cursor.piece..).unwrap_or_default();
        cursor.piece = self.pieces.len();
        if cursor.seen.is_none() && !missed.is_empty() {
            cursor.seen = Some((message_id.clone(), *attempt));
        }
        if missed.len() > pieces_max {
            for (place, whole) in self.parts.iter().enumerate() {
                if let Some(first) = missed.iter().find(|piece| piece.part == place) {
                    into.extend([self.delta(message_id, *attempt, whole, first.begin, first.offset)]);
                }
            }
            return;
        }
        into.extend(missed.iter().filter_map(|piece| {
            let whole = self.parts.get(piece.part)?;
            Some(LiveItem::Delta(Delta {
                message_id: message_id.clone(),
                attempt: *attempt,
                part: whole.part.clone(),
                offset: piece.offset,
                text: whole.text.get(piece.begin..piece.end)?.to_owned(),
            }))
        }));
    }

    fn delta(&self, id: &MessageId, attempt: u32, whole: &PartText, begin: usize, offset: u64) -> LiveItem {
        LiveItem::Delta(Delta {
            message_id: id.clone(),
            attempt,
            part: whole.part.clone(),
            offset,
            text: whole.text.get(begin..).unwrap_or_default().to_owned(),
        })
    }
}

/// A panic elsewhere leaves the data as it was, which is good enough to read.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(attempt: u32, offset: u64, text: &str) -> Delta {
        Delta { message_id: "msg".into(), attempt, part: Part::Text, offset, text: text.into() }
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
        let reset = LiveItem::Reset { message_id: "msg".into(), attempt: 2 };
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
        live.append(&"msg".into(), 1, Part::Text, "one");
        read(&live, &mut cursor);
        live.restart(&"msg".into(), 2);
        assert_eq!(read(&live, &mut LiveCursor::default()), [], "a late reader does not get it");
        let reset = |attempt| LiveItem::Reset { message_id: "msg".into(), attempt };
        assert_eq!(read(&live, &mut cursor), [reset(2)]);
        live.restart(&"msg".into(), 3);
        assert_eq!(read(&live, &mut cursor), [], "of the second attempt nothing was read");
        live.append(&"msg".into(), 2, Part::Text, "late");
        live.append(&"msg".into(), 3, Part::Text, "three");
        assert_eq!(read(&live, &mut cursor), [LiveItem::Delta(piece(3, 0, "three"))]);
        // A watcher that reads of the restart in the log gets the reset there, and not again.
        assert_eq!(cursor.restart(&"msg".into(), 3), None);
        assert_eq!(cursor.restart(&"other".into(), 4), None);
        assert_eq!(cursor.restart(&"msg".into(), 4), Some(reset(4)));
        live.restart(&"msg".into(), 4);
        assert_eq!(read(&live, &mut cursor), []);
    }

    #[test]
    fn a_relay_reads_each_part_in_one_piece_and_can_start_over() {
        let (mut live, mut cursor) = (Live::default(), LiveCursor::default());
        for text in ["one ", "two ", "three"] {
            live.append(&"msg".into(), 1, Part::Text, text);
        }
        let joined = |live: &Live, cursor: &mut LiveCursor| {
            let mut items = Vec::new();
            live.read_joined(cursor, &mut items);
            items
        };
        let whole = [LiveItem::Delta(piece(1, 0, "one two three"))];
        assert_eq!(joined(&live, &mut cursor), whole);
        for text in [" four", " five"] {
            live.append(&"msg".into(), 1, Part::Text, text);
        }
        assert_eq!(joined(&live, &mut cursor), [LiveItem::Delta(piece(1, 13, " four five"))]);
        assert_eq!(joined(&live, &mut cursor), []);
        cursor.start_over();
        assert_eq!(joined(&live, &mut cursor), [LiveItem::Delta(piece(1, 0, "one two three four five"))]);
    }
}
