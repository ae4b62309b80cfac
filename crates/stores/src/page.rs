//! Where the next page of a list begins: after this time and this id.

use engine::store::{Listed, Page, StoreError};
use machine::Timestamp;

use crate::columns::{millis, timestamp};

/// The last entry of the previous page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PagePosition {
    pub(crate) at: i64,
    pub(crate) id: String,
}

impl PagePosition {
    pub(crate) fn new(at: Timestamp, id: &str) -> Self {
        Self { at: millis(at), id: id.into() }
    }

    /// Before every entry of a list that begins with the oldest.
    pub(crate) const fn start_oldest_first() -> Self {
        Self { at: i64::MIN, id: String::new() }
    }

    /// After every entry of a list that begins with the newest.
    pub(crate) const fn start_newest_first() -> Self {
        Self { at: i64::MAX, id: String::new() }
    }

    fn cursor(&self) -> String {
        format!("{}.{}", timestamp(self.at).0, self.id)
    }
}

/// A requested page, with its limit applied.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) after: Option<PagePosition>,
    pub(crate) limit: usize,
}

impl PageRequest {
    pub(crate) fn from_page(page: &Page) -> Result<Self, StoreError> {
        let limit = page.limit.clamp(1, Page::LIMIT_MAX);
        let after = page.cursor.as_deref().map(parse_cursor).transpose()?;
        Ok(Self { after, limit })
    }

    /// One row more than the page has, to detect whether it is the last page.
    pub(crate) fn row_count(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }

    pub(crate) fn page_of<T>(&self, mut items: Vec<T>, position: impl Fn(&T) -> PagePosition) -> Listed<T> {
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next = items.last().filter(|_| more).map(|last| position(last).cursor());
        Listed { items, next }
    }
}

fn parse_cursor(cursor: &str) -> Result<PagePosition, StoreError> {
    let bad = || StoreError::Impossible("bad cursor".into());
    let (at, id) = cursor.split_once('.').ok_or_else(bad)?;
    let at = at.parse::<i64>().ok().filter(|at| *at >= 0).ok_or_else(bad)?;
    if id.is_empty() {
        return Err(bad());
    }
    Ok(PagePosition { at, id: id.into() })
}
