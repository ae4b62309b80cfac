//! Baselines for W1 on a disk, measured in the same run: the store without the engine, and the disk without the store.

use tokio::runtime::Runtime;

use crate::bare_store::{self, BareStoreTimes};
use crate::commits::TOOL_ROUND;
use crate::disk;
use crate::effort::Effort;
use crate::environment::Setting;
use crate::failure::Failure;
use crate::report::{Sheet, Target, Unit};
use crate::statistics::percentile;

/// Number of appends that share one sync when the bare disk is measured.
const DISK_BATCH: usize = 64;

/// One value of each for each repetition.
#[derive(Default)]
pub(crate) struct Baselines {
    stores: Vec<BareStoreTimes>,
    disk_batches: Vec<f64>,
    disk_singles: Vec<f64>,
}

impl Baselines {
    /// `byte_count` is the size of a W1 commit.
    pub(crate) fn measure(
        &mut self,
        runtime: &Runtime,
        setting: &Setting,
        effort: Effort,
        client_count: usize,
        byte_count: usize,
    ) -> Result<(), Failure> {
        self.stores.push(bare_store::measure(runtime, setting, client_count, effort.bare_batch_count)?);
        let median_of = |append_count| {
            let count = effort.disk_batch_count;
            let times = disk::synced_batches(&setting.folder, append_count, byte_count, count)?;
            Ok::<f64, Failure>(percentile(&times, 50).unwrap_or(f64::NAN))
        };
        self.disk_batches.push(median_of(DISK_BATCH)?);
        self.disk_singles.push(median_of(1)?);
        Ok(())
    }

    /// `runs_per_second` has one value for each repetition, with as many concurrent runs as there were clients.
    pub(crate) fn figures(&self, sheet: &mut Sheet, client_count: usize, runs_per_second: &[f64]) {
        self.of_the_store(sheet, client_count, runs_per_second);
        self.of_the_disk(sheet, client_count, runs_per_second);
    }

    /// A run cannot be faster than the store performs its four commits.
    fn of_the_store(&self, sheet: &mut Sheet, client_count: usize, runs_per_second: &[f64]) {
        let column = |value: fn(&BareStoreTimes) -> f64| self.stores.iter().map(value).collect::<Vec<f64>>();
        let suffix = format!("c{client_count}");
        let clients = format!("bare store, {client_count} clients");
        let rates = column(|bare| bare.appends_per_second);
        let metric = format!("bare_appends_per_s_{suffix}");
        sheet.add(metric, &format!("{clients}, appends"), Unit::PerSecond, &rates);
        let batches = column(|bare| percentile(&bare.batches, 50).unwrap_or(f64::NAN));
        let title = format!("{clients}, p50 of an append of each");
        sheet.add(format!("bare_batch_p50_ms_{suffix}"), &title, Unit::Milliseconds, &batches);
        let syncs = column(|bare| bare.syncs_per_batch);
        let title = format!("{clients}, syncs for an append of each");
        sheet.add(format!("bare_batch_syncs_{suffix}"), &title, Unit::Count, &syncs);
        let bytes = column(|bare| bare.bytes_per_append);
        sheet.add("bare_append_bytes", "bare store, bytes of an append", Unit::Bytes, &bytes);

        let in_batches: Vec<f64> = batches.iter().map(|time| allowed(client_count, *time)).collect();
        let title = format!("runs with {client_count} at once / what the bare store's batches allow");
        let ratios = quotients(runs_per_second, &in_batches);
        let target = Some(Target::AtLeast(0.5));
        sheet.add_aimed(format!("of_the_bare_batch_{suffix}"), &title, Unit::Ratio, &ratios, target);
        let in_a_row: Vec<f64> = rates.iter().map(|rate| rate / TOOL_ROUND as f64).collect();
        let title = format!("runs with {client_count} at once / what the bare store's appends allow");
        let ratios = quotients(runs_per_second, &in_a_row);
        sheet.add(format!("of_the_bare_appends_{suffix}"), &title, Unit::Ratio, &ratios);
    }

    /// Without a target, because the writer's own work takes longer than a fast disk.
    fn of_the_disk(&self, sheet: &mut Sheet, client_count: usize, runs_per_second: &[f64]) {
        let title = format!("bare disk, p50 of {DISK_BATCH} appends in one sync");
        let metric = format!("disk_batch{DISK_BATCH}_p50_ms");
        sheet.add(metric, &title, Unit::Milliseconds, &self.disk_batches);
        let title = "bare disk, p50 of 1 append in one sync";
        sheet.add("disk_batch1_p50_ms", title, Unit::Milliseconds, &self.disk_singles);
        let bounds: Vec<f64> = self.disk_batches.iter().map(|time| allowed(DISK_BATCH, *time)).collect();
        let title = format!("runs with {client_count} at once / what the disk allows");
        let ratios = quotients(runs_per_second, &bounds);
        sheet.add(format!("of_the_disk_c{client_count}"), &title, Unit::Ratio, &ratios);
    }
}

/// Runs per second if a batch takes this many milliseconds and a run takes part in four batches.
fn allowed(append_count: usize, milliseconds: f64) -> f64 {
    append_count as f64 / (TOOL_ROUND as f64 * milliseconds / 1_000.0)
}

fn quotients(values: &[f64], bounds: &[f64]) -> Vec<f64> {
    values.iter().zip(bounds).map(|(value, bound)| value / bound).collect()
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn sixty_four_appends_in_four_milliseconds_allow_four_thousand_runs_a_second() {
        assert!((allowed(64, 4.0) - 4_000.0).abs() < 1e-9);
    }
}
