//! Answers on their way: what a client has not taken yet is counted until it has, or is cut off.
//!
//! A large answer costs memory until its last byte is out, however slow its reader is. So its room belongs to its bytes:
//! it is given back when they are.

use std::sync::{Arc, Mutex, PoisonError};

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

/// Room that an answer took before it was put together.
#[derive(Clone)]
struct Reserved(Arc<Mutex<Option<Taken>>>);

/// The answer keeps the room that it was put together in: it does not stand in line for it again, behind those who have
/// not begun.
pub(crate) fn with_room(mut response: Response, room: Option<Taken>) -> Response {
    if room.is_some() {
        response.extensions_mut().insert(Reserved(Arc::new(Mutex::new(room))));
    }
    response
}

/// The request is worked on no longer. Its answer, where it is a large one, takes room until it is sent: one that only
/// shows something and finds none in time is not sent. What is streamed is counted as a stream.
pub(crate) async fn counted(
    share: &Share,
    place: Arc<Place>,
    only_shows: bool,
    mut response: Response,
) -> Result<Response, ApiError> {
    let reserved = response.extensions_mut().remove::<Reserved>();
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > SMALL_BYTES_MAX) else {
        place.leave();
        return Ok(response);
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let reserved = reserved
        .and_then(|Reserved(room)| room.lock().unwrap_or_else(PoisonError::into_inner).take())
        .map(|mut room| {
            room.shrink_to(length);
            room
        });
    let room = match reserved {
        Some(room) => Some(room),
        None => share.answer_room(length).await,
    };
    let held = match room {
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
    async fn an_answer_keeps_the_room_that_it_was_put_together_in_and_no_more() {
        let share = share();
        let room = share.answer_room(2 * LARGE).await;
        let place = Arc::new(share.place().await.expect("a place is free"));
        let whole = with_room(Response::new(Body::from(vec![b'x'; LARGE])), room);
        // Whoever waits to begin stands in line: one that is done does not stand behind them.
        let waiting = share.answer_room(2 * LARGE);
        tokio::pin!(waiting);
        let (sent, begun) = tokio::join!(counted(&share, place, true, whole), waiting);
        let sent = sent.expect("it has its room");
        assert!(begun.is_none(), "there is no room for another until it is taken");
        drop(sent);
        assert!(share.answer_room(LARGE).await.is_some(), "all of it is given back");
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
