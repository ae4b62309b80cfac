//! Stories in which a person permits more than one call, or deletes the thread at the end.

use machine::policy::{Execution, PolicyRequest};

use super::{Story, When, approved_story, call, tools, under};
use crate::wire::Reply;

pub(super) fn stories() -> Vec<Story> {
    use tools::TRANSFER;
    let permitted = Story {
        reply: Some(Reply::ApproveForLater),
        auto_approve: Some((When::Held("a"), When::AllEnded)),
        ..approved_story("permitted", vec![call("a", TRANSFER), call("b", TRANSFER)])
    };
    let one_by_one = PolicyRequest { execution: Some(Execution::Sequential), ..PolicyRequest::default() };
    vec![
        under(permitted, one_by_one),
        Story { deletes: true, ..approved_story("deleted", vec![call("a", TRANSFER)]) },
    ]
}
