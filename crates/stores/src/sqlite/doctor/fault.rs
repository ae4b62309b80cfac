//! Maps an error of SQLite to a finding about the data that was read.

use crate::doctor::{Fault, FindingCode};

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        // Without a code it is not an error of SQLite: a column has another type than it was written with.
        let code = match error.sqlite_error_code() {
            Some(_) => FindingCode::FileDamaged,
            None => FindingCode::Unreadable,
        };
        Self { code, what: error.to_string() }
    }
}
