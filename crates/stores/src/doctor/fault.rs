//! What ends the reading of one thing: the database cannot, or what is there cannot be.

use super::finding::FindingCode;

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: FindingCode,
    pub(crate) what: String,
}

pub(crate) fn new_fault(code: FindingCode, what: impl Into<String>) -> Fault {
    Fault { code, what: what.into() }
}
