//! The behaviours of the catalogue, one test per id or more. Names carry the ids: `docs/behaviours.md`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a story that cannot be told fails"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod admission;
mod after_tools;
mod answers;
mod argument_rules;
mod attempts;
mod call_ids;
mod call_transitions;
mod checkpoints;
mod children;
mod concurrent_calls;
mod derived_ids;
mod eager_turns;
mod ending_and_interrupting;
mod envelope;
mod gate;
mod grants;
mod hooks;
mod how_runs_end;
mod inbox;
mod interception;
mod interrupts;
mod json_texts;
mod late_answers;
mod lifecycle;
mod long_results;
mod lost_at_the_gate;
mod nested_values;
mod odd_answers;
mod order_of_phases;
mod phase_order;
mod plain_transcript;
mod preview;
mod projection_rows;
mod props;
mod recently_settled;
mod recovery;
mod replay;
mod room_in_the_state;
mod run_endings;
mod run_status;
mod shared_messages;
mod step_projection;
mod steps_and_commits;
mod stop_conditions;
mod stored_and_bounded;
mod story;
mod structured_output;
mod timelines;
mod tool_call_machine;
mod tool_changed;
mod tools_own_answer;
mod trimming;
mod turns;
mod two_layers;
mod undecodable;
mod unprocessed;
mod visible;
mod waiting_and_replay;
mod what_the_model_reads;
mod who_must_agree;
