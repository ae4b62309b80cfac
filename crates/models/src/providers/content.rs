//! What a user sent: text, images and files, in the forms in which front ends write them.

use std::borrow::Cow;

use serde_json::Value;

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(Cow<'a, str>),
    Media(Media<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Media<'a> {
    /// Such as `image/png`. A guess where nobody said it.
    pub(super) media_type: Cow<'a, str>,
    pub(super) source: Source<'a>,
    pub(super) name: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    Url(&'a str),
    Base64(&'a str),
}

impl Media<'_> {
    pub(super) fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    pub(super) fn is_pdf(&self) -> bool {
        self.media_type == "application/pdf"
    }

    /// With the content in it, or where it lies.
    pub(super) fn url(&self) -> String {
        match self.source {
            Source::Url(url) => url.to_owned(),
            Source::Base64(data) => format!("data:{};base64,{data}", self.media_type),
        }
    }

    pub(super) fn file_name(&self) -> &str {
        self.name.unwrap_or("file")
    }

    /// What the model reads in place of something that its provider does not take. A message that cannot be sent would
    /// spoil every later run of its thread.
    pub(super) fn left_out(&self) -> String {
        format!("[{} ({}) is left out: this model does not take it]", self.file_name(), self.media_type)
    }
}

/// The parts in their order. What has no known form is sent as the JSON that it is.
pub(super) fn parts(content: &Value) -> Vec<Part<'_>> {
    if let Some(text) = content.as_str() {
        return vec![Part::Text(Cow::Borrowed(text))];
    }
    match content.as_array() {
        Some(items) => items.iter().map(part).collect(),
        None => vec![part(content)],
    }
}

/// All of it as one text, where there is nothing else in it.
pub(super) fn plain_text<'a>(parts: &[Part<'a>]) -> Option<Cow<'a, str>> {
    if let [Part::Text(text)] = parts {
        return Some(text.clone());
    }
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Media(_) => None,
        })
        .collect();
    Some(Cow::Owned(texts?.join("\n")))
}

fn part(part: &Value) -> Part<'_> {
    if let Some(text) = part.as_str() {
        return Part::Text(Cow::Borrowed(text));
    }
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Part::Text(Cow::Borrowed(text));
    }
    match media(part) {
        Some(media) => Part::Media(media),
        None => Part::Text(Cow::Owned(part.to_string())),
    }
}

/// `{type, url | data, media_type?, filename?}`, as the AI SDK, AG-UI, OpenAI and Anthropic write it: the address or the
/// content may stand one level deeper, and the names differ.
fn media(part: &Value) -> Option<Media<'_>> {
    let kind = part.get("type").and_then(Value::as_str)?;
    let inner = ["source", "image_url", "file", "input_audio"].iter().find_map(|key| part.get(key));
    let text = |names: &[&str]| {
        let places = [Some(part), inner];
        places.into_iter().flatten().find_map(|place| names.iter().find_map(|name| place.get(name)?.as_str()))
    };
    let said_type = text(&["media_type", "mediaType", "mime_type", "mimeType"]);
    let name = text(&["filename", "name", "title"]);
    let direct = inner.and_then(Value::as_str);
    let whole = direct.or_else(|| text(&["url", "data", "value", "file_data", "image", "uri"]))?;
    let (source, own_type) = if let Some(inline) = whole.strip_prefix("data:") {
        let (head, data) = inline.split_once(',')?;
        (Source::Base64(data), Some(head.strip_suffix(";base64")?).filter(|own| !own.is_empty()))
    } else if whole.starts_with("http://") || whole.starts_with("https://") {
        (Source::Url(whole), None)
    } else if is_base64(whole) {
        (Source::Base64(whole), None)
    } else {
        return None;
    };
    let media_type = match own_type.or(said_type) {
        Some(known) => Cow::Borrowed(known),
        None if kind.contains("image") => Cow::Borrowed("image/png"),
        None => Cow::Borrowed("application/octet-stream"),
    };
    Some(Media { media_type, source, name })
}

fn is_base64(text: &str) -> bool {
    let alphabet =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    !text.is_empty() && text.bytes().all(alphabet)
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
            assert_eq!(parts(content), [Part::Media(expected)], "{content}");
        }
    }

    #[test]
    fn a_file_keeps_its_name() {
        let content = json!([{"type": "text", "text": "Read this."},
            {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "data:application/pdf;base64,aGk="}]);
        let Some(Part::Media(file)) = parts(&content).pop() else { panic!("no file in {content}") };
        assert!(file.is_pdf());
        assert_eq!(file.file_name(), "a.pdf");
        assert_eq!(file.url(), "data:application/pdf;base64,aGk=");
        assert_eq!(file.left_out(), "[a.pdf (application/pdf) is left out: this model does not take it]");
    }

    #[test]
    fn what_nobody_knows_is_sent_as_it_is() {
        for content in
            [json!({"type": "chart", "points": [1, 2]}), json!({"type": "image", "url": "ftp:x y"}), json!(5)]
        {
            assert_eq!(parts(&content), [Part::Text(Cow::Owned(content.to_string()))]);
        }
        let texts = json!(["a", {"type": "text", "text": "b"}]);
        assert_eq!(plain_text(&parts(&texts)).as_deref(), Some("a\nb"));
    }
}
