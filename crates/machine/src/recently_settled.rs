//! A bounded list of recently settled calls, which distinguishes a late duplicate from an unknown id.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest};
use crate::time::Timestamp;

pub const RECENT_SETTLED_MAX: usize = 128;
pub const RECENT_SETTLED_TTL_MS: u64 = 5 * 60 * 1_000;

/// Oldest first. The key includes the step, so an id that a provider uses again in a later step matches nothing here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentlySettled(Vec<SettledCall>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SettledCall {
    step: u32,
    call: [u8; 8],
    at: Timestamp,
}

impl RecentlySettled {
    /// Kept if it is among the latest [`RECENT_SETTLED_MAX`] and not older than [`RECENT_SETTLED_TTL_MS`].
    pub(crate) fn insert(&mut self, step: u32, call: &CallId, at: Timestamp) {
        self.0.retain(|entry| at.ms_since(entry.at) <= RECENT_SETTLED_TTL_MS);
        let surplus = (self.0.len() + 1).saturating_sub(RECENT_SETTLED_MAX);
        self.0.drain(..surplus);
        self.0.push(SettledCall { step, call: fingerprint(call), at });
    }

    #[must_use]
    pub fn contains(&self, step: u32, call: &CallId, now: Timestamp) -> bool {
        let wanted = fingerprint(call);
        self.0.iter().any(|entry| {
            entry.step == step && entry.call == wanted && now.ms_since(entry.at) <= RECENT_SETTLED_TTL_MS
        })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn fingerprint(call: &CallId) -> [u8; 8] {
    let digest = Digest::sha256(call.as_str().as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = digest.0;
    [a, b, c, d, e, f, g, h]
}
