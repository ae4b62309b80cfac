//! Frozen agents that are kept compiled, so that the runs that are pinned to them need not compile them again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use machine::id::Digest;

use crate::agent::Pinned;
use crate::live::lock;
use crate::store::Tenant;

const KEPT_MAX: usize = 1_024;
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Each for the tenant that has asked for it: what one has brought is at hand for no other.
type Key = (Tenant, Digest);

#[derive(Default)]
pub(super) struct Kept {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    agents: BTreeMap<Key, (u64, Arc<Pinned>)>,
    /// The one that was put first goes first.
    by_age: BTreeMap<u64, Key>,
    last: u64,
    bytes: usize,
}

impl Kept {
    pub(super) fn of(&self, tenant: &Tenant, digest: &Digest) -> Option<Arc<Pinned>> {
        lock(&self.rows).agents.get(&(tenant.clone(), *digest)).map(|(_, pinned)| pinned.clone())
    }

    pub(super) fn put(&self, tenant: &Tenant, pinned: Arc<Pinned>) {
        let mut rows = lock(&self.rows);
        let key = (tenant.clone(), pinned.digest);
        rows.remove(&key);
        rows.last += 1;
        rows.bytes += pinned.bytes;
        let age = rows.last;
        rows.by_age.insert(age, key.clone());
        rows.agents.insert(key, (age, pinned));
        while (rows.bytes > KEPT_BYTES_MAX || rows.agents.len() > KEPT_MAX)
            && let Some(oldest) = rows.by_age.first_key_value().map(|(_, key)| key.clone())
        {
            rows.remove(&oldest);
        }
    }
}

impl Rows {
    fn remove(&mut self, key: &Key) {
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
    use crate::store::Task;

    struct Silent;

    impl Model for Silent {
        fn answer(&self, _: ModelRequest, _: Deltas) -> Task<'_, Result<ModelAnswer, ModelFailure>> {
            Box::pin(async { Ok(ModelAnswer::text("")) })
        }
    }

    fn saying(instructions: String) -> Arc<Pinned> {
        let agent = LiveAgent::compile(Agent::new("assistant", Silent).instructions(instructions));
        agent.map_err(|fault| fault.why).expect("an agent").pinned
    }

    #[test]
    fn large_agents_push_each_other_out_long_before_there_are_many() {
        let (kept, tenant) = (Kept::default(), Tenant::default());
        let large: Vec<Arc<Pinned>> =
            (0..40).map(|number| saying(format!("{number}").repeat(200_000))).collect();
        for pinned in &large {
            kept.put(&tenant, pinned.clone());
            assert!(lock(&kept.rows).bytes <= KEPT_BYTES_MAX);
        }
        let found = |place: usize| kept.of(&tenant, &large[place].digest).is_some();
        assert!(!found(0) && found(39), "the oldest goes first");
        assert!(kept.of(&Tenant::from("other"), &large[39].digest).is_none(), "nobody else finds it");
    }

    #[test]
    fn small_agents_are_bounded_in_number_and_what_is_put_twice_counts_once() {
        let (kept, tenant) = (Kept::default(), Tenant::default());
        for number in 0..=KEPT_MAX {
            let pinned = saying(format!("{number}"));
            kept.put(&tenant, pinned.clone());
            kept.put(&tenant, pinned);
        }
        let rows = lock(&kept.rows);
        assert_eq!((rows.agents.len(), rows.by_age.len()), (KEPT_MAX, KEPT_MAX));
        let bytes: usize = rows.agents.values().map(|(_, pinned)| pinned.bytes).sum();
        assert_eq!(rows.bytes, bytes);
    }
}
