//! Images and files in users' messages, in the forms that front ends write, and which of them every provider accepts.

use std::borrow::Cow;

use serde_json::Value;

/// Images of other types are refused by some providers.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// Such as `image/png`. A guess if the part does not name it.
    pub media_type: Cow<'a, str>,
    pub source: Source<'a>,
    pub name: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    Url(&'a str),
    Base64(&'a str),
}

impl<'a> Media<'a> {
    /// `{type, url | data, media_type?, filename?}`, as the AI SDK, AG-UI, OpenAI and Anthropic write it: the address
    /// or the content may be one level deeper, and the names differ.
    #[must_use]
    pub fn from_part(part: &'a Value) -> Option<Self> {
        let kind = part.get("type").and_then(Value::as_str)?;
        let inner = ["source", "image_url", "file", "input_audio"].iter().find_map(|key| part.get(key));
        let text = |names: &[&str]| {
            let places = [Some(part), inner];
            places
                .into_iter()
                .flatten()
                .find_map(|place| names.iter().find_map(|name| place.get(name)?.as_str()))
        };
        let said_type = text(&TYPE_NAMES);
        let is_meant = said_type.is_some() || KINDS.iter().any(|word| kind.contains(word));
        let name = text(&["filename", "name", "title"]);
        let direct = inner.and_then(Value::as_str);
        let whole = direct.or_else(|| text(&["url", "data", "value", "file_data", "image", "uri"]))?;
        let (source, own_type) = if let Some(inline) = whole.strip_prefix("data:") {
            let (head, data) = inline.split_once(',')?;
            (Source::Base64(data), Some(head.strip_suffix(";base64")?).filter(|own| !own.is_empty()))
        } else if whole.starts_with("http://") || whole.starts_with("https://") {
            (Source::Url(whole), None)
        } else if is_meant && looks_like_base64(whole) {
            (Source::Base64(whole), None)
        } else {
            return None;
        };
        let media_type = match own_type.or(said_type) {
            Some(known) => Cow::Borrowed(known),
            None if kind.contains("image") => Cow::Borrowed("image/png"),
            None => Cow::Borrowed("application/octet-stream"),
        };
        Some(Self { media_type, source, name })
    }

    #[must_use]
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    #[must_use]
    pub fn is_pdf(&self) -> bool {
        self.media_type == "application/pdf"
    }

    /// A data URL with the content, or the address.
    #[must_use]
    pub fn url(&self) -> String {
        match self.source {
            Source::Url(url) => url.to_owned(),
            Source::Base64(data) => format!("data:{};base64,{data}", self.media_type),
        }
    }

    #[must_use]
    pub fn file_name(&self) -> &str {
        self.name.unwrap_or("file")
    }

    /// What the model reads in place of something that its provider does not accept. A message that cannot be sent
    /// would make every later run of its thread fail.
    #[must_use]
    pub fn placeholder(&self) -> String {
        format!("[{} ({}) is left out: this model does not take it]", self.file_name(), self.media_type)
    }
}

/// Words in the `type` of a part that holds something other than text. In any other part, a text is not taken for
/// base64.
const KINDS: [&str; 6] = ["image", "file", "audio", "video", "document", "binary"];
const TYPE_NAMES: [&str; 4] = ["media_type", "mediaType", "mime_type", "mimeType"];

/// Why a provider would refuse a part of a message, now and in every later run of its thread.
pub(crate) fn fault(part: &Value) -> Option<String> {
    if part.get("text").is_some_and(Value::is_string) {
        return None;
    }
    let Some(media) = Media::from_part(part) else {
        let is_meant = TYPE_NAMES.iter().any(|name| part.get(name).is_some());
        let has_data = part.get("data").is_some_and(Value::is_string);
        return (is_meant && has_data).then(|| NO_BASE64.into());
    };
    if media.is_image() && !IMAGE_TYPES.contains(&&*media.media_type) {
        let known = IMAGE_TYPES.join(", ");
        return Some(format!(
            "its `media_type` is {}, and not every model takes that; send {known}",
            media.media_type
        ));
    }
    match media.source {
        Source::Base64(data) if !is_base64(data) => Some(NO_BASE64.into()),
        Source::Base64(_) | Source::Url(_) => None,
    }
}

const NO_BASE64: &str =
    "its `data` is not base64; write it with A-Z, a-z, 0-9, + and /, and fill it up with =";

fn looks_like_base64(text: &str) -> bool {
    let alphabet =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    !text.is_empty() && text.bytes().all(alphabet)
}

/// As the strictest decoder requires: standard alphabet, padded, and with unused bits zero.
fn is_base64(text: &str) -> bool {
    let body = text.strip_suffix('=').map_or(text, |rest| rest.strip_suffix('=').unwrap_or(rest));
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let unread_bits = match text.len() - body.len() {
        0 => 0,
        1 => 0b11,
        _ => 0b1111,
    };
    let last = body.bytes().next_back().and_then(value);
    text.len().is_multiple_of(4)
        && body.bytes().all(|byte| value(byte).is_some())
        && last.is_some_and(|last| last & unread_bits == 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base64_is_what_a_strict_reader_takes() {
        for good in ["aGk=", "aA==", "aGkh", "+/+/", "AAAA"] {
            assert!(is_base64(good), "{good}");
        }
        for bad in
            ["", "a", "aGk", "aA=", "aB==", "aGl=", "====", "=", "aGk-", "_Gk=", "aG k", "aGk=aGk=", "aGk\n"]
        {
            assert!(!is_base64(bad), "{bad}");
        }
    }

    #[test]
    fn what_a_provider_would_refuse_is_found_in_every_form() {
        let image = |kind: &str, data: &str| json!({"type": "image", "media_type": kind, "data": data});
        for good in [
            image("image/png", "aGk="),
            image("image/webp", "aGk="),
            json!({"type": "image", "data": "aGk="}),
            json!({"type": "image", "url": "https://a.example/b"}),
            json!({"type": "image_url", "image_url": {"url": "data:image/gif;base64,aGk="}}),
            json!({"type": "file", "media_type": "application/zip", "data": "aGk="}),
            json!({"type": "text", "text": "hi"}),
            json!({"type": "text", "text": "hi", "media_type": "image/heic", "data": "abc"}),
            json!({"type": "data-chart", "data": "of an unknown kind"}),
            json!({"type": "mood", "value": "fine!"}),
            json!({"type": "mood", "value": "glad"}),
        ] {
            assert_eq!(fault(&good), None, "{good}");
        }
        for bad in [
            image("image/heic", "aGk="),
            image("image/PNG", "aGk="),
            image("image/png", "abc"),
            image("image/png", "a-_="),
            image("image/png", "no base64 at all"),
            json!({"type": "image", "url": "https://a.example/b", "media_type": "image/tiff"}),
            json!({"type": "file", "url": "data:image/svg+xml;base64,aGk="}),
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,abc"}}),
            json!({"type": "file", "mediaType": "application/pdf", "data": "abc"}),
        ] {
            assert!(fault(&bad).is_some(), "{bad}");
        }
    }
}
