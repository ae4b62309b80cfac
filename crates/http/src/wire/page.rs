//! Pages of lists: what a client may ask for, and what it gets.

use std::num::IntErrorKind;

use engine::store::Page;
use serde::Serialize;
use utoipa::ToSchema;

use super::approval::Approval;
use super::audit::ListedAuditRecord;
use super::event::Envelope;
use super::event_schema::Event;
use super::grant::Grant;
use super::message::Message;
use super::run::Run;
use super::thread::Thread;
use crate::error::{ApiError, bad_field};

/// A time and an id, without control characters.
pub(crate) const CURSOR_PATTERN: &str = r"^[0-9]{1,18}\.[^\u0000-\u001f\u007f-\u009f]+$";
/// Longer than any cursor that a list returns.
const CURSOR_CHARS_MAX: usize = 600;

/// The page that `limit` and `cursor` of a query ask for. A limit above the maximum counts as the maximum.
pub fn parse_page(limit: Option<&str>, cursor: Option<&str>) -> Result<Page, ApiError> {
    Ok(Page { limit: parse_limit(limit)?, cursor: cursor.map(parse_cursor).transpose()? })
}

pub fn parse_limit(limit: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = limit else { return Ok(Page::default().limit) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<usize>() {
        Ok(limit) if digits && limit > 0 => Ok(limit.min(Page::LIMIT_MAX)),
        // Above the maximum too, by any amount.
        Err(error) if digits && *error.kind() == IntErrorKind::PosOverflow => Ok(Page::LIMIT_MAX),
        Ok(_) | Err(_) => Err(bad_field("limit", "expected a whole number from 1 to 1000")),
    }
}

/// A cursor is a time and an id, as stores return it. Any other text did not come from a list.
fn parse_cursor(cursor: &str) -> Result<String, ApiError> {
    let place = cursor.split_once('.').filter(|(at, id)| {
        let digits = !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit());
        digits && at.parse::<i64>().is_ok() && !id.is_empty()
    });
    if place.is_none() || cursor.len() > CURSOR_CHARS_MAX {
        return Err(bad_field(
            "cursor",
            "expected `next_cursor` of the page before; leave it out to start at the first page",
        ));
    }
    Ok(cursor.to_owned())
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Threads {
    pub threads: Vec<Thread>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Runs {
    pub runs: Vec<Run>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Approvals {
    pub approvals: Vec<Approval>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Grants {
    pub grants: Vec<Grant>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AuditRecords {
    pub records: Vec<ListedAuditRecord>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Messages {
    pub messages: Vec<Message>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Events {
    #[schema(value_type = Vec<Event>)]
    pub events: Vec<Envelope>,
    /// Sequence number of the run's newest event, whether or not it is on this page.
    pub last_seq: u64,
    /// The value of `after` for the next page; null on the last page.
    pub next_after: Option<u64>,
}

impl Events {
    /// A page of at most `limit` events after `after`. `next_after` is null if the last of them is the newest.
    #[must_use]
    pub fn new(events: Vec<Envelope>, last_seq: u64) -> Self {
        let next_after = events.last().map(|last| last.seq).filter(|seq| *seq < last_seq);
        Self { events, last_seq, next_after }
    }
}
