//! The words and numbers that stand in the columns: those of every store that keeps rows.

pub(super) use crate::words::{
    approval_status_of, checkpoint_of, checkpoint_word, digest, item_word, kind_of, millis, number, role_of,
    role_word, status_of, timestamp, unsigned,
};
