//! Metrics that other components count, read when a scrape asks for them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::metrics::HistogramSnapshot;
use engine::store::RunCounts;
use machine::projection_rows::PublicRunStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::TenantCounter;

/// From a millisecond to two minutes, in powers of two.
const MS: Scale = Scale { exponents: 0..=17, unit: 0.001 };
/// From 16 microseconds to 16 seconds.
const US: Scale = Scale { exponents: 4..=24, unit: 0.000_001 };
/// Up to 256, the most commits that ever share a batch.
const COMMITS: Scale = Scale { exponents: 0..=8, unit: 1.0 };

struct Scale {
    /// The powers of two that are shown. Smaller values count in the first bucket.
    exponents: RangeInclusive<usize>,
    unit: f64,
}

/// Cached counts of the store's runs: with a million runs, counting is too slow for every request.
#[derive(Default)]
pub(super) struct RunCountsCache {
    /// When the last count was tried. Concurrent requests wait for the same result.
    tried_at: tokio::sync::Mutex<Option<Instant>>,
    /// None while the store fails: an outdated number would look like a current one.
    counts: Mutex<Option<RunCounts>>,
}

impl RunCountsCache {
    /// Counts again, unless the last count is younger than `age_max`.
    pub(super) async fn refresh(&self, engine: &Engine, age_max: Duration) {
        let mut tried_at = self.tried_at.lock().await;
        if tried_at.is_some_and(|tried_at| tried_at.elapsed() < age_max) {
            return;
        }
        let counts = engine.store().run_counts().await;
        if let Err(refused) = &counts {
            tracing::warn!(%refused, "cannot count runs; their metrics are absent until the store responds");
        }
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts.ok();
        *tried_at = Some(Instant::now());
    }

    fn latest(&self) -> Option<RunCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct EngineCollector {
    pub(super) engine: Engine,
    pub(super) streams: Arc<TenantCounter>,
    pub(super) waits: Arc<TenantCounter>,
    pub(super) run_counts_cache: Arc<RunCountsCache>,
    pub(super) log_lines_dropped: Arc<AtomicU64>,
}

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_runs(&mut encoder)?;
        self.encode_work(&mut encoder)?;
        self.encode_store(&mut encoder)?;
        let streams = usize_to_i64(self.streams.total());
        gauge(&mut encoder, "open_streams", "Open streams", streams)?;
        let waits = usize_to_i64(self.waits.total());
        gauge(&mut encoder, "waiting_requests", "Requests that wait for a run", waits)?;
        let what = "Log lines that were dropped because standard error was not read fast enough";
        counter(&mut encoder, "log_lines_dropped", what, self.log_lines_dropped.load(Ordering::Relaxed))
    }
}

impl EngineCollector {
    fn encode_runs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let held = usize_to_i64(self.engine.runs_in_memory());
        gauge(encoder, "runs_in_memory", "Runs that this process is working on", held)?;
        let Some(counts) = self.run_counts_cache.latest() else { return Ok(()) };
        let what = "Runs in the store that have not ended, by status; counted periodically";
        let mut family = encoder.encode_descriptor("runs", what, None, MetricType::Gauge)?;
        for status in PublicRunStatus::ALL.into_iter().filter(|status| !status.ended()) {
            let count = counts.runs.get(&status).copied().unwrap_or(0);
            let labels = [("status", status.as_str())];
            ConstGauge::new(u64_to_i64(count)).encode(family.encode_family(&labels)?)?;
        }
        let what = "Decisions and other items that were accepted and that no run has processed yet";
        gauge(encoder, "inbox_items", what, u64_to_i64(counts.inbox))?;
        let what = "Calls that are approved and have not started because their run has no slot yet";
        gauge(encoder, "approved_not_started", what, u64_to_i64(counts.approved))
    }

    fn encode_work(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let numbers = self.engine.metrics();
        let what = "Runs that ended in this process, by status";
        let mut family = encoder.encode_descriptor("runs_ended", what, None, MetricType::Counter)?;
        for status in PublicRunStatus::ALL.into_iter().filter(|status| status.ended()) {
            let count = numbers.ended.get(&status).copied().unwrap_or(0);
            let labels = [("status", status.as_str())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let what = "Duration of steps, except steps during which the worker released the run";
        histogram(encoder, "step_seconds", what, &numbers.step_ms, &MS)?;
        let what = "Time from the acceptance of a decision to the commit that starts its call";
        histogram(encoder, "decision_to_start_seconds", what, &numbers.decision_to_start_ms, &MS)?;
        let what = "Duration of tool attempts, by the name of the tool in the configuration";
        let mut family = encoder.encode_descriptor("tool_seconds", what, None, MetricType::Histogram)?;
        for (tool, sizes) in &numbers.tool_ms {
            encode_sizes(family.encode_family(&[("tool", tool.as_str())])?, sizes, &MS)?;
        }
        Ok(())
    }

    fn encode_store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.engine.store().metrics();
        let counters = [
            ("store_commits", "Commits of runs", counts.commits),
            ("store_syncs", "Number of times that data was forced to disk", counts.syncs),
            ("store_bytes", "Bytes passed to the storage", counts.bytes),
        ];
        for (name, what, value) in counters {
            counter(encoder, name, what, value)?;
        }
        let what = "Number of commits that shared one sync";
        histogram(encoder, "store_batch_commits", what, &counts.batches, &COMMITS)?;
        let what = "Duration of a sync; on PostgreSQL, of the whole statement including the round trip";
        histogram(encoder, "store_sync_seconds", what, &counts.sync_us, &US)?;
        let what = "Store operations that failed, by kind";
        let mut family = encoder.encode_descriptor("store_errors", what, None, MetricType::Counter)?;
        let troubles = counts.failures;
        let kinds =
            [("unavailable", troubles.unavailable), ("full", troubles.full), ("corrupt", troubles.corrupt)];
        for (kind, count) in kinds {
            ConstCounter::new(count).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, what: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, what, None, gauge.metric_type())?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, what: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, what, None, counter.metric_type())?)
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    what: &str,
    sizes: &HistogramSnapshot,
    scale: &Scale,
) -> fmt::Result {
    encode_sizes(encoder.encode_descriptor(name, what, None, MetricType::Histogram)?, sizes, scale)
}

fn encode_sizes(mut encoder: MetricEncoder<'_>, sizes: &HistogramSnapshot, scale: &Scale) -> fmt::Result {
    let mut buckets = Vec::new();
    let mut smaller = 0;
    for (exponent, count) in sizes.counts.iter().enumerate() {
        smaller += count;
        if scale.exponents.contains(&exponent) {
            buckets.push((upper_bound(exponent) * scale.unit, smaller));
            smaller = 0;
        }
    }
    buckets.push((f64::INFINITY, smaller));
    encoder.encode_histogram::<NoLabelSet>(sizes.sum as f64 * scale.unit, sizes.count(), &buckets, None)
}

fn upper_bound(exponent: usize) -> f64 {
    (1_u64 << exponent) as f64
}

fn usize_to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn u64_to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
