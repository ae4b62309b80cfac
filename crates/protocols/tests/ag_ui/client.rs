//! What a client has after a stream: the rules of the reference client's reducer, which appends what is streamed twice.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Client {
    pub(crate) messages: Vec<Value>,
    pub(crate) state: Value,
    pub(crate) interrupts: Vec<Value>,
    /// The last terminal event.
    pub(crate) terminal: Option<Value>,
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn append(target: &mut Value, delta: &str) {
    *target = json!(format!("{}{delta}", target.as_str().unwrap_or_default()));
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { state: json!({}), ..Self::default() }
    }

    pub(crate) fn with_user_message(id: &str, content: &str) -> Self {
        let mut client = Self::new();
        client.messages.push(json!({"id": id, "role": "user", "content": content}));
        client
    }

    pub(crate) fn apply_all(&mut self, events: &[Value]) {
        for event in events {
            self.apply(event);
        }
    }

    pub(crate) fn apply(&mut self, event: &Value) {
        match text(event, "type") {
            "TEXT_MESSAGE_START" => self.start_message(event, json!({"content": ""})),
            "REASONING_MESSAGE_START" => self.start_message(event, json!({"content": ""})),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let message = self.message(text(event, "messageId"));
                append(&mut message["content"], text(event, "delta"));
            }
            "TOOL_CALL_START" => self.start_call(event),
            "TOOL_CALL_ARGS" => {
                let delta = text(event, "delta").to_owned();
                append(&mut self.call(text(event, "toolCallId"))["function"]["arguments"], &delta);
            }
            "TOOL_CALL_RESULT" => self.add_result(event),
            "STATE_SNAPSHOT" => self.state = event["snapshot"].clone(),
            "STATE_DELTA" => self.patch_state(&event["delta"]),
            "MESSAGES_SNAPSHOT" => self.reconcile(event["messages"].as_array().unwrap()),
            "RUN_FINISHED" => {
                self.interrupts = event["outcome"]["interrupts"].as_array().cloned().unwrap_or_default();
                self.terminal = Some(event.clone());
            }
            // Interrupts survive an error.
            "RUN_ERROR" => self.terminal = Some(event.clone()),
            _ => {}
        }
    }

    fn message(&mut self, id: &str) -> &mut Value {
        self.messages
            .iter_mut()
            .find(|message| message["id"] == id)
            .unwrap_or_else(|| panic!("no message {id}"))
    }

    fn start_message(&mut self, event: &Value, mut message: Value) {
        let id = text(event, "messageId");
        if self.messages.iter().all(|known| known["id"] != id) {
            message["id"] = json!(id);
            message["role"] = event["role"].clone();
            self.messages.push(message);
        }
    }

    fn call(&mut self, id: &str) -> &mut Value {
        let calls = self.messages.iter_mut().filter_map(|message| message.get_mut("toolCalls"));
        let mut calls = calls.filter_map(Value::as_array_mut).flatten();
        calls.find(|call| call["id"] == id).unwrap_or_else(|| panic!("no call {id}"))
    }

    fn start_call(&mut self, event: &Value) {
        let (id, parent) = (text(event, "toolCallId"), text(event, "parentMessageId"));
        let function = json!({"name": event["toolCallName"], "arguments": ""});
        let call = json!({"id": id, "type": "function", "function": function});
        if self.messages.iter().all(|message| message["id"] != parent) {
            self.messages.push(json!({"id": parent, "role": "assistant"}));
        }
        let owner = self.message(parent).as_object_mut().unwrap();
        let calls = owner.entry("toolCalls").or_insert_with(|| json!([]));
        calls.as_array_mut().unwrap().push(call);
    }

    /// After the message that owns the call and its results. A second result is a second message.
    fn add_result(&mut self, event: &Value) {
        let call_id = text(event, "toolCallId");
        let result = json!({
            "id": event["messageId"], "role": "tool", "toolCallId": call_id, "content": event["content"],
        });
        let owns = |message: &Value| {
            message["toolCalls"]
                .as_array()
                .is_some_and(|calls| calls.iter().any(|call| call["id"] == call_id))
        };
        let Some(owner) = self.messages.iter().position(owns) else {
            self.messages.push(result);
            return;
        };
        let results =
            self.messages[owner + 1..].iter().take_while(|message| message["role"] == "tool").count();
        self.messages.insert(owner + 1 + results, result);
    }

    /// Keeps positions, appends what is new, drops what is missing, and keeps reasoning if the snapshot has none.
    fn reconcile(&mut self, snapshot: &[Value]) {
        let has_reasoning = snapshot.iter().any(|message| message["role"] == "reasoning");
        let kept = |message: &Value| message["role"] == "reasoning" && !has_reasoning;
        let mut known = BTreeSet::new();
        let mut messages = Vec::new();
        for message in &self.messages {
            let restated = snapshot.iter().find(|restated| restated["id"] == message["id"]);
            if kept(message) || restated.is_some() {
                known.insert(text(message, "id").to_owned());
                messages.push(if kept(message) { message.clone() } else { restated.unwrap().clone() });
            }
        }
        let new = snapshot.iter().filter(|message| !known.contains(text(message, "id")));
        messages.extend(new.cloned());
        self.messages = messages;
    }

    /// The operation that Holdpoint records.
    fn patch_state(&mut self, patch: &Value) {
        for operation in patch.as_array().unwrap() {
            assert_eq!(operation["op"], "add");
            let key = text(operation, "path").strip_prefix('/').unwrap().to_owned();
            let members: &mut Map<String, Value> = self.state.as_object_mut().unwrap();
            members.insert(key.replace("~1", "/").replace("~0", "~"), operation["value"].clone());
        }
    }

    /// The body of the client's next request, which carries its whole history.
    pub(crate) fn input(&self, run_id: &str, version: Option<&str>) -> Value {
        let mut input = json!({
            "threadId": "thr_1", "runId": run_id, "state": self.state, "messages": self.messages,
            "tools": [], "context": [], "forwardedProps": {},
        });
        if let Some(version) = version {
            input["protocolVersion"] = json!(version);
        }
        input
    }

    /// Without reasoning, which the log may not keep.
    pub(crate) fn conversation(&self) -> Vec<Value> {
        self.messages.iter().filter(|message| message["role"] != "reasoning").cloned().collect()
    }
}
