//! A sample of refused requests for the audit record: counted in memory, and written once a minute, so that no request
//! waits for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::http::Method;
use axum::response::Response;
use engine::store::{Store, StoreError, Tenant};
use machine::audit::{Actor, AuditAction, AuditEntry};
use machine::id::Principal;

use crate::error::Code;
use crate::setup::ANONYMOUS;

/// Kinds of refusals of one tenant that are counted apart until the next write. Others are counted together.
const KINDS_MAX: usize = 20;

/// Who was refused. A request without a valid key belongs to no tenant; it is in the record of the default one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefusedCaller {
    pub(crate) tenant: Tenant,
    pub(crate) principal: String,
}

impl Default for RefusedCaller {
    fn default() -> Self {
        Self { tenant: Tenant::default(), principal: ANONYMOUS.to_owned() }
    }
}

impl RefusedCaller {
    pub(crate) fn new(tenant: &Tenant, principal: &Principal) -> Self {
        Self { tenant: tenant.clone(), principal: principal.as_str().to_owned() }
    }

    /// The response to this caller, which may be a refusal.
    pub(crate) fn mark(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Refusal {
    principal: String,
    code: Code,
    /// The method and the pattern of the path; empty if several are counted together.
    route: String,
}

/// What was refused since the last write.
#[derive(Default)]
pub(crate) struct RefusedRequests(Mutex<BTreeMap<Tenant, BTreeMap<Refusal, u64>>>);

impl RefusedRequests {
    /// Counts a refusal, if it is one of access.
    pub(crate) fn note(&self, caller: Option<&RefusedCaller>, code: Code, method: &Method, route: &str) {
        if !is_of_access(code) {
            return;
        }
        let RefusedCaller { tenant, principal } = caller.cloned().unwrap_or_default();
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = tenants.entry(tenant).or_default();
        let mut refusal = Refusal { principal, code, route: format!("{method} {route}") };
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&refusal) {
            refusal = Refusal { principal: ANONYMOUS.to_owned(), code, route: String::new() };
        }
        *kinds.entry(refusal).or_default() += 1;
    }

    /// Writes what was counted. What cannot be written is dropped: it is a sample.
    pub(crate) async fn write(&self, store: &dyn Store) -> Result<(), StoreError> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (tenant, kinds) in counted {
            for (Refusal { principal, code, route }, count) in kinds {
                let actor = Actor::from(principal.as_str());
                let entry = AuditEntry::new(store.now(), AuditAction::RequestRefused, actor)
                    .with("code", code.as_str())
                    .with("count", count)
                    .with_text("route", Some(route.as_str()).filter(|route| !route.is_empty()));
                store.record_audit(&tenant, &entry).await?;
            }
        }
        Ok(())
    }
}

fn is_of_access(code: Code) -> bool {
    [Code::Unauthorized, Code::Forbidden, Code::OriginRefused].contains(&code)
}
