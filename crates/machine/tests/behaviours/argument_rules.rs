//! Rules on arguments, one operator after the other, and the gate that the tool, the rules and the scope make up.

use machine::Revision;
use machine::policy::{ApprovalScope, ApprovalScopes, Policy};
use machine::rules::{ArgumentTest, Asker, Condition, GateVerdict, PatternHit, Rule, RuleAction, evaluate};
use machine::termination::Termination;
use machine::tool::{Approval, Arguments, EffectClass};
use serde_json::{Value, json};

use crate::props::{payload, termination};
use crate::story::{Story, invalid, names, order, tool, valid};

/// The agent's own policy, which no message changed.
const fn both(scope: ApprovalScope) -> ApprovalScopes {
    ApprovalScopes { agent: scope, run: scope }
}

fn when(path: &str, test: ArgumentTest) -> Vec<Condition> {
    vec![Condition { path: path.split('.').map(str::to_owned).collect(), test }]
}

fn rule(when: Vec<Condition>, then: RuleAction) -> Rule {
    Rule { tool: "transfer".into(), when, then }
}

/// Does a rule with this test on `path` match these arguments?
fn matches(path: &str, test: ArgumentTest, arguments: &Arguments) -> bool {
    let rules = [rule(when(path, test), RuleAction::Deny)];
    let tool = tool(EffectClass::Write, Approval::Ask);
    match evaluate(&rules, both(ApprovalScope::Policy), &"transfer".into(), &tool, arguments, &[]) {
        GateVerdict::Deny { rule: 0 } => true,
        GateVerdict::Ask { by } => {
            assert_eq!(by, [Asker::Tool]);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_operator_on_both_sides_of_its_boundary() {
    let table: [(ArgumentTest, &[Value], &[Value]); 7] = [
        (
            ArgumentTest::Eq(json!(5)),
            &[json!(5), json!(5.0)],
            &[json!(6), json!("5"), json!(null), json!([5])],
        ),
        (ArgumentTest::Eq(json!("a")), &[json!("a")], &[json!("A"), json!("ab"), json!(1)]),
        (ArgumentTest::Ne(json!(5)), &[json!(6), json!("5"), json!(null)], &[json!(5), json!(5.0)]),
        (ArgumentTest::Lt(5.0), &[json!(4.99), json!(-1)], &[json!(5), json!(6), json!("4")]),
        (ArgumentTest::Lte(5.0), &[json!(5), json!(4)], &[json!(5.01), json!("5"), json!(null)]),
        (ArgumentTest::Gt(5.0), &[json!(5.01), json!(6)], &[json!(5), json!(4), json!("6")]),
        (ArgumentTest::Gte(5.0), &[json!(5), json!(6)], &[json!(4.99), json!("5"), json!(true)]),
    ];
    for (test, matching, others) in table {
        for value in matching {
            assert!(matches("n", test.clone(), &valid(json!({"n": value}))), "{test:?} {value}");
        }
        for value in others {
            assert!(!matches("n", test.clone(), &valid(json!({"n": value}))), "{test:?} {value}");
        }
    }
    let one_of = ArgumentTest::In(vec![json!("eur"), json!(1)]);
    for (value, expected) in
        [(json!("eur"), true), (json!(1.0), true), (json!("usd"), false), (json!(2), false)]
    {
        assert_eq!(matches("n", one_of.clone(), &valid(json!({"n": value}))), expected, "{value}");
    }
}

#[test]
fn a_pattern_matches_where_the_shell_says_so_and_nowhere_else() {
    let rules = [
        rule(when("to", ArgumentTest::Matches("^x".into())), RuleAction::Deny),
        rule(when("to", ArgumentTest::Matches("^y".into())), RuleAction::Deny),
    ];
    let tool = tool(EffectClass::Write, Approval::Never);
    let verdict = |hits: &[PatternHit], arguments: &Arguments| {
        evaluate(&rules, both(ApprovalScope::Policy), &"transfer".into(), &tool, arguments, hits)
    };
    let hit = [PatternHit { rule: 1, condition: 0 }];
    let arguments = valid(json!({"to": "yes"}));
    assert_eq!(verdict(&hit, &arguments), GateVerdict::Deny { rule: 1 });
    assert_eq!(verdict(&[], &arguments), GateVerdict::Allow { rule: None });
    assert_eq!(
        verdict(&[PatternHit { rule: 1, condition: 1 }], &arguments),
        GateVerdict::Allow { rule: None }
    );
    assert_eq!(
        verdict(&hit, &valid(json!({}))),
        GateVerdict::Allow { rule: None },
        "an absent path never matches"
    );
}

#[test]
fn an_absent_path_does_not_match_whatever_the_test() {
    let tests = [
        ArgumentTest::Eq(Value::Null),
        ArgumentTest::Ne(json!(5)),
        ArgumentTest::Lt(9.0),
        ArgumentTest::Lte(9.0),
        ArgumentTest::Gt(-9.0),
        ArgumentTest::Gte(-9.0),
        ArgumentTest::In(vec![Value::Null]),
    ];
    for test in tests {
        for arguments in [json!({}), json!({"a": 1}), json!({"a": {"c": 1}}), json!({"a": "b"}), json!(null)]
        {
            assert!(!matches("a.b", test.clone(), &valid(arguments.clone())), "{test:?} {arguments}");
        }
    }
    assert!(
        matches("a.b", ArgumentTest::Eq(Value::Null), &valid(json!({"a": {"b": null}}))),
        "null is there"
    );
    assert!(matches("a.1.b", ArgumentTest::Eq(json!(7)), &valid(json!({"a": [{}, {"b": 7}]}))));
    assert!(!matches("a.2.b", ArgumentTest::Eq(json!(7)), &valid(json!({"a": [{}, {"b": 7}]}))));
    assert!(!matches("a", ArgumentTest::Eq(json!(1)), &invalid("no object")), "bad arguments match nothing");
}

#[test]
fn present_and_absent_ask_only_whether_there_is_a_value() {
    for (arguments, there) in [
        (json!({"a": {"b": 5}}), true),
        (json!({"a": {"b": null}}), true),
        (json!({"a": {"b": false}}), true),
        (json!({"a": {}}), false),
        (json!({"a": "b"}), false),
        (json!({}), false),
    ] {
        let arguments = valid(arguments);
        assert_eq!(matches("a.b", ArgumentTest::Present, &arguments), there, "{arguments:?}");
        assert_eq!(matches("a.b", ArgumentTest::Absent, &arguments), !there, "{arguments:?}");
    }
    for test in [ArgumentTest::Present, ArgumentTest::Absent] {
        assert!(!matches("a", test, &invalid("no object")), "invalid arguments match nothing");
    }
}

/// Rules are stored with every run. These texts are never edited.
#[test]
fn rules_are_stored_in_a_form_that_is_still_read() {
    let stored = concat!(
        r#"[{"tool":"transfer","when":[{"path":["amount"],"test":{"lte":100.0}},"#,
        r#"{"path":["to","name"],"test":{"matches":"^x"}},{"path":["cc"],"test":{"in":["a",1]}}],"then":"deny"},"#,
        r#"{"tool":"transfer","when":[{"path":["amount"],"test":"absent"},{"path":["to"],"test":"present"}],"#,
        r#""then":"ask"}]"#,
    );
    let rules = vec![
        Rule::deny("transfer")
            .when("amount", ArgumentTest::Lte(100.0))
            .when("to.name", ArgumentTest::Matches("^x".into()))
            .when("cc", ArgumentTest::In(vec![json!("a"), json!(1)])),
        Rule::ask("transfer").when("amount", ArgumentTest::Absent).when("to", ArgumentTest::Present),
    ];
    assert_eq!(serde_json::from_str::<Vec<Rule>>(stored).unwrap(), rules);
    assert_eq!(serde_json::to_string(&rules).unwrap(), stored);
}

#[test]
fn all_conditions_must_hold_and_a_rule_without_any_always_does() {
    let two = [when("a", ArgumentTest::Eq(json!(1))), when("b", ArgumentTest::Eq(json!(2)))].concat();
    let tool = tool(EffectClass::Read, Approval::Never);
    let verdict = |conditions: Vec<Condition>, name: &str, value: Value| {
        let rules = [rule(conditions, RuleAction::Ask)];
        evaluate(&rules, both(ApprovalScope::Policy), &name.into(), &tool, &valid(value), &[])
    };
    let asked = GateVerdict::Ask { by: vec![Asker::Rule(0)] };
    let allowed = GateVerdict::Allow { rule: None };
    assert_eq!(verdict(two.clone(), "transfer", json!({"a": 1, "b": 2})), asked);
    assert_eq!(verdict(two.clone(), "transfer", json!({"a": 1, "b": 3})), allowed);
    assert_eq!(verdict(two, "transfer", json!({"a": 1})), allowed);
    assert_eq!(verdict(Vec::new(), "transfer", json!({})), asked);
    assert_eq!(verdict(Vec::new(), "other", json!({})), allowed, "a rule is for one tool");
}

/// What tool `approval`, rules that all match, and scope make of a call of a tool of this class.
fn gate(approval: Approval, thens: &[RuleAction], scope: ApprovalScope, class: EffectClass) -> GateVerdict {
    let rules: Vec<Rule> = thens.iter().map(|then| rule(Vec::new(), *then)).collect();
    evaluate(&rules, both(scope), &"transfer".into(), &tool(class, approval), &valid(json!({})), &[])
}

#[test]
fn the_strictest_rule_wins_and_replaces_the_tools_own_approval_except_block() {
    use Approval::{Ask, Block, Never};
    use EffectClass::Write;
    let policy = ApprovalScope::Policy;
    let by = |by: &[Asker]| GateVerdict::Ask { by: by.to_vec() };
    let table: [(Approval, &[RuleAction], GateVerdict); 11] = [
        (Never, &[], GateVerdict::Allow { rule: None }),
        (Ask, &[], by(&[Asker::Tool])),
        (Block, &[], GateVerdict::Block),
        (Ask, &[RuleAction::Allow], GateVerdict::Allow { rule: Some(0) }),
        (Never, &[RuleAction::Ask], by(&[Asker::Rule(0)])),
        (Ask, &[RuleAction::Ask], by(&[Asker::Rule(0)])),
        (Ask, &[RuleAction::Allow, RuleAction::Ask, RuleAction::Ask], by(&[Asker::Rule(1), Asker::Rule(2)])),
        (Never, &[RuleAction::Deny], GateVerdict::Deny { rule: 0 }),
        (Ask, &[RuleAction::Allow, RuleAction::Ask, RuleAction::Deny], GateVerdict::Deny { rule: 2 }),
        (Ask, &[RuleAction::Deny, RuleAction::Allow, RuleAction::Deny], GateVerdict::Deny { rule: 0 }),
        (Block, &[RuleAction::Allow], GateVerdict::Block),
    ];
    for (approval, thens, expected) in table {
        assert_eq!(gate(approval, thens, policy, Write), expected, "{approval:?} {thens:?}");
    }
}

#[test]
fn the_scope_of_the_policy_holds_beside_the_rules() {
    use ApprovalScope::{AllTools, Never, Policy as Scope, WriteTools};
    use EffectClass::{Idempotent, Read, Write};
    let asked = GateVerdict::Ask { by: vec![Asker::Agent] };
    let allowed = |rule| GateVerdict::Allow { rule };
    let lenient: &[RuleAction] = &[RuleAction::Allow];
    for (scope, class, expected) in [
        (Scope, Read, allowed(Some(0))),
        (Scope, Write, allowed(Some(0))),
        (WriteTools, Read, allowed(Some(0))),
        (WriteTools, Idempotent, allowed(Some(0))),
        (WriteTools, Write, asked.clone()),
        (AllTools, Read, asked.clone()),
        (AllTools, Idempotent, asked.clone()),
        (AllTools, Write, asked.clone()),
        (Never, Write, allowed(Some(0))),
    ] {
        assert_eq!(gate(Approval::Never, lenient, scope, class), expected, "{scope:?} {class:?}");
    }
    assert_eq!(gate(Approval::Ask, &[], Never, Write), allowed(None), "never means never");
    assert_eq!(gate(Approval::Never, &[RuleAction::Ask], Never, Write), allowed(None));
    assert_eq!(gate(Approval::Never, &[RuleAction::Deny], Never, Write), GateVerdict::Deny { rule: 0 });
    assert_eq!(gate(Approval::Block, &[], Never, Write), GateVerdict::Block);
    let two = GateVerdict::Ask { by: vec![Asker::Rule(0), Asker::Agent] };
    assert_eq!(gate(Approval::Never, &[RuleAction::Ask], AllTools, Read), two);
}

fn ruled(then: RuleAction) -> Story {
    let rules = vec![rule(when("amount", ArgumentTest::Lte(100.0)), then)];
    Story::begin_with(Revision { rules, ..Revision::default() })
}

fn transfer(story: &mut Story, amount: u32) -> Vec<machine::Event> {
    let answered = story.answer("", &[("A", "transfer", json!({"amount": amount}))]);
    let mut events = story.model_answers(answered);
    events.extend(story.pass_gates());
    events
}

#[test]
fn the_event_names_the_rule_that_decided() {
    let mut small = ruled(RuleAction::Allow);
    assert_eq!(payload(&transfer(&mut small, 100), "tool.execution_started")["rule"], 0);
    let mut large = ruled(RuleAction::Allow);
    let events = transfer(&mut large, 101);
    assert_eq!(payload(&events, "tool.approval_requested")["asked_by"], json!(["tool"]));
    let mut asked = ruled(RuleAction::Ask);
    let events = transfer(&mut asked, 5);
    assert_eq!(payload(&events, "tool.approval_requested")["asked_by"], json!([{"rule": 0}]));
    let mut denied = ruled(RuleAction::Deny);
    let events = transfer(&mut denied, 5);
    let error = payload(&events, "tool.execution_failed")["error"].clone();
    assert_eq!(error, json!({"code": "DENIED_BY_RULE", "message": "denied by rule 0"}));
}

#[test]
fn a_rule_that_denies_may_end_the_run() {
    let policy = Policy { on_block: machine::policy::OnBlock::EndRun, ..Policy::default() };
    let rules = vec![rule(Vec::new(), RuleAction::Deny)];
    let mut story = Story::begin_with(Revision { rules, policy, ..Revision::default() });
    transfer(&mut story, 5);
    assert_eq!(termination(&story), Termination::Blocked("denied by rule 0".into()));
}

#[test]
fn auto_approve_lifts_an_ask_and_never_a_deny_or_a_block() {
    let grants = vec![crate::story::auto_approval()];
    let mut asked = ruled(RuleAction::Ask);
    asked.grants = grants.clone();
    assert_eq!(payload(&transfer(&mut asked, 5), "tool.execution_started")["let_through_by"], "ana");
    let mut denied = ruled(RuleAction::Deny);
    denied.grants = grants.clone();
    transfer(&mut denied, 5);
    assert_eq!(denied.tool_text("A"), "Error: denied by rule 0");
    let mut blocked = Story::begin();
    blocked.grants = grants;
    blocked.asks_for(&[("A", "forbidden")]);
    assert_eq!(blocked.tool_text("A"), "Error: blocked by policy");
}

/// A run whose request set `run` where the agent says `agent`, by "boss".
fn loosened(agent: ApprovalScope, run: ApprovalScope) -> Story {
    let policy = Policy { approval: agent, ..Policy::default() };
    let revision = Revision { policy, ..Revision::default() };
    let mut order = order(Policy { approval: run, ..policy });
    order.loosened_by = Some("boss".into());
    let mut story = Story::queued_with(revision, order);
    story.ok(machine::Input::Start { after: None });
    story
}

#[test]
fn every_call_let_through_by_a_loosened_policy_names_who_did_it() {
    let mut story = loosened(ApprovalScope::AllTools, ApprovalScope::Policy);
    let events = story.asks_for(&[("A", "echo")]);
    assert_eq!(payload(&events, "tool.execution_started")["let_through_by"], "boss");

    let mut never = loosened(ApprovalScope::Policy, ApprovalScope::Never);
    let events = never.asks_for(&[("A", "transfer"), ("B", "echo")]);
    let started = crate::props::payloads(&events, "tool.execution_started");
    let by: Vec<_> = started.iter().map(|start| start["let_through_by"].clone()).collect();
    assert_eq!(by, [json!("boss"), Value::Null], "echo would not have been held anyway");
}

#[test]
fn a_call_that_was_held_and_approved_was_not_let_through_by_a_loosened_policy() {
    let mut story = loosened(ApprovalScope::AllTools, ApprovalScope::Policy);
    let events = story.asks_for(&[("A", "transfer")]);
    assert_eq!(names(&events).last().unwrap(), "run.waiting");
    let events = story.approves("A");
    assert_eq!(payload(&events, "tool.execution_started")["let_through_by"], Value::Null);
}

#[test]
fn a_zero_with_a_minus_in_front_is_zero() {
    // Both have one canonical form and one digest, so that a rule cannot be walked around with the other.
    for (rule, argument) in [(json!(0), json!(-0.0)), (json!(-0.0), json!(0)), (json!(0.0), json!(-0.0))] {
        let arguments = valid(json!({"n": argument}));
        assert!(matches("n", ArgumentTest::Eq(rule.clone()), &arguments), "{rule} {argument}");
        assert!(matches("n", ArgumentTest::In(vec![rule.clone()]), &arguments), "{rule} {argument}");
        assert!(!matches("n", ArgumentTest::Ne(rule.clone()), &arguments), "{rule} {argument}");
    }
}

#[test]
fn a_call_that_a_front_end_performs_names_the_rule_or_the_approver_that_let_it_through() {
    let rules = vec![Rule { tool: "pick_file".into(), when: Vec::new(), then: RuleAction::Allow }];
    let mut ruled = Story::begin_with(Revision { rules, ..Revision::default() });
    let opened = |events: &[machine::Event]| {
        let opened = payload(events, "tool.suspended");
        (
            opened["rule"].clone(),
            opened["let_through_by"].clone(),
            opened["arguments"]["valid"]["value"].clone(),
        )
    };
    let pick = [("A", "pick_file")];
    let arguments = json!({"of": "A"});
    assert_eq!(opened(&ruled.asks_for(&pick)), (json!(0), Value::Null, arguments.clone()));
    let mut granted = loosened(ApprovalScope::AllTools, ApprovalScope::Policy);
    assert_eq!(opened(&granted.asks_for(&pick)), (Value::Null, json!("boss"), arguments));
}
