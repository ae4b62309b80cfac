//! What ends the reading of one thing: SQLite cannot, or what is there cannot be.

use super::finding::FindingCode;

pub(super) struct Fault {
    pub(super) code: FindingCode,
    pub(super) what: String,
}

pub(super) fn broken(code: FindingCode, what: impl Into<String>) -> Fault {
    Fault { code, what: what.into() }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        // Without a code it is not SQLite but a column that has another type than it was written with.
        let code = match error.sqlite_error_code() {
            Some(_) => FindingCode::FileDamaged,
            None => FindingCode::Unreadable,
        };
        Self { code, what: error.to_string() }
    }
}
