//! `[auth]`: the API keys, and the principal, tenant and roles of each.

use std::collections::{BTreeMap, BTreeSet};

use engine::store::Tenant;
use holdpoint_http::Role;
use machine::id::{AgentName, Principal};

use super::table::{Entry, Table};
use super::tenancy;

/// Has at least one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Auth {
    pub(in crate::cli) keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Key {
    /// The principal in the audit trail.
    pub(in crate::cli) name: Principal,
    /// SHA-256 of the bearer token. The token itself is stored nowhere.
    pub(in crate::cli) sha256: [u8; 32],
    pub(in crate::cli) tenant: Tenant,
    pub(in crate::cli) roles: Vec<Role>,
    /// None: every agent that the tenant may use.
    pub(in crate::cli) agents: Option<BTreeSet<AgentName>>,
    /// Whether its requests may name the person for whom they are sent.
    pub(in crate::cli) acts_for: bool,
}

const ROLE_WORDS: [(&str, Role); 4] =
    [("run", Role::Run), ("approve", Role::Approve), ("admin", Role::Admin), ("operator", Role::Operator)];

/// The principals that the audit trail uses for callers without a key. A key with such a name would be
/// indistinguishable.
const RESERVED: [&str; 2] = ["anonymous", "system"];
/// The prefix that the audit trail uses when a tool reports through its callback.
const RESERVED_PREFIX: &str = "tool:";

impl Auth {
    /// Whether its keys belong to more than one tenant.
    pub(in crate::cli) fn has_several_tenants(&self) -> bool {
        self.keys.iter().map(|key| &key.tenant).collect::<BTreeSet<_>>().len() > 1
    }

    /// `agents` are the names in the file. `tenants` has the tenants of each agent that is not open to all.
    pub(super) fn read(
        entry: &Entry<'_>,
        agents: &BTreeSet<String>,
        tenants: &BTreeMap<AgentName, BTreeSet<Tenant>>,
    ) -> Option<Self> {
        let mut table = entry.table("a table [auth]")?;
        let location = table.location.clone();
        let items = table.take("keys").map(|entry| entry.items("[[auth.keys]] tables"));
        table.finish();
        let items = match items {
            // `keys` has another type, which has already been reported.
            Some(None) => return None,
            Some(Some(items)) => items,
            None => Vec::new(),
        };
        if items.is_empty() {
            return location.refuse(
                "there is no key, so no client could call; add [[auth.keys]], or remove [auth] to be open on this machine",
            );
        }
        let mut keys: Vec<Key> = Vec::new();
        for item in items {
            let Some(key) =
                item.table("a table [[auth.keys]]").and_then(|table| read_key(table, agents, tenants))
            else {
                continue;
            };
            if keys.iter().any(|other| other.sha256 == key.sha256) {
                item.location.fault("another key has the same sha256; give each key a token of its own");
            }
            if keys.iter().any(|other| other.name == key.name && other.tenant == key.tenant) {
                item.location.fault(format!(
                    "another key of the tenant {} has the name {:?}, so the audit trail could not say who acted; give each key a \
                     name of its own",
                    key.tenant,
                    key.name.as_str()
                ));
            }
            keys.push(key);
        }
        if keys.iter().all(|key| !key.roles.contains(&Role::Operator)) {
            location.warn(
                "no key has the role operator, so POST /v1/admin/reload and GET /metrics are refused to every key (the role \
                 admin does not include them); add the role to the key of your monitoring",
            );
        }
        Some(Self { keys })
    }
}

fn read_key(
    mut table: Table<'_>,
    agents: &BTreeSet<String>,
    tenants: &BTreeMap<AgentName, BTreeSet<Tenant>>,
) -> Option<Key> {
    let name = table.require("name", "who it is, for the audit trail").and_then(|entry| {
        let name = entry.nonempty("who it is, for the audit trail")?;
        if RESERVED.contains(&name) || name.starts_with(RESERVED_PREFIX) {
            return entry
                .location
                .refuse(format!("{name:?} means a client without a key; choose another name"));
        }
        if name.chars().any(char::is_control) {
            return entry.location.refuse(format!("{name:?} has a control character; choose another name"));
        }
        Some(Principal::from(name))
    });
    let sha256 = table.require("sha256", DIGEST).and_then(|entry| digest(&entry));
    let tenant = match table.take("tenant") {
        Some(entry) => entry.nonempty("the name of a tenant").map(Tenant::from),
        None => Some(Tenant::default()),
    };
    let roles = table.require("roles", ROLES).and_then(|entry| {
        let items = entry.items(ROLES)?;
        if items.is_empty() {
            return entry.location.refuse(format!("a key without a role may do nothing; write {ROLES}"));
        }
        items.iter().map(|item| item.choice(&ROLE_WORDS)).collect::<Option<Vec<Role>>>()
    });
    let agents =
        table.take("agents").map(|entry| tenancy::key_agents(&entry, tenant.as_ref(), agents, tenants));
    let acts_for = table.take("acts_for").and_then(|entry| entry.boolean()).unwrap_or(false);
    table.finish();
    // An invalid list must not turn into "every agent".
    let agents = match agents {
        Some(agents) => Some(agents?),
        None => None,
    };
    Some(Key { name: name?, sha256: sha256?, tenant: tenant?, roles: roles?, agents, acts_for })
}

const DIGEST: &str = "the SHA-256 of the bearer token, 64 hexadecimal digits";
const ROLES: &str = "a list of run, approve, admin, operator";

fn digest(entry: &Entry<'_>) -> Option<[u8; 32]> {
    let text = entry.text(DIGEST)?;
    let mut bytes = [0_u8; 32];
    let digits = text.as_bytes();
    let fits = digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit);
    if !fits {
        // The text may be the token itself, so the fault does not repeat it.
        return entry.location.refuse(format!("this is no such digest; write {DIGEST}"));
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    Some(bytes)
}
