//! The output that a run may have to end with: JSON that fits a schema, read from the model's last answer.

use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json_text::{self, Bounds};
use crate::termination::truncate_reason;

/// Whether an answer is the wanted output. The shell checks schemas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFit {
    Fits,
    Unfit { why: String },
}

impl OutputFit {
    /// Checks a text that has not been checked against a schema yet: it must be JSON.
    #[must_use]
    pub fn check(text: &str, fault: impl FnOnce(&Value) -> Option<String>) -> Self {
        match parse_output(text) {
            Ok(value) => fault(&value).map_or(Self::Fits, |why| Self::Unfit { why }),
            Err(why) => Self::Unfit { why },
        }
    }

    /// The form stored in events, with bounded length: the control state has to stay small.
    pub(crate) fn bounded(&self) -> Self {
        match self {
            Self::Fits => Self::Fits,
            Self::Unfit { why } => Self::Unfit { why: truncate_reason(why) },
        }
    }

    /// Bytes that it takes in the stored control, including its length prefix.
    pub(crate) const fn bytes(&self) -> usize {
        const FIXED: usize = 16;
        match self {
            Self::Fits => FIXED,
            Self::Unfit { why } => FIXED + why.len(),
        }
    }
}

/// The verdict on the last answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JudgedOutput {
    /// The text of the message that this event adds is the output.
    Fits {
        seq: u64,
    },
    Unfit {
        why: String,
    },
}

impl JudgedOutput {
    pub(crate) fn from_fit(fit: &OutputFit, seq: u64) -> Self {
        match fit {
            OutputFit::Fits => Self::Fits { seq },
            OutputFit::Unfit { why } => Self::Unfit { why: why.clone() },
        }
    }
}

/// Parses the JSON that an answer consists of. Models often put a code fence around it, which is accepted.
pub fn parse_output(text: &str) -> Result<Value, String> {
    json_text::parse(strip_code_fence(text.trim()), &Bounds::VALUE).map_err(|fault| {
        let what = if fault.is_syntax() { "it is not JSON" } else { "it cannot be used" };
        format!("{what}: {fault}")
    })
}

/// The output in the text of a stored answer that was [judged](parse_output) when it arrived.
#[must_use]
pub fn stored_output(text: &str) -> Option<Value> {
    serde_json::from_str(strip_code_fence(text.trim())).ok()
}

fn strip_code_fence(text: &str) -> &str {
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    // The opening fence may be followed by nothing but the name of the language.
    let body = inside.and_then(|rest| rest.split_once('\n')).filter(|(language, _)| {
        let language = language.trim();
        language.is_empty() || language.eq_ignore_ascii_case("json")
    });
    body.map_or(text, |(_, body)| body.trim())
}
