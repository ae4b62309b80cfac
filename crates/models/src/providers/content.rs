//! User content: text, images and files, in the forms that front ends send.

use std::borrow::Cow;

pub(super) use engine::media::{Media, Source};
use serde_json::{Value, json};

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContentPart<'a> {
    Text(Cow<'a, str>),
    Media(Media<'a>),
}

/// The parts in order. A part of unknown form is sent as JSON text.
pub(super) fn parts(content: &Value) -> Vec<ContentPart<'_>> {
    if let Some(text) = content.as_str() {
        return vec![ContentPart::Text(Cow::Borrowed(text))];
    }
    match content.as_array() {
        Some(items) => items.iter().map(part).collect(),
        None => vec![part(content)],
    }
}

/// Content as OpenAI's APIs take it: plain text if possible, because not every server accepts parts. `text_type` is the
/// type of a part with text.
pub(super) fn text_or_parts(
    content: &Value,
    text_type: &str,
    media_part: impl Fn(&Media<'_>) -> Value,
) -> Value {
    let parts = parts(content);
    if let Some(text) = plain_text(&parts) {
        return json!(text);
    }
    let encoded = parts.iter().map(|part| match part {
        ContentPart::Text(text) => json!({"type": text_type, "text": text}),
        ContentPart::Media(media) => media_part(media),
    });
    encoded.collect()
}

/// The whole content as one text, if it contains nothing else.
fn plain_text<'a>(parts: &[ContentPart<'a>]) -> Option<Cow<'a, str>> {
    if let [ContentPart::Text(text)] = parts {
        return Some(text.clone());
    }
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            ContentPart::Text(text) => Some(&**text),
            ContentPart::Media(_) => None,
        })
        .collect();
    Some(Cow::Owned(texts?.join("\n")))
}

fn part(part: &Value) -> ContentPart<'_> {
    if let Some(text) = part.as_str() {
        return ContentPart::Text(Cow::Borrowed(text));
    }
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return ContentPart::Text(Cow::Borrowed(text));
    }
    match Media::from_part(part) {
        Some(media) => ContentPart::Media(media),
        None => ContentPart::Text(Cow::Owned(part.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_is_found_in_every_form_in_which_front_ends_write_it() {
        let inline = Source::Base64("aGk=");
        let cases = [
            (json!({"type": "image", "media_type": "image/jpeg", "data": "aGk="}), "image/jpeg", inline),
            (
                json!({"type": "file", "mediaType": "image/jpeg", "url": "data:image/jpeg;base64,aGk="}),
                "image/jpeg",
                inline,
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGk="}}),
                "image/jpeg",
                inline,
            ),
            (
                json!({"type": "input_image", "image_url": "data:image/jpeg;base64,aGk="}),
                "image/jpeg",
                inline,
            ),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}}),
                "image/jpeg",
                inline,
            ),
            (json!({"type": "binary", "mimeType": "image/jpeg", "data": "aGk="}), "image/jpeg", inline),
            (
                json!({"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/jpeg"}}),
                "image/jpeg",
                inline,
            ),
            (
                json!({"type": "image", "url": "https://a.example/b"}),
                "image/png",
                Source::Url("https://a.example/b"),
            ),
        ];
        for (content, media_type, source) in &cases {
            let expected = Media { media_type: Cow::Borrowed(*media_type), source: *source, name: None };
            assert_eq!(parts(content), [ContentPart::Media(expected)], "{content}");
        }
    }

    #[test]
    fn a_file_keeps_its_name() {
        let content = json!([{"type": "text", "text": "Read this."},
            {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "data:application/pdf;base64,aGk="}]);
        let Some(ContentPart::Media(file)) = parts(&content).pop() else { panic!("no file in {content}") };
        assert!(file.is_pdf());
        assert_eq!(file.file_name(), "a.pdf");
        assert_eq!(file.url(), "data:application/pdf;base64,aGk=");
        assert_eq!(file.placeholder(), "[a.pdf (application/pdf) is left out: this model does not take it]");
    }

    #[test]
    fn content_of_unknown_form_is_sent_as_json() {
        for content in
            [json!({"type": "chart", "points": [1, 2]}), json!({"type": "image", "url": "ftp:x y"}), json!(5)]
        {
            assert_eq!(parts(&content), [ContentPart::Text(Cow::Owned(content.to_string()))]);
        }
        let texts = json!(["a", {"type": "text", "text": "b"}]);
        assert_eq!(plain_text(&parts(&texts)).as_deref(), Some("a\nb"));
    }
}
