//! Refusals of a tool's report about a call: why it was not accepted, and whether there is anything left to do.

use engine::callback::ReportedAttempt;
use machine::status::CallStatus;

use super::{ApiError, Code};
use crate::wire::enums;

/// Why a report is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportRefusal {
    /// A report for the same attempt was accepted before.
    AlreadyTaken,
    /// The attempt has not returned yet.
    InFlight,
    /// The call was answered in another way, another attempt was made, or the call or its run has ended.
    NoLongerHeld,
}

impl ApiError {
    #[must_use]
    pub fn report_refused(why: ReportRefusal, about: &ReportedAttempt, call: Option<CallStatus>) -> Self {
        let (reason, message) = match why {
            ReportRefusal::AlreadyTaken => (
                "taken",
                "this callback was already used: its first report is stored, and this one was not accepted. There is \
                 nothing left to do",
            ),
            ReportRefusal::InFlight => (
                "under_way",
                "the call is not held yet, and this report was not accepted; respond to the call with 202, then \
                 report again",
            ),
            ReportRefusal::NoLongerHeld => (
                "over",
                "this callback was already used, or its call is no longer held; the result was not accepted",
            ),
        };
        let error = Self::new(Code::CallbackSpent, message)
            .with("reason", reason)
            .with("run_id", about.run.as_str())
            .with("call_id", about.call.as_str())
            .with("attempt", about.attempt);
        match call {
            Some(status) => error.with("call_status", enums::CallStatus::from(status).as_str()),
            None => error,
        }
    }

    /// The report does not match what the tool asked for with its 202.
    #[must_use]
    pub fn invalid_report(why: &str) -> Self {
        Self::new(
            Code::InvalidArguments,
            format!(
                "{why}; the report was not accepted, and the call is still held. Report again with what the call \
                 waits for"
            ),
        )
    }
}
