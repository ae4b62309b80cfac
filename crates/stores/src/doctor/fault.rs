//! Ends the examination of one item: it cannot be read, or it is inconsistent.

use super::finding::FindingCode;

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: FindingCode,
    pub(crate) what: String,
}

pub(crate) fn new_fault(code: FindingCode, what: impl Into<String>) -> Fault {
    Fault { code, what: what.into() }
}
