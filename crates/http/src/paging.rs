//! Fills one page of a list, a few rows at a time, until it has the requested number of rows or enough bytes.

use std::io::{self, Write};
use std::ops::ControlFlow;

use engine::store::Page;
use serde::Serialize;

/// A page ends with the item that reaches this many bytes, however many items were requested.
pub(crate) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Rows that are read for one page although the caller may not see them. After that many, a page has fewer rows than
/// requested, and a cursor.
const HIDDEN_MAX: usize = 2_000;

/// One page that is being filled.
pub(crate) struct PageBuilder {
    cursor: Option<String>,
    /// Rows that are still wanted.
    remaining: usize,
    rows_max: usize,
    bytes: usize,
    hidden: usize,
}

impl PageBuilder {
    /// Reads `rows_max` rows at a time: that many may be in memory even if the page has no room for them.
    pub(crate) fn new(page: Page, rows_max: usize) -> Self {
        Self { cursor: page.cursor, remaining: page.limit, rows_max, bytes: 0, hidden: 0 }
    }

    /// The rows to read next.
    pub(crate) fn next_rows(&self) -> Page {
        Page { cursor: self.cursor.clone(), limit: self.remaining.min(self.rows_max) }
    }

    pub(crate) fn add(&mut self, item: &impl Serialize) {
        self.bytes += json_bytes(item);
    }

    /// A row that the caller may not see makes room for another one, unless the request has read too many of them.
    pub(crate) fn skip_hidden(&mut self) {
        if self.hidden < HIDDEN_MAX {
            self.hidden += 1;
            self.remaining += 1;
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= PAGE_BYTES_MAX
    }

    /// Records that `read` rows are done; `next` is the cursor after them. Breaks with the cursor of the next page.
    pub(crate) fn advance(&mut self, read: usize, next: Option<String>) -> ControlFlow<Option<String>> {
        self.remaining = self.remaining.saturating_sub(read);
        if next.is_none() || self.remaining == 0 || self.is_full() {
            return ControlFlow::Break(next);
        }
        self.cursor = next;
        ControlFlow::Continue(())
    }
}

/// The length of the item as JSON.
pub(crate) fn json_bytes(item: &impl Serialize) -> usize {
    struct ByteCounter(usize);

    impl Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = ByteCounter(0);
    // An item that cannot be serialized fails later, together with its page.
    let _ = serde_json::to_writer(&mut count, item);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(limit: usize) -> Page {
        Page { cursor: None, limit }
    }

    #[test]
    fn a_page_is_read_a_few_rows_at_a_time_until_it_has_what_was_asked_for() {
        let mut builder = PageBuilder::new(page(20), 16);
        assert_eq!(builder.next_rows(), page(16));
        assert_eq!(builder.advance(16, Some("a".into())), ControlFlow::Continue(()));
        assert_eq!(builder.next_rows(), Page { cursor: Some("a".into()), limit: 4 });
        assert_eq!(builder.advance(4, Some("b".into())), ControlFlow::Break(Some("b".into())));
        assert_eq!(
            PageBuilder::new(page(20), 16).advance(3, None),
            ControlFlow::Break(None),
            "there are no more"
        );
    }

    #[test]
    fn rows_that_are_hidden_do_not_count_up_to_a_bound() {
        let mut builder = PageBuilder::new(page(20), 16);
        (0..16).for_each(|_| builder.skip_hidden());
        assert_eq!(builder.advance(16, Some("a".into())), ControlFlow::Continue(()));
        assert_eq!(
            builder.next_rows(),
            Page { cursor: Some("a".into()), limit: 16 },
            "20 are still asked for"
        );
        let mut builder = PageBuilder::new(page(2), 1_000_000);
        (0..HIDDEN_MAX + 2).for_each(|_| builder.skip_hidden());
        assert_eq!(builder.advance(HIDDEN_MAX + 2, Some("b".into())), ControlFlow::Break(Some("b".into())));
    }

    #[test]
    fn a_page_ends_with_the_item_that_brings_it_to_its_largest_size() {
        let mut builder = PageBuilder::new(page(1_000), 16);
        builder.add(&"x".repeat(PAGE_BYTES_MAX - 3));
        assert!(!builder.is_full(), "with its quotes there is room for one byte");
        builder.add(&0);
        assert!(builder.is_full());
        assert_eq!(builder.advance(2, Some("a".into())), ControlFlow::Break(Some("a".into())));
    }
}
