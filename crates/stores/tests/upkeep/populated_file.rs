//! A file with sample data of every kind.

use std::path::Path;
use std::sync::Arc;

use stores::sqlite::doctor::{self, Finding, SqliteReport};

use crate::fixture::{Clock, World};
use crate::sample_data::{self, take_over_lost};
pub(crate) use crate::sample_data::{child, freeze_agent};
use crate::sqlite_fixture::{Folder, open};

pub(crate) fn world(folder: &Folder) -> World {
    let clock = Clock::new();
    World::new(Arc::new(open(folder, &clock, false)), clock)
}

/// Writes the sample data, and closes the file.
pub(crate) async fn populate(folder: &Folder) {
    let world = world(folder);
    sample_data::populate(&world).await;
    let clock = world.clock.clone();
    drop(world);
    let world = World::new(Arc::new(open(folder, &clock, false)), clock);
    take_over_lost(&world).await;
}

pub(crate) fn examined(path: &Path) -> SqliteReport {
    doctor::examine(path, |_| {}).unwrap()
}

#[track_caller]
pub(crate) fn assert_healthy(path: &Path) -> SqliteReport {
    let report = examined(path);
    assert_eq!(report.findings.kept(), &[] as &[Finding]);
    report
}
