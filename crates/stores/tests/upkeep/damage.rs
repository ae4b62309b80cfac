//! Damaged bytes in the file. The doctor reports the damage, or no stored value has changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use engine::store::StoreFailure;
use machine::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use stores::sqlite::retention::survey;
use stores::sqlite::{InspectError, doctor, size};

use crate::populated_file::{assert_healthy, populate, world};
use crate::sqlite_fixture::Folder;
use crate::worker::queued;

const PAGE_BYTES: usize = 4_096;
/// A shorter burst may leave readable text. A failing disk damages more than single letters.
const BURST_BYTES: usize = 32;
const BURSTS_PER_PAGE: usize = 4;
const SINGLE_BYTES_PER_PAGE: usize = 6;
/// How often a used part of the page is searched for: many pages are almost empty.
const TRIES_MAX: usize = 1_000;
/// Longer than any read that ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same choices in every run of the test.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// Changes every byte of a stretch of the page, preferably in a used part.
    fn damage(&mut self, bytes: &mut [u8], page: usize, length: usize) {
        let mut begin = 0;
        for _ in 0..TRIES_MAX {
            begin = page * PAGE_BYTES + self.below(PAGE_BYTES - length);
            let used = bytes[begin..begin + length].iter().filter(|byte| **byte != 0).count();
            if 2 * used > length {
                break;
            }
        }
        for byte in &mut bytes[begin..begin + length] {
            *byte ^= u8::try_from(1 + self.below(255)).unwrap();
        }
    }
}

type Row = Vec<Value>;

/// Every row of every table, by the table's name, with the names of its columns.
type Contents = Vec<(String, Vec<String>, Vec<Row>)>;

fn contents(path: &Path) -> rusqlite::Result<Contents> {
    let address = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let raw = Connection::open_with_flags(address, flags)?;
    let mut tables = raw.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence' ORDER BY name",
    )?;
    let names: Vec<String> = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut all = Vec::new();
    for name in names {
        let mut statement = raw.prepare(&format!("SELECT * FROM {name}"))?;
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let rows = statement.query_map([], |row| (0..columns.len()).map(|index| row.get(index)).collect())?;
        let rows = rows.collect::<rusqlite::Result<Vec<Row>>>()?;
        all.push((name, columns, rows));
    }
    Ok(all)
}

/// The columns in which the two differ; empty if the contents are equal.
fn differing(one: &Contents, other: &Contents) -> BTreeSet<String> {
    let mut differing = BTreeSet::new();
    for ((table, columns, rows), (_, _, others)) in one.iter().zip(other) {
        if rows.len() != others.len() {
            differing.insert(format!("{table} has a different number of rows"));
        }
        for (row, other) in rows.iter().zip(others) {
            for ((column, value), other) in columns.iter().zip(row).zip(other) {
                if value != other {
                    differing.insert(format!("{table}.{column}"));
                }
            }
        }
    }
    differing
}

/// The texts of the doctor's findings. The doctor never panics, whatever the file contains.
fn said(path: &Path) -> Vec<String> {
    match doctor::examine(path, |_| {}) {
        Ok(report) => report.findings.kept().iter().map(|finding| finding.what.clone()).collect(),
        Err(why) => vec![why.to_string()],
    }
}

#[tokio::test]
async fn a_damaged_page_is_found_wherever_it_is() {
    let folder = Folder::new();
    populate(&folder).await;
    let good = fs::read(folder.file()).unwrap();
    let before = contents(&folder.file()).unwrap();
    let pages = good.len() / PAGE_BYTES;
    assert!(pages > 30, "{pages} pages are too few for this test");
    let mut choices = Choices(7);
    let mut found = 0;
    for page in 0..pages {
        for _ in 0..BURSTS_PER_PAGE {
            let mut bytes = good.clone();
            choices.damage(&mut bytes, page, BURST_BYTES);
            fs::write(folder.file(), &bytes).unwrap();
            if said(&folder.file()).is_empty() {
                let after = contents(&folder.file()).unwrap_or_else(|error| panic!("page {page}: {error}"));
                assert_eq!(differing(&before, &after), BTreeSet::new(), "page {page}");
            } else {
                found += 1;
            }
        }
    }
    assert!(
        found > BURSTS_PER_PAGE * pages / 2,
        "only {found} were found: most of the damage hit unused bytes"
    );
    fs::write(folder.file(), good).unwrap();
    assert_healthy(&folder.file());
}

/// Columns whose value is stored only once and is valid whatever it is, so that the doctor cannot detect a change.
const SAID_ONCE: [&str; 14] = [
    "callback_key.key",
    "chain_introduction.last_run",
    "decisions.decision",
    "grants.given_by",
    "grants.id",
    "grants.revoked",
    "grants.since",
    "inbox.item",
    "openings.count",
    "previous_callback_key.key",
    "runs.begins_after",
    "runs.interrupt_accepted",
    "runs.ready_at",
    "threads.metadata",
];

#[tokio::test]
async fn a_single_changed_byte_is_found_unless_its_text_is_stored_only_once() {
    let folder = Folder::new();
    populate(&folder).await;
    let good = fs::read(folder.file()).unwrap();
    let before = contents(&folder.file()).unwrap();
    let mut choices = Choices(11);
    let (mut found, mut unseen) = (0, 0);
    for page in 0..good.len() / PAGE_BYTES {
        for _ in 0..SINGLE_BYTES_PER_PAGE {
            let mut bytes = good.clone();
            choices.damage(&mut bytes, page, 1);
            fs::write(folder.file(), &bytes).unwrap();
            if !said(&folder.file()).is_empty() {
                found += 1;
                continue;
            }
            let after = contents(&folder.file()).unwrap_or_else(|error| panic!("page {page}: {error}"));
            let differing = differing(&before, &after);
            unseen += usize::from(!differing.is_empty());
            let beyond: Vec<&String> =
                differing.iter().filter(|column| !SAID_ONCE.contains(&column.as_str())).collect();
            assert!(beyond.is_empty(), "page {page}: {beyond:?}");
        }
    }
    println!("{found} found, {unseen} changed values that are stored only once");
    assert!(found > 0);
}

/// Swaps the last two rows of a table whose rows are on one page.
fn disorder(folder: &Folder, table: &str) {
    let raw = Connection::open(folder.file()).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: usize = raw.query_row(sql, [table], |row| row.get::<_, u32>(0)).unwrap().try_into().unwrap();
    raw.close().unwrap();
    let mut bytes = fs::read(folder.file()).unwrap();
    let page = &mut bytes[(page - 1) * PAGE_BYTES..page * PAGE_BYTES];
    assert_eq!(page[0], 13, "{table} has more than one page");
    let rows = usize::from(u16::from_be_bytes([page[3], page[4]]));
    assert!(rows >= 3, "{table} has only {rows} rows");
    // The offsets of the rows follow the page header, two bytes each.
    let last = 8 + 2 * (rows - 1);
    page.swap(last, last - 2);
    page.swap(last + 1, last - 1);
    fs::write(folder.file(), &bytes).unwrap();
}

#[tokio::test]
async fn a_table_whose_rows_are_out_of_order_is_read_to_an_end() {
    let good = Folder::new();
    let world = world(&good);
    for index in 0..3 {
        queued(&world, &format!("thr_{index}"), &format!("run_{index}")).await;
    }
    drop(world);
    for table in ["runs", "commits", "threads"] {
        let folder = good.copy();
        disorder(&folder, table);
        let path = folder.file();
        let (sender, ends) = mpsc::channel();
        std::thread::spawn(move || {
            let measured = size::size(&path).is_ok();
            // An index may point to a place without its row, which SQLite detects.
            let surveyed = match survey(&path, Timestamp(0), |_| {}) {
                Ok(_)
                | Err(InspectError::Trouble(StoreFailure::Corrupt(_)) | InspectError::NotSqlite { .. }) => {
                    true
                }
                Err(_) => false,
            };
            let _ = sender.send((measured, surveyed, doctor::examine(&path, |_| {}).is_ok()));
        });
        let ended =
            ends.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("the read of {table} does not end"));
        assert_eq!(ended, (true, true, true), "{table}");
        assert!(!said(&folder.file()).is_empty(), "{table}: the doctor has no finding");
    }
}
