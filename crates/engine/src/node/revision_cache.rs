//! Compiled frozen agents, so that runs pinned to them need not compile them again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use machine::id::Digest;

use crate::agent::Pinned;
use crate::live::lock;
use crate::store::Tenant;

const REVISIONS_MAX: usize = 1_024;
const REVISIONS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Keyed by the tenant that asked for it: a tenant never gets an entry of another tenant.
type RevisionKey = (Tenant, Digest);

#[derive(Default)]
pub(super) struct RevisionCache {
    entries: Mutex<RevisionEntries>,
}

#[derive(Default)]
struct RevisionEntries {
    agents: BTreeMap<RevisionKey, (u64, Arc<Pinned>)>,
    /// The oldest entry is evicted first.
    by_age: BTreeMap<u64, RevisionKey>,
    last: u64,
    bytes: usize,
}

impl RevisionCache {
    pub(super) fn get(&self, tenant: &Tenant, digest: &Digest) -> Option<Arc<Pinned>> {
        lock(&self.entries).agents.get(&(tenant.clone(), *digest)).map(|(_, pinned)| pinned.clone())
    }

    pub(super) fn put(&self, tenant: &Tenant, pinned: Arc<Pinned>) {
        let mut entries = lock(&self.entries);
        let key = (tenant.clone(), pinned.digest);
        entries.remove(&key);
        entries.last += 1;
        entries.bytes += pinned.bytes;
        let age = entries.last;
        entries.by_age.insert(age, key.clone());
        entries.agents.insert(key, (age, pinned));
        while (entries.bytes > REVISIONS_BYTES_MAX || entries.agents.len() > REVISIONS_MAX)
            && let Some(oldest) = entries.by_age.first_key_value().map(|(_, key)| key.clone())
        {
            entries.remove(&oldest);
        }
    }
}

impl RevisionEntries {
    fn remove(&mut self, key: &RevisionKey) {
        if let Some((age, pinned)) = self.agents.remove(key) {
            self.by_age.remove(&age);
            self.bytes -= pinned.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, LiveAgent};
    use crate::live::Deltas;
    use crate::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
    use crate::store::BoxFuture;

    struct Silent;

    impl Model for Silent {
        fn answer(&self, _: ModelRequest, _: Deltas) -> BoxFuture<'_, Result<ModelAnswer, ModelFailure>> {
            Box::pin(async { Ok(ModelAnswer::text("")) })
        }
    }

    fn saying(instructions: String) -> Arc<Pinned> {
        let agent = LiveAgent::compile(Agent::new("assistant", Silent).instructions(instructions));
        agent.map_err(|fault| fault.why).expect("an agent").pinned
    }

    #[test]
    fn large_agents_push_each_other_out_long_before_there_are_many() {
        let (cache, tenant) = (RevisionCache::default(), Tenant::default());
        let large: Vec<Arc<Pinned>> =
            (0..40).map(|number| saying(format!("{number}").repeat(200_000))).collect();
        for pinned in &large {
            cache.put(&tenant, pinned.clone());
            assert!(lock(&cache.entries).bytes <= REVISIONS_BYTES_MAX);
        }
        let found = |place: usize| cache.get(&tenant, &large[place].digest).is_some();
        assert!(!found(0) && found(39), "the oldest goes first");
        assert!(
            cache.get(&Tenant::from("other"), &large[39].digest).is_none(),
            "another tenant does not find it"
        );
    }

    #[test]
    fn small_agents_are_bounded_in_number_and_what_is_put_twice_counts_once() {
        let (cache, tenant) = (RevisionCache::default(), Tenant::default());
        for number in 0..=REVISIONS_MAX {
            let pinned = saying(format!("{number}"));
            cache.put(&tenant, pinned.clone());
            cache.put(&tenant, pinned);
        }
        let entries = lock(&cache.entries);
        assert_eq!((entries.agents.len(), entries.by_age.len()), (REVISIONS_MAX, REVISIONS_MAX));
        let bytes: usize = entries.agents.values().map(|(_, pinned)| pinned.bytes).sum();
        assert_eq!(entries.bytes, bytes);
    }
}
