//! The messages of a run for a client that reloads: the fold of the chunks that were, or would have been, streamed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::encode::ChunkEncoder;
use super::message::{UiMessage, UiPart, UiRole};
use super::reduce::MessageReducer;
use crate::feed::{Body, Item};

/// The user message of a run, if it has one, and the assistant message that shows the run. `items`: all stored events
/// of the run.
///
/// While a run executes, the client resumes its stream, which replays the message from its beginning; early clients
/// append that replay to a message that they already have. For such a run take only the user message.
#[must_use]
pub fn run_messages(items: &[Item], client_tools: BTreeSet<String>) -> Vec<UiMessage> {
    let mut encoder = ChunkEncoder::new(client_tools);
    let mut reducer = MessageReducer::default();
    let (mut messages, mut chunks) = (Vec::new(), Vec::new());
    for item in items {
        messages.extend(user_message(item));
        encoder.push(item, &mut chunks);
        chunks.drain(..).for_each(|chunk| reducer.apply(&chunk));
    }
    encoder.idle(&mut chunks);
    chunks.drain(..).for_each(|chunk| reducer.apply(&chunk));
    let message = reducer.into_message();
    if !message.parts.is_empty() {
        messages.push(message);
    }
    messages
}

/// The user's message, if the item is one.
#[must_use]
pub fn user_message(item: &Item) -> Option<UiMessage> {
    if let Body::UserMessage { id, content } = &item.body {
        return Some(UiMessage {
            id: id.clone(),
            role: UiRole::User,
            metadata: None,
            parts: user_parts(content),
        });
    }
    None
}

/// Content may have come over REST in the form of another vendor. What is neither text nor a file is left out.
fn user_parts(content: &Value) -> Vec<UiPart> {
    match content {
        Value::String(text) => vec![text_part(text)],
        Value::Array(parts) => parts.iter().filter_map(user_part).collect(),
        Value::Object(_) => user_part(content).into_iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn user_part(part: &Value) -> Option<UiPart> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Some(text_part(text));
    }
    // The address or the content can be one level deeper.
    let inner = ["source", "image_url", "file", "input_audio"].iter().find_map(|key| part.get(key));
    let find = |names: &[&str]| {
        let places = [Some(part), inner];
        let mut texts =
            places.into_iter().flatten().flat_map(|place| names.iter().map(|name| place.get(name)));
        texts.find_map(|text| text.and_then(Value::as_str))
    };
    let direct = inner.and_then(Value::as_str);
    let whole = direct.or_else(|| find(&["url", "data", "value", "file_data", "image", "uri"]))?;
    let said = find(&["media_type", "mediaType", "mime_type", "mimeType"]);
    let own = whole.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let guess = if kind.contains("image") { "image/png" } else { "application/octet-stream" };
    let media_type = own.filter(|own| !own.is_empty()).or(said).unwrap_or(guess);
    let is_address = ["data:", "http://", "https://"].iter().any(|scheme| whole.starts_with(scheme));
    let url = if is_address { whole.to_owned() } else { format!("data:{media_type};base64,{whole}") };
    let filename = find(&["filename", "name", "title"]).map(str::to_owned);
    Some(UiPart::File { media_type: media_type.into(), url, filename })
}

fn text_part(text: &str) -> UiPart {
    UiPart::Text { text: text.into(), state: None, discarded: false }
}
