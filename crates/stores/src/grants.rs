//! A grant in the form of its row's columns.

use engine::store::{StoreError, StoreFailure};
use machine::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use machine::id::{AgentName, GrantId, Principal, ToolName};

use crate::columns::digest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantColumns {
    pub(crate) id: String,
    pub(crate) given_by: String,
    /// `None` in a grant for every tool of its thread, like the columns after it.
    pub(crate) tool: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) definition: Option<Vec<u8>>,
    /// A JSON array.
    pub(crate) reasons: Option<String>,
}

impl GrantColumns {
    pub(crate) fn from_grant(grant: &Grant) -> Result<Self, StoreError> {
        let (id, given_by) = (grant.id.to_string(), grant.by.as_str().to_owned());
        Ok(match &grant.covers {
            GrantCoverage::Thread => {
                Self { id, given_by, tool: None, agent: None, definition: None, reasons: None }
            }
            GrantCoverage::Tool(ToolGrant { tool, agent, definition, reasons }) => Self {
                id,
                given_by,
                tool: Some(tool.to_string()),
                agent: agent.as_ref().map(ToString::to_string),
                definition: Some(definition.0.to_vec()),
                reasons: Some(
                    serde_json::to_string(reasons)
                        .map_err(|error| StoreError::Impossible(error.to_string()))?,
                ),
            },
        })
    }

    pub(crate) fn into_grant(self) -> Result<Grant, StoreError> {
        let corrupt =
            |why: String| StoreError::Failed(StoreFailure::Corrupt(format!("grant {}: {why}", self.id)));
        let covers = match (self.tool, self.definition, self.reasons) {
            (None, None, None) => GrantCoverage::Thread,
            (Some(tool), Some(definition), Some(reasons)) => GrantCoverage::Tool(ToolGrant {
                tool: ToolName::from(tool),
                agent: self.agent.map(AgentName::from),
                definition: digest(&definition)?,
                reasons: serde_json::from_str(&reasons).map_err(|error| corrupt(error.to_string()))?,
            }),
            (tool, ..) => {
                return Err(corrupt(format!("it is neither for a tool nor for a thread: {tool:?}")));
            }
        };
        Ok(Grant { id: GrantId::from(self.id), by: Principal::from(self.given_by), covers })
    }

    /// The grant as it takes effect and is shown, and whether its reasons cannot be decoded: then it lifts none of
    /// them, and its calls are held.
    pub(crate) fn into_effective_grant(self) -> Result<(Grant, bool), StoreError> {
        let reasons = self.reasons.as_deref().map(serde_json::from_str::<Vec<HoldReason>>);
        if reasons.is_some_and(|reasons| reasons.is_err()) {
            return Ok((Self { reasons: Some("[]".into()), ..self }.into_grant()?, true));
        }
        Ok((self.into_grant()?, false))
    }

    /// Whether the grant came from an approval, so that a log contains it. Auto-approve is in no log, and a grant from
    /// before grants named their agent cannot be recognized in its log.
    pub(crate) const fn is_logged(&self) -> bool {
        self.tool.is_some() && self.agent.is_some()
    }
}
