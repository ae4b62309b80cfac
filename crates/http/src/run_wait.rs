//! `?wait=`: a response that is held back until its run ends or waits.
//!
//! A request that waits is parked on the run's feed: it polls nothing, and holds neither a request permit nor memory for
//! its body. Dropping it, because its client has disconnected, ends the wait.

use std::time::Duration;

use engine::Engine;
use engine::feed::FeedItem;
use engine::store::{RunView, StoreError, Tenant};
use machine::event::Fact;
use machine::projection_rows::PublicRunStatus;

use crate::access::revoked_error;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{QueryParams, bad_query};
use crate::limits::{TenantCount, rate_limited};
use crate::routes::runs::{find_run, run_refused};
use crate::server::Server;

const WAIT_MAX: Duration = Duration::from_secs(60);
/// Durations up to [`WAIT_MAX`].
pub(crate) const WAIT_PATTERN: &str = "^(([0-9]{1,4}|[1-5][0-9]{4}|60000)ms|([0-5]?[0-9]|60)s|[01]m|0[hd])$";

pub(crate) const WAIT_DESCRIPTION: &str = "A whole number and a unit (ms, s, m, h or d), at most 60s";

/// The duration that `wait` asks for; none without it.
pub(crate) fn parse_wait(query: &QueryParams) -> Result<Option<Duration>, ApiError> {
    let Some(text) = query.text("wait") else { return Ok(None) };
    let bad = |why: &str| Err(bad_query("wait", why));
    let Some(duration) = parse_duration(text) else {
        return bad("expected a whole number and a unit: ms, s, m, h or d, such as 25s");
    };
    if duration > WAIT_MAX {
        return bad("at most 60s; send the request again for more");
    }
    Ok(Some(duration))
}

/// None if it is not a duration, or too long to be one.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_millis(number.checked_mul(unit_ms)?))
}

/// Permission to wait for one run, counted per tenant.
pub(crate) struct RunWait<'a> {
    server: &'a Server,
    caller: &'a Caller,
    duration: Duration,
    _count: TenantCount,
}

impl<'a> RunWait<'a> {
    /// Refused if too many requests of the tenant wait already. Reserve before anything is changed.
    pub(crate) fn reserve(
        server: &'a Server,
        caller: &'a Caller,
        duration: Duration,
    ) -> Result<Self, ApiError> {
        let count = server.waits.open(&caller.tenant, server.limits.waits_per_tenant_max);
        let count = count.ok_or_else(|| {
            rate_limited("too many requests of this tenant wait for a run; leave out `wait`, or use a stream")
        })?;
        Ok(Self { server, caller, duration, _count: count })
    }

    /// The run as soon as it has ended or waits; as it is when the time is up or the server drains.
    pub(crate) async fn until_settled(self, view: RunView) -> Result<RunView, ApiError> {
        let Self { server, caller, .. } = &self;
        if is_settled(view.shown_status()) || server.is_draining() {
            return Ok(view);
        }
        caller.permit.release_body();
        let waiting = async {
            tokio::select! {
                biased;
                () = caller.validity.ended() => Err(revoked_error()),
                () = server.draining.cancelled() => Ok(()),
                settled = watch_until_settled(&server.engine, &caller.tenant, &view) => {
                    settled.map_err(|refused| run_refused(&view.id, refused))
                }
                () = tokio::time::sleep(self.duration) => Ok(()),
            }
        };
        caller.permit.release_while(waiting).await?;
        find_run(server, caller, &view.id).await
    }
}

async fn watch_until_settled(engine: &Engine, tenant: &Tenant, view: &RunView) -> Result<(), StoreError> {
    let mut events = engine.subscribe(tenant, &view.id, view.seq).without_live();
    while let Some(item) = events.next().await {
        match item? {
            FeedItem::Event(committed) => {
                let may_settle = matches!(committed.event.fact, Fact::RunWaiting { .. });
                // A decision may have been accepted at once.
                if may_settle
                    && let Some(now) = engine.view(tenant, &view.id).await?
                    && is_settled(now.shown_status())
                {
                    return Ok(());
                }
            }
            FeedItem::Unreadable(_) | FeedItem::Live(_) => {}
        }
    }
    Ok(())
}

/// Whether the run has ended, or only waits.
pub(crate) fn is_settled(status: PublicRunStatus) -> bool {
    match status {
        PublicRunStatus::Queued | PublicRunStatus::Running | PublicRunStatus::Interrupting => false,
        PublicRunStatus::WaitingApproval
        | PublicRunStatus::WaitingTool
        | PublicRunStatus::Completed
        | PublicRunStatus::Failed
        | PublicRunStatus::Interrupted => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, ms) in
            [("25s", 25_000), ("0ms", 0), ("1m", 60_000), ("1h", 3_600_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for bad in [
            "",
            "25",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1S",
            "s1",
            "1sec",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
