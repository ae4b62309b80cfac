//! How the server is doing, in numbers that a monitoring system reads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use engine::Engine;
use engine::store::Store;
use machine::inbox::{Refusal, Verdict};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::{ApiError, Code};
use crate::limits::Streams;

type Labels = Vec<(&'static str, String)>;

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    request_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    refusals: Family<Labels, Counter>,
    decisions: Family<Labels, Counter>,
    decision_seconds: Histogram,
}

/// From a tenth of a millisecond to half a minute.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}

impl Metrics {
    pub(crate) fn new(engine: &Engine, streams: &Arc<Streams>) -> Self {
        let mut registry = Registry::with_prefix("holdpoint");
        let requests = Family::default();
        registry.register("http_requests", "Answers by method, route and status", requests.clone());
        let request_seconds = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register(
            "http_request_seconds",
            "Time until an answer began, by route",
            request_seconds.clone(),
        );
        let refusals = Family::default();
        registry.register(
            "http_refusals",
            "Refused requests by code; STORE_UNAVAILABLE counts trouble of the store",
            refusals.clone(),
        );
        let decisions = Family::default();
        registry.register("decisions", "Decisions by verdict", decisions.clone());
        let decision_seconds = seconds();
        registry.register(
            "decision_seconds",
            "From a decision's arrival to its commit, which also starts the call where this process holds the run",
            decision_seconds.clone(),
        );
        registry.register_collector(Box::new(Looked {
            engine: engine.clone(),
            store: engine.store().clone(),
            streams: streams.clone(),
        }));
        Self { registry, requests, request_seconds, refusals, decisions, decision_seconds }
    }

    pub(crate) fn answered(
        &self,
        method: &str,
        route: &str,
        status: StatusCode,
        code: Option<Code>,
        elapsed: Duration,
    ) {
        // A method that nobody knows must not make up a series of its own.
        let method = if matches!(method, "GET" | "POST" | "DELETE" | "HEAD") { method } else { "other" };
        let route = ("route", route.to_owned());
        let labels =
            vec![("method", method.to_owned()), route.clone(), ("status", status.as_str().to_owned())];
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.get_or_create(&vec![route]).observe(elapsed.as_secs_f64());
        if let Some(code) = code {
            self.refusals.get_or_create(&vec![("code", code.as_str().to_owned())]).inc();
        }
    }

    pub(crate) fn decided(&self, verdict: &Verdict, elapsed: Duration) {
        self.decisions.get_or_create(&vec![("verdict", verdict_name(verdict).to_owned())]).inc();
        if verdict.is_taken() {
            self.decision_seconds.observe(elapsed.as_secs_f64());
        }
    }

    pub(crate) fn text(&self) -> Result<String, ApiError> {
        let mut shown = String::new();
        text::encode(&mut shown, &self.registry).map_err(|error| {
            tracing::error!(%error, "the numbers cannot be shown");
            ApiError::internal()
        })?;
        Ok(shown)
    }
}

const fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "accepted",
        Verdict::ToolChanged => "tool_changed",
        Verdict::AlreadyApplied => "already_applied",
        Verdict::Refused(refusal) => match refusal {
            Refusal::IdUsed => "id_used",
            Refusal::NotHeld => "not_held",
            Refusal::Answered => "answered",
            Refusal::Expired => "expired",
            Refusal::RunOver => "run_over",
            Refusal::DigestMismatch => "digest_mismatch",
            Refusal::Invalid(_) => "invalid",
        },
    }
}

/// What others count, looked up when somebody asks.
struct Looked {
    engine: Engine,
    store: Arc<dyn Store>,
    streams: Arc<Streams>,
}

impl fmt::Debug for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Looked")
    }
}

impl Collector for Looked {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.store.counts();
        let counters = [
            ("store_commits", "Commits of runs", counts.commits),
            (
                "store_syncs",
                "Times that data was forced to disk; commits per sync is the batch size",
                counts.syncs,
            ),
            ("store_bytes", "Bytes handed to the storage", counts.bytes),
        ];
        for (name, what, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, what, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("runs_in_memory", "Runs that this process works on", self.engine.held_count()),
            ("open_streams", "Streams that are open", self.streams.count()),
        ];
        for (name, what, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, what, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
