//! Metrics of the server, for a monitoring system. Each has a line in `docs/operations.md`.

mod collector;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use engine::Engine;
use machine::inbox::{Refusal, Verdict};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::{ApiError, Code};
use crate::limits::TenantCounter;
use collector::{EngineCollector, RunCountsCache};

type Labels = Vec<(&'static str, String)>;

/// Labels of the protocols of front ends.
pub(crate) const AI_SDK: &str = "ai_sdk";
pub(crate) const AG_UI: &str = "ag_ui";

pub(crate) struct Metrics {
    registry: Registry,
    run_counts_cache: Arc<RunCountsCache>,
    requests: Family<Labels, Counter>,
    request_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    refusals: Family<Labels, Counter>,
    decisions: Family<Labels, Counter>,
    decision_seconds: Histogram,
    illegal_frames: Family<Labels, Counter>,
    /// Connections that were closed at once.
    pub(crate) connections_refused: Counter,
}

/// From a tenth of a millisecond to half a minute.
fn seconds_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}

impl Metrics {
    pub(crate) fn new(
        engine: &Engine,
        streams: &Arc<TenantCounter>,
        waits: &Arc<TenantCounter>,
        log_lines_dropped: Arc<AtomicU64>,
    ) -> Self {
        let mut registry = Registry::with_prefix("holdpoint");
        let requests = Family::default();
        registry.register("http_requests", "Responses by method, route and status", requests.clone());
        let request_seconds = Family::new_with_constructor(seconds_histogram as fn() -> Histogram);
        registry.register(
            "http_request_seconds",
            "Time until the response began, by route",
            request_seconds.clone(),
        );
        let refusals = Family::default();
        registry.register(
            "http_refusals",
            "Refused requests by code; STORE_UNAVAILABLE counts failures of the store",
            refusals.clone(),
        );
        let decisions = Family::default();
        registry.register("decisions", "Decisions by verdict", decisions.clone());
        let decision_seconds = seconds_histogram();
        registry.register(
            "decision_seconds",
            "Time from the arrival of a decision to its commit",
            decision_seconds.clone(),
        );
        let illegal_frames = Family::<Labels, Counter>::default();
        // They begin with 0, so that an alert can watch for the first one.
        for protocol in [AI_SDK, AG_UI] {
            drop(illegal_frames.get_or_create(&vec![("protocol", protocol.to_owned())]));
        }
        registry.register(
            "illegal_frames",
            "Frames that were not sent because their protocol forbids them, by protocol; each closed a stream",
            illegal_frames.clone(),
        );
        let connections_refused = Counter::default();
        registry.register(
            "connections_refused",
            "Connections that were closed at once because their address had too many open connections",
            connections_refused.clone(),
        );
        let run_counts_cache = Arc::<RunCountsCache>::default();
        registry.register_collector(Box::new(EngineCollector {
            engine: engine.clone(),
            streams: streams.clone(),
            waits: waits.clone(),
            run_counts_cache: run_counts_cache.clone(),
            log_lines_dropped,
        }));
        Self {
            registry,
            run_counts_cache,
            requests,
            request_seconds,
            refusals,
            decisions,
            decision_seconds,
            illegal_frames,
            connections_refused,
        }
    }

    pub(crate) fn record_response(
        &self,
        method: &str,
        route: &str,
        status: StatusCode,
        code: Option<Code>,
        elapsed: Duration,
    ) {
        // An unknown method must not create a series of its own.
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

    /// Counts the frames that the verifier of a front end's protocol refused.
    pub(crate) fn illegal_frames(&self, protocol: &'static str) -> Counter {
        self.illegal_frames.get_or_create(&vec![("protocol", protocol.to_owned())]).clone()
    }

    pub(crate) fn record_decision(&self, verdict: &Verdict, elapsed: Duration) {
        self.decisions.get_or_create(&vec![("verdict", verdict_name(verdict).to_owned())]).inc();
        if verdict.is_taken() {
            self.decision_seconds.observe(elapsed.as_secs_f64());
        }
    }

    /// Counts the runs again if the last count is older than `run_counts_age_max`.
    pub(crate) async fn render(
        &self,
        engine: &Engine,
        run_counts_age_max: Duration,
    ) -> Result<String, ApiError> {
        self.run_counts_cache.refresh(engine, run_counts_age_max).await;
        let mut shown = String::new();
        text::encode(&mut shown, &self.registry).map_err(|error| {
            tracing::error!(%error, "the metrics cannot be encoded");
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
            Refusal::SuspensionNotNamed => "doubt_not_named",
            Refusal::UnknownCall => "unknown_call",
            Refusal::Forbidden(_) => "forbidden",
            Refusal::Invalid(_) => "invalid",
        },
    }
}
