//! What the protocols of front ends share: the conversation that a client shows, and the answers that it gives.

pub(crate) mod conversation;
pub(crate) mod decide;
pub(crate) mod post;

use protocols::feed::Item;

use crate::log_reader::RunFrame;
use crate::wire::feed::{event_item, live_item};

pub(crate) fn feed_item(frame: RunFrame) -> Item {
    match frame {
        RunFrame::Event(envelope) => event_item(envelope),
        RunFrame::Live(frame) => live_item(frame),
    }
}
