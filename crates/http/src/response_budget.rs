//! Responses in flight: their bytes are counted until the client has read them, or is cut off.
//!
//! A large response uses memory until its last byte is sent, however slow its reader is. So the permit belongs to the
//! bytes, and is released together with them.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::response::Response;

use crate::capacity::{Permit, RequestPermit, TenantCapacity};
use crate::error::{ApiError, Code};
use crate::limits::RETRY_SECONDS;

/// Smaller responses are bounded by the number of connections: each has one at a time.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// The bytes of one response, with the permit that they hold.
struct BudgetedBytes {
    bytes: Bytes,
    _permit: ResponsePermit,
}

enum ResponsePermit {
    Memory {
        _permit: Permit,
    },
    /// The outcome of a change has to be sent. If no memory is free, the response keeps its request's permit.
    Request {
        _permit: Arc<RequestPermit>,
    },
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Memory that was reserved for a response before it was built.
#[derive(Clone)]
struct Reservation(Arc<Mutex<Option<Permit>>>);

/// The response keeps the reservation that it was built with, so it does not queue again after requests that have not
/// begun.
pub(crate) fn with_reservation(mut response: Response, permit: Option<Permit>) -> Response {
    if permit.is_some() {
        response.extensions_mut().insert(Reservation(Arc::new(Mutex::new(permit))));
    }
    response
}

/// The request is no longer processed. If its response is large, it holds memory until it is sent. A read that gets no
/// memory in time is refused instead. A streamed response counts as a stream.
pub(crate) async fn budget_response(
    capacity: &TenantCapacity,
    request_permit: Arc<RequestPermit>,
    is_read_only: bool,
    mut response: Response,
) -> Result<Response, ApiError> {
    let reserved = response.extensions_mut().remove::<Reservation>();
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > SMALL_BYTES_MAX) else {
        request_permit.release();
        return Ok(response);
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let reserved = reserved
        .and_then(|Reservation(permit)| permit.lock().unwrap_or_else(PoisonError::into_inner).take())
        .map(|mut permit| {
            permit.shrink_to(length);
            permit
        });
    let permit = match reserved {
        Some(permit) => Some(permit),
        None => capacity.reserve_response(length).await,
    };
    let permit = match permit {
        Some(permit) => {
            request_permit.release();
            ResponsePermit::Memory { _permit: permit }
        }
        None if is_read_only => {
            request_permit.release();
            return Err(over_budget());
        }
        None => ResponsePermit::Request { _permit: request_permit },
    };
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| {
        tracing::error!(%error, "a response cannot be serialized");
        ApiError::internal()
    })?;
    Ok(Response::from_parts(parts, Body::from(Bytes::from_owner(BudgetedBytes { bytes, _permit: permit }))))
}

/// The refusal when no memory is free. Nothing was changed, and the client may send the same request again.
pub(crate) fn over_budget() -> ApiError {
    ApiError::new(
        Code::RateLimited,
        format!(
            "too many earlier responses have not been read yet, and this response was not sent; read those, or send the \
             request again in {RETRY_SECONDS} s"
        ),
    )
    .with("retry_after_seconds", RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a failing test may stop in the plainest way there is")]

    use std::time::Duration;

    use super::*;
    use crate::capacity::Capacity;
    use crate::limits::Limits;

    const LARGE: usize = 100 * 1024;

    /// Memory for one large response, and one request permit.
    fn capacity() -> TenantCapacity {
        let limits = Limits {
            requests_max: 2,
            whole_run_bytes_max: 1,
            responses_bytes_max: 2 * LARGE,
            permit_timeout: Duration::from_millis(10),
            ..Limits::default()
        };
        Capacity::new(&limits).for_tenant(&"one".into(), &limits)
    }

    async fn answer(
        capacity: &TenantCapacity,
        bytes: usize,
        is_read_only: bool,
    ) -> Result<Response, ApiError> {
        let request_permit = Arc::new(capacity.acquire_request().await.expect("a permit is free"));
        budget_response(capacity, request_permit, is_read_only, Response::new(Body::from(vec![b'x'; bytes])))
            .await
    }

    #[tokio::test]
    async fn a_response_keeps_its_reservation_and_no_more() {
        let capacity = capacity();
        let permit = capacity.reserve_response(2 * LARGE).await;
        let request_permit = Arc::new(capacity.acquire_request().await.expect("a permit is free"));
        let whole = with_reservation(Response::new(Body::from(vec![b'x'; LARGE])), permit);
        // A request that waits to begin is in the queue. A response that is built does not queue after it.
        let waiting = capacity.reserve_response(2 * LARGE);
        tokio::pin!(waiting);
        let (sent, begun) = tokio::join!(budget_response(&capacity, request_permit, true, whole), waiting);
        let sent = sent.expect("it has its reservation");
        assert!(begun.is_none(), "there is no memory for another until it is read");
        drop(sent);
        assert!(capacity.reserve_response(LARGE).await.is_some(), "all of it is given back");
    }

    #[tokio::test]
    async fn without_capacity_a_read_is_refused_and_a_write_is_answered() {
        let capacity = capacity();
        let first = answer(&capacity, LARGE, true).await.expect("there is room");
        answer(&capacity, 1024, true).await.expect("a small one needs none");
        let refused = answer(&capacity, LARGE, true).await.expect_err("there is no room left");
        assert_eq!(refused.code, Code::RateLimited);
        let done = answer(&capacity, LARGE, false).await.expect("a write gets its response");
        assert!(capacity.acquire_request().await.is_none(), "and keeps the permit until it is sent");
        drop(done);
        // A part that is not sent yet counts like the whole, because the whole is in memory.
        let mut bytes = to_bytes(first.into_body(), LARGE).await.expect("it is whole");
        let rest = bytes.split_off(LARGE - 1);
        drop(bytes);
        assert!(answer(&capacity, LARGE, true).await.is_err());
        drop(rest);
        answer(&capacity, LARGE, true).await.expect("there is room again");
    }
}
