//! Records which configuration is in force, and which keys were added, changed and removed since the last record.

use std::collections::{BTreeMap, BTreeSet};

use engine::store::{AUDIT_RECORDS_MAX, AuditFilter, Store, StoreError, Tenant};
use machine::audit::{Actor, AuditAction, AuditEntry, SealedRecord};
use machine::id::Digest;

use crate::server::Server;
use crate::setup::{AgentScope, Auth, Key, Role};

/// Names of keys, each with the digest of what it is and may do.
type KeyDigests = BTreeMap<String, Digest>;

/// Every tenant that has keys, or a record already, gets a record of the configuration.
pub(crate) async fn record_configuration(
    server: &Server,
    action: AuditAction,
    file: Option<Digest>,
    actor: &Actor,
) -> Result<(), StoreError> {
    let store = server.engine.store();
    let mut tenants: BTreeSet<Tenant> = server.approvers.tenants();
    tenants.extend(store.audit_chains().await?.into_iter().map(|chain| chain.tenant));
    for tenant in tenants {
        let digest = file.map(|digest| digest.to_string());
        let entry = AuditEntry::new(store.now(), action, actor.clone());
        store.record_audit(&tenant, &entry.with_text("sha256", digest.as_deref())).await?;
        record_keys(server, &tenant, actor).await?;
    }
    Ok(())
}

async fn record_keys(server: &Server, tenant: &Tenant, actor: &Actor) -> Result<(), StoreError> {
    let store = server.engine.store();
    let known = recorded_keys(&**store, tenant).await?;
    let keys = server.approvers.auth();
    let found = key_digests(&keys, tenant);
    let mut changes = Vec::new();
    for (name, digest) in &found {
        match known.get(name) {
            Some(before) if before == digest => {}
            Some(_) => changes.push((AuditAction::KeyChanged, name, Some(digest))),
            None => changes.push((AuditAction::KeyAdded, name, Some(digest))),
        }
    }
    let removed = known.keys().filter(|name| !found.contains_key(*name));
    changes.extend(removed.map(|name| (AuditAction::KeyRemoved, name, None)));
    for (action, name, digest) in changes {
        let roles = roles_of(&keys, tenant, name);
        let digest = digest.map(Digest::to_string);
        let entry = AuditEntry::new(store.now(), action, actor.clone())
            .with("key", name.as_str())
            .with_text("key_digest", digest.as_deref())
            .with("roles", roles);
        store.record_audit(tenant, &entry).await?;
    }
    Ok(())
}

fn keys_of<'k>(auth: &'k Auth, tenant: &Tenant) -> impl Iterator<Item = &'k Key> {
    let keys: &[Key] = match auth {
        Auth::Open { .. } => &[],
        Auth::Keys(keys) => keys,
    };
    keys.iter().filter(move |key| key.tenant == *tenant)
}

fn roles_of(auth: &Auth, tenant: &Tenant, name: &str) -> Vec<&'static str> {
    let all = [Role::Run, Role::Approve, Role::Admin, Role::Operator];
    let Some(key) = keys_of(auth, tenant).find(|key| key.name == name) else { return Vec::new() };
    let has = |role: &Role| match role {
        Role::Run => key.roles.run,
        Role::Approve => key.roles.approve,
        Role::Admin => key.roles.admin,
        Role::Operator => key.roles.operator,
    };
    all.into_iter().filter(has).map(Role::as_str).collect()
}

/// The token itself cannot be found from such a digest, and neither can the token's own digest.
fn key_digests(auth: &Auth, tenant: &Tenant) -> KeyDigests {
    let digest = |key: &Key| {
        let agents: Vec<&str> = match &key.agents {
            AgentScope::All => vec!["*"],
            AgentScope::Only(agents) => agents.iter().map(machine::id::AgentName::as_str).collect(),
        };
        // Nothing is added for a key that does not act for others, so its earlier records still match.
        let acts_for = if key.acts_for { " acts_for" } else { "" };
        let about = format!("{} {:?} {agents:?}{acts_for}", Digest(key.sha256), key.roles);
        Digest::sha256(about.as_bytes())
    };
    keys_of(auth, tenant).map(|key| (key.name.clone(), digest(key))).collect()
}

/// The keys as the audit record last named them.
async fn recorded_keys(store: &dyn Store, tenant: &Tenant) -> Result<KeyDigests, StoreError> {
    while store.seal_audit().await? > 0 {}
    let mut records: Vec<(AuditAction, SealedRecord)> = Vec::new();
    for action in [AuditAction::KeyAdded, AuditAction::KeyChanged, AuditAction::KeyRemoved] {
        let filter = AuditFilter { action: Some(action), ..AuditFilter::default() };
        let mut after = 0;
        loop {
            let page = store.audit(tenant, &filter, after, AUDIT_RECORDS_MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            records.extend(page.into_iter().map(|record| (action, record)));
        }
    }
    records.sort_by_key(|(_, record)| record.seq);
    let mut keys = KeyDigests::new();
    for (action, record) in records {
        let Some((name, digest)) = key_of(&record) else { continue };
        match (action == AuditAction::KeyRemoved, digest) {
            (false, Some(digest)) => drop(keys.insert(name, digest)),
            (true, _) | (false, None) => drop(keys.remove(&name)),
        }
    }
    Ok(keys)
}

fn key_of(record: &SealedRecord) -> Option<(String, Option<Digest>)> {
    let content: serde_json::Value = serde_json::from_str(&record.body).ok()?;
    let detail = content.get("detail")?;
    let digest = detail.get("key_digest").and_then(|digest| serde_json::from_value(digest.clone()).ok());
    Some((detail.get("key")?.as_str()?.to_owned(), digest))
}
