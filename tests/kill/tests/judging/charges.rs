//! The violations that the judge reports for calls that charge, when the payment service's ledger and the log do not
//! agree.

use std::sync::OnceLock;

use kill::evidence::Evidence;
use kill::judge::Rule;
use kill::payment_server::{ChargeRecord, Manner};
use kill::people::People;
use machine::event::{CallError, CallErrorCode, Event, Fact};
use machine::suspension::Held;

use super::{change_events, played, rules};

/// One charge was cut off and the other was answered with 502; both are in the ledger.
fn objections(change: impl FnOnce(&mut Evidence)) -> Vec<Rule> {
    static WORLD: OnceLock<(Evidence, People)> = OnceLock::new();
    let (evidence, people) = WORLD.get_or_init(|| {
        let world = played("charged-and-cut-off:none".into());
        (world.evidence.expect("it was read"), world.people)
    });
    let mut evidence = evidence.clone();
    change(&mut evidence);
    rules(&evidence, people)
}

fn charge_record(evidence: &mut Evidence) -> &mut ChargeRecord {
    evidence.acts[0].charge_record.as_mut().expect("it reached the payment service")
}

fn doubt_becomes(evidence: &mut Evidence, code: CallErrorCode) {
    change_events(evidence, |event: &mut Event| {
        if let Fact::ToolSuspended(opened) = &event.fact
            && matches!(opened.held, Held::InDoubt { .. })
        {
            event.fact = Fact::ExecutionFailed {
                call_id: opened.call_id.clone(),
                error: CallError { code, message: "the connection was lost".into() },
                outcome_unknown: false,
            };
        }
    });
}

#[test]
fn charges_that_agree_with_the_log_are_not_objected_to() {
    assert_eq!(objections(|_| {}), []);
}

#[test]
fn a_second_charge_and_a_second_key_are_found() {
    let found = objections(|evidence| {
        let mut again = evidence.acts[0].clone();
        again.attempt += 1;
        evidence.acts.push(again);
    });
    assert!(found.contains(&Rule::ChargedOnce), "{found:?}");
    let found = objections(|evidence| {
        let mut again = evidence.acts[0].clone();
        (again.attempt, again.key) = (again.attempt + 1, "another".into());
        again.charge_record = Some(ChargeRecord { manner: Manner::Prompt, charged: false });
        evidence.acts.push(again);
    });
    assert!(found.contains(&Rule::ChargedOnce), "{found:?}");
}

#[test]
fn a_lost_charge_that_is_called_an_error_is_found() {
    for code in [CallErrorCode::ToolError, CallErrorCode::NotSent, CallErrorCode::NoAnswer] {
        let found = objections(|evidence| doubt_becomes(evidence, code));
        assert!(found.contains(&Rule::LostChargeIsInDoubt), "{code:?}: {found:?}");
        assert!(found.contains(&Rule::ChargesAgreeWithTheLog), "{code:?}: {found:?}");
    }
}

#[test]
fn a_success_without_a_charge_is_found() {
    let found = objections(|evidence| charge_record(evidence).charged = false);
    assert_eq!(found, [Rule::ChargesAgreeWithTheLog]);
    let found = objections(|evidence| evidence.acts.clear());
    assert_eq!(found, [Rule::ChargesAgreeWithTheLog]);
}
