//! Tools that need little or no configuration: for demos, for tests, and as examples of what a tool can do.
//!
//! | name | arguments | effect | what it does |
//! |---|---|---|---|
//! | `echo` | `text`, or any | read | returns its text, or all of its arguments |
//! | `add` | `a`, `b` | read | returns the sum |
//! | `sleep` | `ms` | read | waits at most ten minutes, and stops when its call is cancelled |
//! | `write_file` | `path`, `text` | write, held for approval | writes a file inside its folder |
//! | `boom` | | read | panics |
//! | `ask_user` | `question` | read | holds its call with a question; the answer is its result |
//!
//! ```
//! use engine::tool::EffectClass;
//! use tools::builtin::{Options, builtin};
//!
//! let tool = builtin("write_file", &Options { folder: Some("notes".into()) })?;
//! assert_eq!(tool.definition().effect, EffectClass::Write);
//!
//! let mistake = builtin("wirte_file", &Options::default()).err().map(|error| error.to_string());
//! assert!(mistake.is_some_and(|text| text.contains("echo, add, sleep, write_file, boom, ask_user")));
//! # Ok::<(), tools::builtin::BuiltinError>(())
//! ```

#[cfg(test)]
mod tests;
mod write_file;
#[cfg(test)]
mod write_file_tests;

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::tool::{
    AskKind, FunctionTool, OnExpiry, ResumeMode, SuspendRequest, Tool, ToolAnswer, ToolDefinition,
    ToolRequest,
};
use serde::de::DeserializeOwned;
use serde_json::{Number, Value, json};

/// Options of a builtin tool besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where `write_file` writes. It is created with the first file.
    pub folder: Option<PathBuf>,
}

/// Why the tool cannot be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltinError {
    UnknownName { name: String },
    FolderMissing { name: &'static str },
}

impl fmt::Display for BuiltinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => {
                let known: Vec<&str> = names().collect();
                write!(f, "there is no builtin tool `{name}`; use one of {}", known.join(", "))
            }
            Self::FolderMissing { name } => {
                write!(f, "the builtin tool `{name}` has no folder; set `folder` to where it may write")
            }
        }
    }
}

impl Error for BuiltinError {}

type Build = fn(&Options) -> Result<Arc<dyn Tool>, BuiltinError>;

const BUILTINS: [(&str, Build); 6] = [
    ("echo", |_| Ok(echo())),
    ("add", |_| Ok(add())),
    ("sleep", |_| Ok(sleep())),
    ("write_file", |options| {
        let folder = options.folder.clone().ok_or(BuiltinError::FolderMissing { name: "write_file" })?;
        Ok(write_file::tool(folder))
    }),
    ("boom", |_| Ok(boom())),
    ("ask_user", |_| Ok(ask_user())),
];

/// The names of all builtin tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|(name, _)| *name)
}

/// The builtin tool of this name. Nothing is read or written before its first call.
pub fn builtin(name: &str, options: &Options) -> Result<Arc<dyn Tool>, BuiltinError> {
    match BUILTINS.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => build(options),
        None => Err(BuiltinError::UnknownName { name: name.to_owned() }),
    }
}

fn echo() -> Arc<dyn Tool> {
    let definition = ToolDefinition::new("echo", "Answers with the given text.").read().parameters(json!({
        "type": "object",
        "properties": {
            "text": {"description": "What to answer. Without it all arguments are the answer."}
        }
    }));
    Arc::new(FunctionTool::new(definition, |request| {
        let answer = request.arguments.get("text").unwrap_or(&request.arguments).clone();
        std::future::ready(answer)
    }))
}

fn add() -> Arc<dyn Tool> {
    #[derive(serde::Deserialize)]
    struct AddArguments {
        a: Number,
        b: Number,
    }
    let definition = ToolDefinition::new("add", "Adds two numbers.").read().parameters(json!({
        "type": "object",
        "required": ["a", "b"],
        "additionalProperties": false,
        "properties": {
            "a": {"type": "number", "description": "The first number."},
            "b": {"type": "number", "description": "The second number."}
        }
    }));
    Arc::new(FunctionTool::new(definition, |request| {
        let sum = arguments(&request).and_then(|AddArguments { a, b }| sum(&a, &b));
        std::future::ready(sum.map(Value::Number))
    }))
}

/// Exact for integers if possible, otherwise as a double.
fn sum(a: &Number, b: &Number) -> Result<Number, String> {
    let exact = a.as_i64().zip(b.as_i64()).and_then(|(a, b)| a.checked_add(b));
    if let Some(exact) = exact {
        return Ok(exact.into());
    }
    let nearest = a.as_f64().zip(b.as_f64()).and_then(|(a, b)| Number::from_f64(a + b));
    nearest.ok_or_else(|| format!("the sum of {a} and {b} is too large; use smaller numbers"))
}

const SLEEP_MS_MAX: u64 = 10 * 60 * 1000;
/// Long enough for the longest sleep to finish before its attempt times out.
const SLEEP_TIMEOUT: Duration = Duration::from_millis(SLEEP_MS_MAX + 30_000);

fn sleep() -> Arc<dyn Tool> {
    #[derive(serde::Deserialize)]
    struct SleepArguments {
        ms: u64,
    }
    let definition =
        ToolDefinition::new("sleep", "Waits for a while.").read().timeout(SLEEP_TIMEOUT).parameters(json!({
            "type": "object",
            "required": ["ms"],
            "additionalProperties": false,
            "properties": {
                "ms": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": SLEEP_MS_MAX,
                    "description": "How many milliseconds to wait."
                }
            }
        }));
    Arc::new(FunctionTool::new(definition, |request| async move {
        let SleepArguments { ms } = arguments(&request)?;
        if ms > SLEEP_MS_MAX {
            return Err(format!("{ms} ms is too long; wait at most {SLEEP_MS_MAX} ms"));
        }
        match request.cancelled.run_until_cancelled(tokio::time::sleep(Duration::from_millis(ms))).await {
            Some(()) => Ok(json!({"slept_ms": ms})),
            None => Err(format!("cancelled before {ms} ms were over")),
        }
    }))
}

fn boom() -> Arc<dyn Tool> {
    let definition = ToolDefinition::new("boom", "Always panics.")
        .read()
        .parameters(json!({"type": "object", "additionalProperties": false}));
    Arc::new(FunctionTool::new(definition, |_| async { panicked() }))
}

fn panicked() -> Value {
    panic!("boom: this tool always panics")
}

fn ask_user() -> Arc<dyn Tool> {
    #[derive(serde::Deserialize)]
    struct AskUserArguments {
        question: String,
    }
    let definition = ToolDefinition::new("ask_user", "Asks the user a question and waits for the answer.")
        .read()
        .parameters(json!({
            "type": "object",
            "required": ["question"],
            "additionalProperties": false,
            "properties": {
                "question": {"type": "string", "minLength": 1, "description": "What the user is asked."}
            }
        }));
    Arc::new(FunctionTool::new(definition, |request| {
        std::future::ready(arguments(&request).map(|AskUserArguments { question }| match &request.resume {
            None => ToolAnswer::Pending(SuspendRequest {
                kind: AskKind::Question,
                question: Some(question),
                // Any text from the user is a valid answer.
                schema: None,
                mode: ResumeMode::UseDecisionAsToolResult,
                resume_state: None,
                expires_in_ms: None,
                on_expiry: OnExpiry::Deny,
            }),
            // The approver may choose to run the tool again; the question is answered in that case too.
            Some(resumed) => {
                ToolAnswer::Success { value: resumed.answer.clone().unwrap_or_default(), warning: None }
            }
        }))
    }))
}

/// The engine has checked the arguments against the schema, but another caller may not have.
fn arguments<T: DeserializeOwned>(request: &ToolRequest) -> Result<T, String> {
    T::deserialize(&*request.arguments)
        .map_err(|error| format!("bad arguments for {}: {error}; keep to its schema", request.tool))
}
