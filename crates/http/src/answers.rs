//! Answers on their way: what a client has not taken yet is counted until it has, or is cut off.
//!
//! A large answer costs memory until its last byte is out, however slow its reader is. So its room belongs to its bytes:
//! it is given back when they are.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::response::Response;

use crate::error::{ApiError, Code};
use crate::limits::RETRY_SECONDS;
use crate::places::{Place, Share, Taken};

/// Smaller ones are bounded by the number of connections: each has one at a time.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// The bytes of one answer with what they hold.
struct Counted {
    bytes: Bytes,
    _held: Held,
}

enum Held {
    Room {
        _taken: Taken,
    },
    /// What was done has to be told: without room the request keeps the place that it was worked on in.
    Place {
        _place: Arc<Place>,
    },
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The request is worked on no longer. Its answer, where it is a large one, takes room until it is sent: one that only
/// shows something and finds none in time is not sent. What is streamed is counted as a stream.
pub(crate) async fn counted(
    share: &Share,
    place: Arc<Place>,
    only_shows: bool,
    response: Response,
) -> Result<Response, ApiError> {
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > SMALL_BYTES_MAX) else {
        place.leave();
        return Ok(response);
    };
    let held = match share.answer_room(usize::try_from(length).unwrap_or(usize::MAX)).await {
        Some(taken) => {
            place.leave();
            Held::Room { _taken: taken }
        }
        None if only_shows => {
            place.leave();
            return Err(no_room());
        }
        None => Held::Place { _place: place },
    };
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| {
        tracing::error!(%error, "an answer cannot be written down");
        ApiError::internal()
    })?;
    Ok(Response::from_parts(parts, Body::from(Bytes::from_owner(Counted { bytes, _held: held }))))
}

/// Nothing was changed, and the same request may be sent again.
pub(crate) fn no_room() -> ApiError {
    ApiError::new(
        Code::RateLimited,
        format!(
            "too much of what was answered before is not taken yet, and this answer was not sent; take the others, or \
             ask again in {RETRY_SECONDS} s"
        ),
    )
    .with("retry_after_seconds", RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a failing test may stop in the plainest way there is")]

    use std::time::Duration;

    use super::*;
    use crate::limits::Limits;
    use crate::places::Places;

    const LARGE: usize = 100 * 1024;

    /// Room for one large answer, and one place.
    fn share() -> Share {
        let limits = Limits {
            requests_max: 2,
            whole_run_bytes_max: 1,
            answers_bytes_max: 2 * LARGE,
            turn_time: Duration::from_millis(10),
            ..Limits::default()
        };
        Places::new(&limits).share(&"one".into(), &limits)
    }

    async fn answer(share: &Share, bytes: usize, only_shows: bool) -> Result<Response, ApiError> {
        let place = Arc::new(share.place().await.expect("a place is free"));
        counted(share, place, only_shows, Response::new(Body::from(vec![b'x'; bytes]))).await
    }

    #[tokio::test]
    async fn what_was_only_asked_for_is_refused_without_room_and_what_was_done_is_told() {
        let share = share();
        let first = answer(&share, LARGE, true).await.expect("there is room");
        answer(&share, 1024, true).await.expect("a small one needs none");
        let refused = answer(&share, LARGE, true).await.expect_err("there is no room left");
        assert_eq!(refused.code, Code::RateLimited);
        let done = answer(&share, LARGE, false).await.expect("it is told");
        assert!(share.place().await.is_none(), "and keeps the place until it is sent");
        drop(done);
        // A part of it that is not sent yet counts like the whole: it is in memory.
        let mut bytes = to_bytes(first.into_body(), LARGE).await.expect("it is whole");
        let rest = bytes.split_off(LARGE - 1);
        drop(bytes);
        assert!(answer(&share, LARGE, true).await.is_err());
        drop(rest);
        answer(&share, LARGE, true).await.expect("there is room again");
    }
}
