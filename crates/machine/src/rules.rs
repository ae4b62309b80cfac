//! Rules on arguments: the built-in gate as pure data. The strictest rule that matches wins.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{Digest, ToolName};
use crate::policy::{ApprovalScope, ApprovalScopes};
use crate::tool::{Approval, Arguments, EffectClass, Tool};

/// Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Ask,
    Deny,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    pub tool: ToolName,
    /// All conditions must be true; an empty list is always true.
    pub when: Vec<Condition>,
    pub then: RuleAction,
}

impl Rule {
    /// Calls of this tool do not have to be held.
    #[must_use]
    pub fn allow(tool: &str) -> Self {
        Self::new(tool, RuleAction::Allow)
    }

    /// Calls of this tool wait for a person.
    #[must_use]
    pub fn ask(tool: &str) -> Self {
        Self::new(tool, RuleAction::Ask)
    }

    /// Calls of this tool fail.
    #[must_use]
    pub fn deny(tool: &str) -> Self {
        Self::new(tool, RuleAction::Deny)
    }

    fn new(tool: &str, then: RuleAction) -> Self {
        Self { tool: ToolName::from(tool), when: Vec::new(), then }
    }

    /// Digest of the rule's content, independent of its position in the file. None if the rule cannot be serialized.
    pub(crate) fn digest(&self) -> Option<Digest> {
        serde_json::to_vec(self).ok().map(|text| Digest::sha256(&text))
    }

    /// Applies the rule only if the argument at this dotted path passes the test.
    #[must_use]
    pub fn when(mut self, path: &str, test: ArgumentTest) -> Self {
        let path = path.split('.').map(String::from).collect();
        self.when.push(Condition { path, test });
        self
    }
}

/// One test of one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The dotted path, split. An absent path matches only [`ArgumentTest::Absent`].
    pub path: Vec<String>,
    pub test: ArgumentTest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentTest {
    Eq(Value),
    Ne(Value),
    Lt(f64),
    Lte(f64),
    Gt(f64),
    Gte(f64),
    In(Vec<Value>),
    /// A regular expression that the text at the path matches. The machine has no regex engine: the verdict is passed
    /// in as a [`PatternHit`].
    Matches(String),
    /// There is a value at the path; null counts as a value.
    Present,
    /// There is no value at the path.
    Absent,
}

impl ArgumentTest {
    /// Whether the value at the path passes. `pattern_hit` answers for [`ArgumentTest::Matches`].
    pub fn holds(&self, found: Option<&Value>, pattern_hit: impl FnOnce() -> bool) -> bool {
        let number = found.and_then(Value::as_f64);
        match self {
            Self::Eq(wanted) => found.is_some_and(|found| same(found, wanted)),
            Self::Ne(wanted) => found.is_some_and(|found| !same(found, wanted)),
            Self::Lt(limit) => number.is_some_and(|number| number < *limit),
            Self::Lte(limit) => number.is_some_and(|number| number <= *limit),
            Self::Gt(limit) => number.is_some_and(|number| number > *limit),
            Self::Gte(limit) => number.is_some_and(|number| number >= *limit),
            Self::In(wanted) => found.is_some_and(|found| wanted.iter().any(|value| same(found, value))),
            Self::Matches(_) => found.is_some() && pattern_hit(),
            Self::Present => found.is_some(),
            Self::Absent => found.is_none(),
        }
    }
}

/// Condition `condition` of rule `rule` is a pattern, and the call's arguments match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternHit {
    pub rule: u16,
    pub condition: u16,
}

/// Who holds a call. An asker that has asked about a call does not ask about it again. The stored control contains the
/// position of a variant: add new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asker {
    /// A call that must be approved again, because its tool or its answer changed. In older logs also the tool's
    /// own `approval`, or the run's policy.
    Policy,
    Rule(u16),
    Plugin(crate::id::PluginName),
    /// The tool's own `approval`.
    Tool,
    /// The agent's own policy.
    Agent,
    /// The policy of this run, if it is stricter than its agent's.
    Run,
}

impl Asker {
    /// Whether it asks because of a policy, regardless of arguments. A person who answered one such asker answered them
    /// all.
    const fn asks_by_policy(&self) -> bool {
        match self {
            Self::Policy | Self::Tool | Self::Agent | Self::Run => true,
            Self::Rule(_) | Self::Plugin(_) => false,
        }
    }

    /// Whether the built-in gate asks, and not a plugin.
    #[must_use]
    pub const fn is_built_in(&self) -> bool {
        match self {
            Self::Policy | Self::Rule(_) | Self::Tool | Self::Agent | Self::Run => true,
            Self::Plugin(_) => false,
        }
    }

    /// Whether a person who has answered all of `asked` has answered this one too.
    #[must_use]
    pub fn is_answered(&self, asked: &[Self]) -> bool {
        asked.contains(self) || (self.asks_by_policy() && asked.iter().any(Self::asks_by_policy))
    }
}

/// The built-in gate's verdict on one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateVerdict {
    /// `rule` is set if a rule allowed the call.
    Allow {
        rule: Option<u16>,
    },
    Ask {
        by: Vec<Asker>,
    },
    Deny {
        rule: u16,
    },
    Block,
}

/// A matching rule replaces the tool's own `approval`, except `block`. The scopes of the agent's and the run's policy
/// apply in addition.
#[must_use]
pub fn evaluate(
    rules: &[Rule],
    scopes: ApprovalScopes,
    name: &ToolName,
    tool: &Tool,
    arguments: &Arguments,
    hits: &[PatternHit],
) -> GateVerdict {
    if tool.approval == Approval::Block {
        return GateVerdict::Block;
    }
    let matching: Vec<(u16, RuleAction)> = rules
        .iter()
        .zip(0_u16..)
        .filter(|(rule, index)| rule.tool == *name && matches(rule, *index, arguments, hits))
        .map(|(rule, index)| (index, rule.then))
        .collect();
    let strictest = matching.iter().map(|(_, then)| *then).max();
    let first = |wanted| matching.iter().find(|(_, then)| *then == wanted).map(|(index, _)| *index);
    if let Some(rule) = first(RuleAction::Deny) {
        return GateVerdict::Deny { rule };
    }
    if scopes.run == ApprovalScope::Never {
        return GateVerdict::Allow { rule: first(RuleAction::Allow) };
    }
    let mut by: Vec<Asker> = matching
        .iter()
        .filter(|(_, then)| *then == RuleAction::Ask)
        .map(|(index, _)| Asker::Rule(*index))
        .collect();
    if strictest.is_none() && tool.approval == Approval::Ask {
        by.push(Asker::Tool);
    }
    // A run that is looser than its agent asks about fewer calls. Any call that it still asks about, its agent asks
    // about too.
    if asks(scopes.run.min(scopes.agent), tool) {
        by.push(Asker::Agent);
    }
    let tightened = scopes.run > scopes.agent;
    if tightened && (asks(scopes.run, tool) || (scopes.agent == ApprovalScope::Never && !by.is_empty())) {
        by.push(Asker::Run);
    }
    if by.is_empty() {
        GateVerdict::Allow { rule: first(RuleAction::Allow) }
    } else {
        GateVerdict::Ask { by }
    }
}

/// Whether a policy of this scope asks about the tool, regardless of the tool's own setting and the rules.
fn asks(scope: ApprovalScope, tool: &Tool) -> bool {
    match scope {
        ApprovalScope::Never | ApprovalScope::Policy => false,
        ApprovalScope::WriteTools => tool.class == EffectClass::Write,
        ApprovalScope::AllTools => true,
    }
}

/// Invalid arguments match no rule: the call fails because of them.
fn matches(rule: &Rule, index: u16, arguments: &Arguments, hits: &[PatternHit]) -> bool {
    rule.when.iter().zip(0_u16..).all(|(condition, position)| match arguments {
        Arguments::Invalid { .. } => false,
        Arguments::Valid { value, .. } => condition.test.holds(at_path(value, &condition.path), || {
            hits.contains(&PatternHit { rule: index, condition: position })
        }),
    })
}

/// The value at a path inside another value, if there is one.
#[must_use]
pub fn at_path<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |here, key| match here {
        Value::Object(fields) => fields.get(key),
        Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// 5 and 5.0 are equal. Integers beyond the exact range of a double never get here, because they are bad
/// arguments.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.partial_cmp(&right).is_some_and(Ordering::is_eq),
        (Some(_), None) | (None, Some(_)) => false,
        (None, None) => left == right,
    }
}
