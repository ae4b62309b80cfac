//! `[auth]`: who may call, as whom, and what they may do.

use engine::store::Tenant;
use machine::id::Principal;

use super::table::{Entry, Table};

/// Present, it has at least one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Auth {
    pub(in crate::cli) keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Key {
    /// The principal in the audit trail.
    pub(in crate::cli) name: Principal,
    /// Of the bearer token, which is stored nowhere.
    pub(in crate::cli) sha256: [u8; 32],
    pub(in crate::cli) tenant: Tenant,
    pub(in crate::cli) roles: Vec<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Role {
    Run,
    Approve,
    Admin,
}

impl Role {
    const ALL: [(&'static str, Self); 3] =
        [("run", Self::Run), ("approve", Self::Approve), ("admin", Self::Admin)];

    pub(in crate::cli) const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }
}

/// Whom the audit trail names where nobody had a key: a key of this name could not be told from them.
const RESERVED: [&str; 2] = ["anonymous", "system"];
/// And where a tool reported with its callback.
const RESERVED_PREFIX: &str = "tool:";

impl Auth {
    pub(super) fn read(entry: &Entry<'_>) -> Option<Self> {
        let mut table = entry.table("a table [auth]")?;
        let place = table.place.clone();
        let items = table.take("keys").map(|entry| entry.items("[[auth.keys]] tables"));
        table.finish();
        let items = match items {
            // Something else stands there, which was said.
            Some(None) => return None,
            Some(Some(items)) => items,
            None => Vec::new(),
        };
        if items.is_empty() {
            return place.refuse(
                "there is no key, so nobody could call; add [[auth.keys]], or remove [auth] to be open on this machine",
            );
        }
        let mut keys: Vec<Key> = Vec::new();
        for item in items {
            let Some(key) = item.table("a table [[auth.keys]]").and_then(read_key) else { continue };
            if keys.iter().any(|other| other.sha256 == key.sha256) {
                item.place.fault("another key has the same sha256; give each key a token of its own");
            }
            keys.push(key);
        }
        Some(Self { keys })
    }
}

fn read_key(mut table: Table<'_>) -> Option<Key> {
    let name = table.needed("name", "who it is, for the audit trail").and_then(|entry| {
        let name = entry.nonempty("who it is, for the audit trail")?;
        if RESERVED.contains(&name) || name.starts_with(RESERVED_PREFIX) {
            return entry.place.refuse(format!("{name:?} means somebody without a key; choose another name"));
        }
        Some(Principal::from(name))
    });
    let sha256 = table.needed("sha256", DIGEST).and_then(|entry| digest(&entry));
    let tenant = match table.take("tenant") {
        Some(entry) => entry.nonempty("the name of a tenant").map(Tenant::from),
        None => Some(Tenant::default()),
    };
    let roles = table.needed("roles", ROLES).and_then(|entry| {
        let items = entry.items(ROLES)?;
        if items.is_empty() {
            return entry.place.refuse(format!("a key without a role may do nothing; write {ROLES}"));
        }
        items.iter().map(|item| item.choice(&Role::ALL)).collect::<Option<Vec<Role>>>()
    });
    table.finish();
    Some(Key { name: name?, sha256: sha256?, tenant: tenant?, roles: roles? })
}

const DIGEST: &str = "the SHA-256 of the bearer token, 64 hexadecimal digits";
const ROLES: &str = "a list of run, approve, admin";

fn digest(entry: &Entry<'_>) -> Option<[u8; 32]> {
    let text = entry.text(DIGEST)?;
    let mut bytes = [0_u8; 32];
    let digits = text.as_bytes();
    let fits = digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit);
    if !fits {
        // The text may be the token itself, so it is not repeated.
        return entry.place.refuse(format!("this is no such digest; write {DIGEST}"));
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    Some(bytes)
}
