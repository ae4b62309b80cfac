//! Maps tool names and call ids to forms that a provider accepts, and back.

use std::collections::BTreeMap;

use engine::model::{AssistantCall, Messages, ModelMessage, ModelRequest};
use machine::json_text::{self, Bounds};
use machine::tool::Arguments;
use serde_json::{Map, Value};

/// All providers accept up to 64 letters, digits, `_` and `-`. Our names may contain a dot, or be longer.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    sent: BTreeMap<String, String>,
    own: BTreeMap<String, String>,
}

const NAME_BYTES_MAX: usize = 64;

impl ToolNames {
    /// For every name in a request. The same request always gives the same names.
    pub(super) fn for_request(request: &ModelRequest) -> Self {
        let mut names = Self::default();
        for tool in &request.tools {
            names.add(tool.name.as_str());
        }
        for call in calls(&request.messages) {
            names.add(call.tool.as_str());
        }
        names
    }

    fn add(&mut self, own: &str) {
        if self.sent.contains_key(own) {
            return;
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let base: String = own.chars().map(|c| if fits(c) { c } else { '_' }).take(NAME_BYTES_MAX).collect();
        let mut sent = base.clone();
        let mut number = 2_u32;
        while self.own.contains_key(&sent) {
            let ending = format!("_{number}");
            sent = base.chars().take(NAME_BYTES_MAX - ending.len()).collect::<String>() + &ending;
            number += 1;
        }
        self.own.insert(sent.clone(), own.to_owned());
        self.sent.insert(own.to_owned(), sent);
    }

    pub(super) fn to_provider<'a>(&'a self, own: &'a str) -> &'a str {
        self.sent.get(own).map_or(own, String::as_str)
    }

    /// A name that was never sent was invented by the model, and is returned unchanged.
    pub(super) fn original<'a>(&'a self, sent: &'a str) -> &'a str {
        self.own.get(sent).map_or(sent, String::as_str)
    }
}

/// Replaces call ids that a provider would refuse, consistently in the call and in its result.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    sent: BTreeMap<String, String>,
}

impl CallIds {
    pub(super) fn for_messages(messages: &Messages, fits: fn(&str) -> bool) -> Self {
        let known: Vec<&str> = calls(messages).map(|call| call.id.as_str()).collect();
        let mut sent = BTreeMap::new();
        let mut number = 0_usize;
        for own in known.iter().filter(|id| !fits(id)) {
            let free = loop {
                number += 1;
                let id = format!("call_{number}");
                if !known.contains(&id.as_str()) {
                    break id;
                }
            };
            sent.insert((*own).to_owned(), free);
        }
        Self { sent }
    }

    pub(super) fn to_provider<'a>(&'a self, own: &'a str) -> &'a str {
        self.sent.get(own).map_or(own, String::as_str)
    }
}

fn calls(messages: &Messages) -> impl Iterator<Item = &AssistantCall> {
    messages.iter().flat_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => calls.as_slice(),
        ModelMessage::User { .. }
        | ModelMessage::Tool { .. }
        | ModelMessage::Note { .. }
        | ModelMessage::Notice { .. } => &[],
    })
}

/// The model's own arguments as an object, the only form that providers accept. Malformed arguments are kept as text;
/// the result of the call says what was wrong with them.
pub(super) fn arguments(call: &AssistantCall) -> Value {
    let garbled = |raw: String| Value::Object(Map::from_iter([("unparsed".to_owned(), Value::String(raw))]));
    match &call.arguments {
        Arguments::Valid { value, .. } if value.is_object() => (**value).clone(),
        Arguments::Valid { value, .. } => garbled(value.to_string()),
        Arguments::Invalid { raw, .. } => match json_text::parse(raw, &Bounds::VALUE) {
            Ok(Value::Object(object)) => Value::Object(object),
            Ok(_) | Err(_) => garbled(raw.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_tools_keep_different_names() {
        let long = "x".repeat(80);
        let longer = format!("{long}y");
        let own = ["a.b", "a_b", "a b", long.as_str(), longer.as_str()];
        let mut names = ToolNames::default();
        own.iter().for_each(|name| names.add(name));
        let sent: Vec<&str> = own.iter().map(|name| names.to_provider(name)).collect();
        assert_eq!(sent[..3], ["a_b", "a_b_2", "a_b_3"]);
        assert_eq!(sent[3], "x".repeat(64));
        assert_eq!(sent[4], format!("{}_2", "x".repeat(62)));
        let back: Vec<&str> = sent.iter().map(|name| names.original(name)).collect();
        assert_eq!(back, own);
        assert_eq!(names.original("invented"), "invented");
    }

    #[test]
    fn a_generated_id_never_collides_with_an_existing_one() {
        let call = |id: &str| AssistantCall {
            id: id.into(),
            tool: "echo".into(),
            arguments: Arguments::Invalid { raw: String::new(), why: String::new() },
        };
        let message = ModelMessage::Assistant {
            id: "msg_1".into(),
            text: String::new(),
            reasoning: None,
            calls: ["call_1", "a~2", "call_3", "b~2"].map(call).to_vec(),
            sealed: None,
        };
        let ids = CallIds::for_messages(&Messages::from_iter([message]), |id| !id.contains('~'));
        let sent = ["call_1", "a~2", "call_3", "b~2"].map(|id| ids.to_provider(id));
        assert_eq!(sent, ["call_1", "call_2", "call_3", "call_4"]);
    }
}
