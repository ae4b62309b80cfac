//! Records which configuration is in force, and which keys were added, changed and removed since the last record.

use std::collections::{BTreeMap, BTreeSet};

use engine::store::{
    AUDIT_RECORDS_MAX, AuditFilter, ConfigurationRecord, Store, StoreError, Tenant, seal_all,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry, SealedRecord};
use machine::id::{AgentName, Digest};
use serde_json::Value;

use crate::setup::{AgentScope, Auth, Key, Role};

/// Another node can record the configuration in between. Then the change is compared with that.
const ATTEMPTS_MAX: usize = 16;

/// Names of keys, each with the digest of what it is and may do.
type KeyDigests = BTreeMap<String, Digest>;

/// What is recorded, and on whose behalf.
pub(crate) struct RecordedConfiguration<'c> {
    pub(crate) action: AuditAction,
    pub(crate) auth: &'c Auth,
    /// SHA-256 of the configuration file.
    pub(crate) file: Option<Digest>,
    pub(crate) actor: &'c Actor,
}

impl RecordedConfiguration<'_> {
    /// Every tenant that has keys, or a record already, gets a record of the configuration. All of them are written, or
    /// none.
    pub(crate) async fn write(&self, store: &dyn Store) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            match store.record_configuration(&self.records(store).await?).await {
                Err(StoreError::Behind) => {}
                written => return written,
            }
        }
        Err(StoreError::Behind)
    }

    async fn records(&self, store: &dyn Store) -> Result<Vec<ConfigurationRecord>, StoreError> {
        let stopped = seal_all(store).await?;
        let mut tenants: BTreeSet<Tenant> = self.auth.tenants();
        tenants.extend(store.audit_chains().await?.into_iter().map(|chain| chain.tenant));
        let mut records = Vec::new();
        for tenant in tenants {
            let recorded = LastRecorded::read(store, &tenant).await?;
            let known = Some(recorded.seq).filter(|_| !stopped.contains(&tenant));
            let entries = self.entries(store, &tenant, &recorded.keys);
            records.push(ConfigurationRecord { tenant, known, entries });
        }
        Ok(records)
    }

    fn entries(&self, store: &dyn Store, tenant: &Tenant, known: &KeyDigests) -> Vec<AuditEntry> {
        let found = key_digests(self.auth, tenant);
        let new = |action| AuditEntry::new(store.now(), action, self.actor.clone());
        let keys: Vec<String> = found.iter().map(|(name, digest)| format!("{digest} {name}")).collect();
        let file = self.file.map(|file| file.to_string());
        let mut entries = vec![new(self.action).with("keys", keys).with_text("sha256", file.as_deref())];
        let of_key = |action, name: &str, digest: Option<&Digest>| {
            let digest = digest.map(Digest::to_string);
            let roles = roles_of(self.auth, tenant, name);
            new(action).with("key", name).with_text("key_digest", digest.as_deref()).with("roles", roles)
        };
        for (name, digest) in &found {
            match known.get(name) {
                Some(before) if before == digest => {}
                Some(_) => entries.push(of_key(AuditAction::KeyChanged, name, Some(digest))),
                None => entries.push(of_key(AuditAction::KeyAdded, name, Some(digest))),
            }
        }
        let removed = known.keys().filter(|name| !found.contains_key(*name));
        entries.extend(removed.map(|name| of_key(AuditAction::KeyRemoved, name, None)));
        entries
    }
}

fn keys_of<'k>(auth: &'k Auth, tenant: &Tenant) -> impl Iterator<Item = &'k Key> {
    let keys: &[Key] = match auth {
        Auth::Open { .. } => &[],
        Auth::Keys(keys) => keys,
    };
    keys.iter().filter(move |key| key.tenant == *tenant)
}

fn roles_of(auth: &Auth, tenant: &Tenant, name: &str) -> Vec<&'static str> {
    keys_of(auth, tenant).find(|key| key.name == name).map(roles).unwrap_or_default()
}

fn roles(key: &Key) -> Vec<&'static str> {
    let has = |role: &Role| match role {
        Role::Run => key.roles.run,
        Role::Approve => key.roles.approve,
        Role::Admin => key.roles.admin,
        Role::Operator => key.roles.operator,
    };
    [Role::Run, Role::Approve, Role::Admin, Role::Operator]
        .into_iter()
        .filter(has)
        .map(Role::as_str)
        .collect()
}

/// The token itself cannot be found from such a digest, and neither can the token's own digest. Digests are stored, so
/// this text must never change.
fn key_digests(auth: &Auth, tenant: &Tenant) -> KeyDigests {
    let digest = |key: &Key| {
        let agents: Vec<&str> = match &key.agents {
            AgentScope::All => vec!["*"],
            AgentScope::Only(agents) => agents.iter().map(AgentName::as_str).collect(),
        };
        let acts_for = if key.acts_for { " acts_for" } else { "" };
        let (token, roles, agents) = (Digest(key.sha256), roles(key).join(","), agents.join(","));
        Digest::sha256(format!("token {token} roles {roles} agents {agents}{acts_for}").as_bytes())
    };
    keys_of(auth, tenant).map(|key| (key.name.clone(), digest(key))).collect()
}

/// The time of the newest record of each tenant's configuration; the oldest of them.
pub(crate) async fn oldest_configuration(store: &dyn Store) -> Result<Option<Timestamp>, StoreError> {
    let mut oldest = None;
    for chain in store.audit_chains().await? {
        let at = LastRecorded::read(store, &chain.tenant).await?.at;
        oldest = [oldest, at].into_iter().flatten().min();
    }
    Ok(oldest)
}

/// The newest record of a tenant's configuration. It names every key of that time, so older records are not needed.
#[derive(Default)]
struct LastRecorded {
    /// 0 if there is none.
    seq: u64,
    at: Option<Timestamp>,
    keys: KeyDigests,
}

impl LastRecorded {
    async fn read(store: &dyn Store, tenant: &Tenant) -> Result<Self, StoreError> {
        let mut last: Option<SealedRecord> = None;
        for action in [
            AuditAction::ConfigurationLoaded,
            AuditAction::ConfigurationReloaded,
            AuditAction::ConfigurationRestated,
        ] {
            let filter = AuditFilter { action: Some(action), ..AuditFilter::default() };
            let mut after = last.as_ref().map_or(0, |last| last.seq);
            while let Some(newest) = store.audit(tenant, &filter, after, AUDIT_RECORDS_MAX).await?.pop() {
                after = newest.seq;
                last = Some(newest);
            }
        }
        Ok(last
            .map(|last| Self { seq: last.seq, at: time_of(&last), keys: keys_in(&last) })
            .unwrap_or_default())
    }
}

fn time_of(record: &SealedRecord) -> Option<Timestamp> {
    let at: jiff::Timestamp = record.text("at").ok()?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

fn keys_in(record: &SealedRecord) -> KeyDigests {
    let content: Value = serde_json::from_str(&record.body).unwrap_or_default();
    let keys = content["detail"]["keys"].as_array().into_iter().flatten();
    let key = |key: &Value| {
        let (digest, name) = key.as_str()?.split_once(' ')?;
        Some((name.to_owned(), serde_json::from_value(digest.into()).ok()?))
    };
    keys.filter_map(key).collect()
}
