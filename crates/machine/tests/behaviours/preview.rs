//! What is shown of a suspension between an accepted answer and the moment at which its run processes it: what the log
//! will say.

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::{Event, Fact, OpenedSuspension};
use machine::id::Digest;
use machine::inbox::{Item, to_input};
use machine::policy::OnReject;
use machine::preview::{AnswerPreview, preview_answer};
use machine::projection_rows::{ApprovalStatus, InboxPosition, ProjectionRows};
use machine::suspension::ResumeMode;
use serde_json::json;

use crate::story::{Story, cancel, pending, resume, resume_with, success, unknown, valid};

fn holding(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    story
}

fn asking(mode: ResumeMode) -> Story {
    let mut story = holding("echo");
    story.returns("A", pending(mode));
    story
}

fn in_doubt() -> Story {
    let mut story = holding("post");
    story.returns("A", unknown());
    story
}

/// Held for approval once more, with an attempt in doubt before it.
fn asked_again_in_doubt() -> Story {
    let mut story = holding("transfer");
    story.approves("A");
    story.returns("A", unknown());
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    story.decides("A", resume());
    story
}

/// The event that holds the call now.
fn opened(story: &Story) -> OpenedSuspension {
    let id = &story.call("A").suspension().unwrap().id;
    let opened = story.log.iter().find_map(|event| match &event.fact {
        Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) if opened.suspension_id == *id => {
            Some(opened.clone())
        }
        _ => None,
    });
    opened.expect("an event holds it")
}

/// What the log says once the run has processed it.
fn preview_from_log(story: &mut Story, item: &Item) -> AnswerPreview {
    let before = story.run.control.clone();
    let input = to_input(&before, item).expect("it says something");
    let events: Vec<Event> = story.ok(input);
    let mut rows = ProjectionRows::default();
    rows.add_events(Some(&before), &events, InboxPosition::default());
    let closed = rows.closed.into_iter().next().expect("it closes what it answers");
    let edited = events.iter().find_map(|event| match &event.fact {
        Fact::ToolApproved { arguments, .. } => arguments.clone(),
        _ => None,
    });
    AnswerPreview {
        status: closed.status,
        by: closed.by,
        at: Some(closed.at),
        reason: closed.reason,
        note: closed.note,
        edited,
    }
}

#[test]
fn d8_d9_an_answer_is_previewed_as_the_log_will_have_it() {
    use ApprovalStatus::{Answered, Approved, Rejected};
    let edit = DecisionAction::Resume(Resume {
        arguments: Some(valid(json!({"of": "less"}))),
        note: Some("half of it".into()),
        ..Resume::default()
    });
    let noted = DecisionAction::Resume(Resume {
        payload: Payload::Result(json!("blue").into()),
        note: Some("as always".into()),
        ..Resume::default()
    });
    let failed = DecisionAction::Resume(Resume { payload: Payload::Error("no".into()), ..Resume::default() });
    let no = |then| DecisionAction::Cancel { reason: Some("no".into()), then };
    let table: [(Story, DecisionAction, ApprovalStatus); 11] = [
        (holding("transfer"), resume(), Approved),
        (holding("transfer"), edit, Approved),
        (holding("transfer"), no(None), Rejected),
        (holding("transfer"), no(Some(OnReject::EndRun)), Rejected),
        (asked_again_in_doubt(), no(None), Rejected),
        (asking(ResumeMode::ReplayToolCall), noted, Answered),
        (asking(ResumeMode::UseDecisionAsToolResult), failed, Answered),
        (asking(ResumeMode::ReplayToolCall), no(None), Rejected),
        (in_doubt(), resume(), Answered),
        (in_doubt(), resume_with(json!("it did")), Answered),
        (in_doubt(), cancel(), Answered),
    ];
    for (mut story, action, status) in table {
        let item = Item::Decision(story.decision("A", action.clone()));
        let preview = preview_answer(&opened(&story), &item).expect("it answers");
        assert_eq!(preview.status, status, "{action:?}");
        assert_eq!(preview, preview_from_log(&mut story, &item), "{action:?}");
    }
}

#[test]
fn b5_the_approval_of_a_changed_tool_is_previewed_as_void() {
    let mut story = holding("transfer");
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    let item = Item::Decision(story.decision("A", resume()));
    let preview = preview_answer(&opened(&story), &item).expect("it answers");
    let shown = (preview.status, preview.by.as_str(), preview.reason.as_deref());
    assert_eq!(shown, (ApprovalStatus::Expired, "system", Some("tool_changed")));
    assert_eq!(preview, preview_from_log(&mut story, &item));
}

#[test]
fn an_early_decision_and_a_late_answer_are_previewed_too() {
    let mut story = holding("transfer");
    let decision = Decision { suspension: "".into(), ..story.decision("A", resume()) };
    let early = Item::Early { decision, digest: story.call("A").arguments };
    assert_eq!(preview_answer(&opened(&story), &early), Some(preview_from_log(&mut story, &early)));
    let mut story = in_doubt();
    let late = Item::LateAnswer { step: 1, call: "A".into(), attempt: 1, outcome: success(json!(1)) };
    let preview = preview_answer(&opened(&story), &late).expect("it answers");
    // A late answer has no record of when it came.
    assert_eq!(preview, AnswerPreview { at: None, ..preview_from_log(&mut story, &late) });
}

#[test]
fn an_approver_is_shown_the_arguments_that_will_run_and_none_where_they_are_bad() {
    let approval = opened(&holding("transfer"));
    assert_eq!(approval.shown_arguments(), Some(&json!({"of": "A"})));
    let bad = OpenedSuspension { arguments: Some(crate::story::invalid("no")), ..approval.clone() };
    assert_eq!(
        (bad.shown_arguments(), OpenedSuspension { arguments: None, ..approval }.shown_arguments()),
        (None, None)
    );
}
