//! Models behind [`engine::model::Model`], one module each.

pub mod scripted;
