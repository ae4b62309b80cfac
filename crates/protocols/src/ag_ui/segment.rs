//! What an encoder has to know beside the feed: which part of the run is new to the client, and what the client has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::event::AgUiDialect;
use super::message::AgUiMessage;
use super::request::AgUiRequest;

/// One protocol run: a segment of one Holdpoint run.
///
/// A run that the request started has `new_after` 0. To continue or to replay a run, read the sequence number of its
/// newest event *before* submitting the client's decisions, and set `new_after` to it: everything up to it is sent as
/// snapshots, everything after it as it happens.
#[derive(Clone, Debug)]
pub struct AgUiSegment {
    pub dialect: AgUiDialect,
    pub thread_id: String,
    /// The client's id of the protocol run.
    pub run_id: String,
    /// The sequence number up to which the run is in the past. 0: nothing is.
    pub new_after: u64,
    /// The messages of the thread before this run.
    pub earlier: Vec<AgUiMessage>,
    /// Ids of the messages that the client has.
    pub client_message_ids: BTreeSet<String>,
    /// The ids and texts of the tool messages that the client has, by call.
    pub client_results: BTreeMap<String, (String, String)>,
    /// The state that the client has.
    pub client_state: Option<Value>,
    /// The stored state of the run and its thread when the run began. Its keys win over the client's.
    pub stored_state: Map<String, Value>,
    /// Names of the tools that the client offers.
    pub client_tools: BTreeSet<String>,
    /// JSON Schemas of tools' arguments, for editing them. A tool without one takes any object.
    pub tool_schemas: BTreeMap<String, Value>,
    /// Ids of the approvals and suspensions whose answers this request brought and the run accepted. The segment does
    /// not end as long as one of them is unprocessed.
    pub decided: BTreeSet<String>,
}

impl AgUiSegment {
    /// A segment that begins with a run. Fields that the request does not determine are empty.
    #[must_use]
    pub fn for_request(request: &AgUiRequest) -> Self {
        let results = request.tool_results();
        Self {
            dialect: request.dialect,
            thread_id: request.thread_id.clone(),
            run_id: request.run_id.clone(),
            new_after: 0,
            earlier: Vec::new(),
            client_message_ids: request.messages.iter().map(|message| message.id().to_owned()).collect(),
            client_results: results
                .map(|result| (result.call_id.clone(), (result.message_id.clone(), result.text())))
                .collect(),
            client_state: request.state.clone(),
            stored_state: Map::new(),
            client_tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_schemas: BTreeMap::new(),
            decided: BTreeSet::new(),
        }
    }

    /// The state document: the client's, overlaid with what is stored. Echoing the client's keys keeps a snapshot from
    /// deleting them.
    pub(super) fn state_document(&self) -> Value {
        let mut document = self.client_state.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        document.extend(self.stored_state.clone());
        Value::Object(document)
    }

    /// Whether the client has exactly this state. No state is an empty object.
    pub(super) fn client_has_state(&self, document: &Value) -> bool {
        match &self.client_state {
            Some(state) => state == document,
            None => document.as_object().is_some_and(Map::is_empty),
        }
    }

    /// The ids that the client gave to results, by call.
    pub(super) fn client_result_ids(&self) -> BTreeMap<String, String> {
        self.client_results.iter().map(|(call, (id, _))| (call.clone(), id.clone())).collect()
    }
}
