//! Tables and values of the file, each with its location. Taking a key out of a table marks it as known. A key that was
//! never taken is reported as a mistake.
//!
//! The file is read by hand instead of with derived code, which would stop at the first mistake and lose the line
//! numbers inside stop conditions and rules.

use std::path::PathBuf;

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::source::{Location, Source};

pub(super) struct Table<'f> {
    pub(super) location: Location<'f>,
    entries: Vec<(&'f str, Entry<'f>)>,
    /// The keys that were requested, in that order.
    known: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct Entry<'f> {
    pub(super) location: Location<'f>,
    value: &'f DeValue<'f>,
}

impl<'f> Table<'f> {
    pub(super) fn root(source: &'f Source, table: &'f DeTable<'f>) -> Self {
        Self::new(source.root(), table)
    }

    /// Sorts the entries in the order of the file.
    fn new(location: Location<'f>, table: &'f DeTable<'f>) -> Self {
        let mut entries: Vec<(&str, Entry<'f>)> = table
            .iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                (name, Entry { location: location.child(name, key.span().start), value: value.get_ref() })
            })
            .collect();
        entries.sort_by_key(|(_, entry)| entry.location.at());
        Self { location, entries, known: Vec::new() }
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Entry<'f>> {
        self.known.push(key);
        let index = self.entries.iter().position(|(name, _)| *name == key)?;
        Some(self.entries.remove(index).1)
    }

    /// `meaning` says what to write.
    pub(super) fn require(&mut self, key: &'static str, meaning: &str) -> Option<Entry<'f>> {
        let found = self.take(key);
        if found.is_none() {
            self.location.missing(key).fault(format!("it is missing; write {meaning}"));
        }
        found
    }

    /// Reports every key that was not taken.
    pub(super) fn finish(self) {
        for (_, entry) in self.entries {
            entry.location.fault(format!("unknown key; the keys here are {}", self.known.join(", ")));
        }
    }

    /// All remaining entries, for a table whose keys are names.
    pub(super) fn into_entries(self) -> Vec<(&'f str, Entry<'f>)> {
        self.entries
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'f str> {
        self.entries.iter().map(|(key, _)| *key)
    }
}

impl<'f> Entry<'f> {
    fn refuse<T>(&self, wanted: &str) -> Option<T> {
        self.location.refuse(format!("this is {}; write {wanted}", kind(self.value)))
    }

    pub(super) fn text(&self, wanted: &str) -> Option<&'f str> {
        let value: &'f DeValue<'f> = self.value;
        value.as_str().or_else(|| self.refuse(wanted))
    }

    pub(super) fn nonempty(&self, wanted: &str) -> Option<&'f str> {
        let text = self.text(wanted)?;
        if text.is_empty() {
            self.location.refuse(format!("it is empty; write {wanted}"))
        } else {
            Some(text)
        }
    }

    /// The name of an environment variable. Any other text may be the secret itself, so the fault does not repeat it.
    pub(super) fn variable_name(&self) -> Option<&'f str> {
        const VARIABLE: &str = "the name of an environment variable";
        let name = self.nonempty(VARIABLE)?;
        let begins_well = !name.starts_with(|first: char| first.is_ascii_digit());
        if begins_well && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Some(name);
        }
        self.location.refuse(format!(
            "this is not the name of an environment variable (letters, digits and _); write {VARIABLE}, and put a secret into \
             that variable, never into this file"
        ))
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.refuse("true or false"))
    }

    pub(super) fn integer(&self, min: u64, max: u64) -> Option<u64> {
        let wanted = format!("a whole number from {min} to {max}");
        let Some(integer) = self.value.as_integer() else { return self.refuse(&wanted) };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number
            .filter(|number| (min..=max).contains(number))
            .or_else(|| self.location.refuse(format!("{integer} does not fit here; write {wanted}")))
    }

    /// One of a fixed set of words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let wanted = format!("one of {}", known.join(", "));
        let text = self.text(&wanted)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        found.or_else(|| self.location.refuse(format!("unknown value {text:?}; use {wanted}")))
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        self.nonempty("a path, relative to the folder of this file").map(|path| self.location.path(path))
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn table(&self, wanted: &str) -> Option<Table<'f>> {
        let value: &'f DeValue<'f> = self.value;
        match value.as_table() {
            Some(table) => Some(Table::new(self.location.clone(), table)),
            None => self.refuse(wanted),
        }
    }

    pub(super) fn items(&self, wanted: &str) -> Option<Vec<Entry<'f>>> {
        let value: &'f DeValue<'f> = self.value;
        let Some(items) = value.as_array() else { return self.refuse(wanted) };
        let item = |(index, value): (usize, &'f toml::Spanned<DeValue<'f>>)| Entry {
            location: self.location.item(index, value.span().start),
            value: value.get_ref(),
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    pub(super) fn number(&self) -> Option<f64> {
        let wanted = "a number";
        match self.value {
            DeValue::Integer(_) | DeValue::Float(_) => self.json()?.as_f64().or_else(|| self.refuse(wanted)),
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => self.refuse(wanted),
        }
    }

    pub(super) fn json(&self) -> Option<Value> {
        match json(self.value) {
            Ok(value) => Some(value),
            Err(why) => self.location.refuse(why),
        }
    }
}

fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::from(number.map_err(|_| format!("{integer} is too large; write a smaller number"))?)
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(
                number.ok_or_else(|| format!("{float} has no place in JSON; write a finite number"))?,
            )
        }
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(_) => return Err("JSON has no dates; write it in quotes".to_owned()),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let field = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, _)| {
                let value: &toml::Spanned<DeValue<'_>> = value;
                Ok((key.get_ref().to_string(), json(value.get_ref())?))
            };
            Value::Object(table.iter().map(field).collect::<Result<Map<_, _>, String>>()?)
        }
    })
}

const fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
