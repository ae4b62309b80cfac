//! Reads known members of a request. Whatever else an object has is left alone; a member of the wrong form is refused
//! with its path.

use std::fmt;

use serde_json::{Map, Value};

/// A request that is refused before anything is streamed, with HTTP 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgUiRequestError {
    /// Such as `messages[3].content`. Empty for the body itself.
    pub path: String,
    pub problem: String,
}

impl AgUiRequestError {
    pub(super) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

impl fmt::Display for AgUiRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return write!(f, "the body {}", self.problem);
        }
        write!(f, "`{}` {}", self.path, self.problem)
    }
}

impl std::error::Error for AgUiRequestError {}

/// An object of a request, and where it is.
pub(super) struct AgUiObject<'v> {
    members: &'v Map<String, Value>,
    path: String,
}

impl<'v> AgUiObject<'v> {
    pub(super) fn new(value: &'v Value, path: String) -> Result<Self, AgUiRequestError> {
        match value.as_object() {
            Some(members) => Ok(Self { members, path }),
            None => Err(AgUiRequestError::new(path, "must be an object")),
        }
    }

    pub(super) fn path_of(&self, name: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}", self.path)
    }

    pub(super) fn wrong(&self, name: &str, problem: impl Into<String>) -> AgUiRequestError {
        AgUiRequestError::new(self.path_of(name), problem)
    }

    pub(super) fn value(&self, name: &str) -> Option<&'v Value> {
        self.members.get(name)
    }

    pub(super) fn required(&self, name: &str) -> Result<&'v Value, AgUiRequestError> {
        self.value(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    pub(super) fn text(&self, name: &str) -> Result<&'v str, AgUiRequestError> {
        self.required(name)?.as_str().ok_or_else(|| self.wrong(name, "must be a string"))
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&'v str>, AgUiRequestError> {
        self.value(name).map(|_| self.text(name)).transpose()
    }

    /// An id: a string of 1 to `ID_CHARS_MAX` characters.
    pub(super) fn id(&self, name: &str) -> Result<String, AgUiRequestError> {
        let id = self.text(name)?;
        if id.is_empty() || id.chars().count() > ID_CHARS_MAX {
            return Err(self.wrong(name, format!("must have 1 to {ID_CHARS_MAX} characters")));
        }
        Ok(id.to_owned())
    }

    pub(super) fn optional_id(&self, name: &str) -> Result<Option<String>, AgUiRequestError> {
        self.value(name).map(|_| self.id(name)).transpose()
    }

    /// The items of a list, each with its path. An absent list is an empty one.
    pub(super) fn list(
        &self,
        name: &str,
        count_max: usize,
    ) -> Result<Vec<(&'v Value, String)>, AgUiRequestError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.wrong(name, "must be a list"))?;
        if items.len() > count_max {
            let count = items.len();
            return Err(self.wrong(name, format!("has {count} items; at most {count_max} are accepted")));
        }
        let path = self.path_of(name);
        Ok(items.iter().enumerate().map(|(index, item)| (item, format!("{path}[{index}]"))).collect())
    }
}

/// Ids of clients and models are far shorter. A longer one is a mistake or an attack on memory.
const ID_CHARS_MAX: usize = 256;
