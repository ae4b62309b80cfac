//! What a status code and a `Retry-After` mean.

use std::time::{Duration, SystemTime};

use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, StatusCode};

use super::answer::{StatusClass, classify, retry_after_ms};

#[test]
fn what_a_status_means_depends_on_whether_the_call_may_be_repeated() {
    let of = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap();
        (classify(status, true), classify(status, false))
    };
    for status in [200, 201, 204, 206, 299] {
        assert_eq!(of(status), (StatusClass::Done, StatusClass::Done), "{status}");
    }
    assert_eq!(of(202), (StatusClass::Pending, StatusClass::Pending));
    for status in [301, 302, 303, 304, 307, 308] {
        assert_eq!(of(status), (StatusClass::Redirect, StatusClass::Redirect), "{status}");
    }
    for status in [400, 401, 403, 404, 409, 422] {
        assert_eq!(of(status), (StatusClass::Failed, StatusClass::Failed), "{status}");
    }
    for status in [408, 425, 429, 500, 501] {
        assert_eq!(of(status), (StatusClass::Unknown, StatusClass::Failed), "{status}");
    }
    for status in [502, 503, 504, 505, 507, 599] {
        assert_eq!(of(status), (StatusClass::Unknown, StatusClass::Unknown), "{status}");
    }
}

#[test]
fn a_wait_is_read_as_seconds_or_as_a_date() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let wait = |text: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().unwrap());
        retry_after_ms(&headers, now)
    };
    assert_eq!(wait("2"), Some(2_000));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:40 GMT"), Some(3_000));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:30 GMT"), Some(0), "it is over");
    assert_eq!(wait("soon"), None);
}
