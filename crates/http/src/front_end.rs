//! What the protocols of front ends share: the conversation that a client shows, and the answers that it gives.

pub(crate) mod conversation;
pub(crate) mod decide;
pub(crate) mod feed;
pub(crate) mod post;
