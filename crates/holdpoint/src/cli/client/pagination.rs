//! Reads lists from a server page by page until the limit is reached.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::{Connection, percent_encoded};
use super::wire::read;
use crate::cli::problem::Problem;

/// The server's largest page.
const PAGE_MAX: usize = 1_000;

/// The items, each as the server wrote it.
pub(super) struct PagedItems {
    pub(super) items: Vec<Box<RawValue>>,
    /// Some if there are more items.
    pub(super) next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct ListPage {
    #[serde(rename = "runs", alias = "approvals")]
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl PagedItems {
    /// `path` has no query. Filters without a value are omitted.
    pub(super) async fn read(
        connection: &Connection,
        path: &str,
        filters: &[(&str, Option<&String>)],
        limit: usize,
    ) -> Result<Self, Problem> {
        let mut listed = Self { items: Vec::new(), next_cursor: None };
        loop {
            let count = (limit - listed.items.len()).min(PAGE_MAX);
            let mut address = format!("{path}?limit={count}");
            let cursor = ("cursor", listed.next_cursor.as_ref());
            for (name, value) in filters.iter().copied().chain([cursor]) {
                if let Some(value) = value {
                    address.push_str(&format!("&{name}={}", percent_encoded(value)));
                }
            }
            let page: ListPage = read(connection, &connection.get(&address).await?)?;
            let is_empty = page.items.is_empty();
            listed.items.extend(page.items.into_iter().take(count));
            listed.next_cursor = page.next_cursor;
            if listed.next_cursor.is_none() || is_empty || listed.items.len() >= limit {
                return Ok(listed);
            }
        }
    }

    /// In the same form as one page.
    pub(super) fn as_json(&self, name: &str) -> String {
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let next = serde_json::Value::from(self.next_cursor.clone());
        format!("{{\"{name}\":[{}],\"next_cursor\":{next}}}\n", items.join(","))
    }
}
