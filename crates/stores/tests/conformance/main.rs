//! Every store keeps the rules of the contract; the number in a test's name is the number of the rule.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

mod fixture;
mod postgres_fixture;
#[path = "../postgres/server.rs"]
mod postgres_server;
mod rule_01_append;
mod rule_01_suspensions;
mod rule_02_consumed;
mod rule_03_behind;
mod rule_04_release;
mod rule_05_other_runs;
mod rule_05_trees;
mod rule_06_tenants;
mod rule_07_claim;
mod rule_07_shares;
mod rule_08_counts;
mod rule_09_threads;
mod rule_10_submit;
mod rule_11_unique_ids;
mod rule_12_crash;
mod rule_13_messages;
mod rule_14_post_keys;
mod rule_15_answers;
mod rule_18_bytes;
mod rule_19_census;
mod rule_20_callback_key;
mod rule_21_inline_agents;
mod rule_22_gone_threads;
mod rule_23_grants;
mod rule_24_undecoded;
mod rule_25_chain;
mod rule_26_audit;
#[allow(dead_code, reason = "the tests of the doctor use all of it")]
mod sample_data;
mod snapshot;
mod sqlite_fixture;
mod worker;

/// Runs the same tests for each store. A test that is not listed here is dead code, which fails the build.
macro_rules! conformance {
    ($store:ident, $fixture:ty) => {
        mod $store {
            conformance! { @tests $fixture;
                rule_01_append::rule_01_an_append_writes_all_that_its_events_say,
                rule_01_append::rule_01_another_sequence_number_is_fenced_and_changes_nothing,
                rule_01_append::rule_01_another_epoch_is_fenced_and_changes_nothing,
                rule_01_append::rule_01_a_log_with_a_gap_is_impossible_and_changes_nothing,
                rule_01_append::rule_01_the_lease_of_an_ended_run_is_released,
                rule_01_append::rule_01_of_many_equal_appends_one_is_stored,
                rule_01_append::rule_01_many_runs_append_side_by_side,
                rule_01_append::rule_01_a_log_is_read_in_parts,
                rule_01_suspensions::rule_01_a_suspension_names_the_events_that_opened_and_closed_it,
                rule_02_consumed::rule_02_consumed_rows_leave_the_inbox_with_the_commit,
                rule_02_consumed::rule_02_a_row_that_changed_nothing_is_consumed_without_events,
                rule_02_consumed::rule_02_a_row_is_consumed_once,
                rule_02_consumed::rule_02_a_submitted_decision_is_remembered_permanently,
                rule_02_consumed::rule_02_a_decision_accepted_at_the_worker_is_remembered_permanently,
                rule_02_consumed::rule_02_a_second_decision_under_a_used_id_is_not_accepted,
                rule_02_consumed::rule_02_a_decision_id_counts_within_its_run,
                rule_03_behind::rule_03_an_expiry_does_not_overtake_an_accepted_decision,
                rule_03_behind::rule_03_an_expiry_closes_an_unanswered_approval,
                rule_03_behind::rule_03_an_interrupt_at_the_worker_does_not_overtake_an_accepted_decision,
                rule_03_behind::rule_03_the_version_rises_with_every_item_and_every_commit,
                rule_03_behind::rule_03_a_claim_gives_the_version_with_the_inbox,
                rule_03_behind::rule_03_a_commit_is_refused_until_its_worker_has_seen_every_item,
                rule_03_behind::rule_03_what_another_run_delivers_counts_too,
                rule_03_behind::rule_03_a_decision_that_came_first_may_close_what_a_later_one_answers,
                rule_03_behind::rule_03_a_decision_at_the_worker_loses_against_one_that_was_faster,
                rule_03_behind::rule_03_nothing_is_accepted_after_an_accepted_interrupt,
                rule_03_behind::rule_03_a_row_that_closed_nothing_answers_nothing_any_more,
                rule_03_behind::rule_03_an_expiry_and_a_decision_race_and_one_of_them_wins,
                rule_03_behind::rule_03_an_interrupt_and_the_last_commit_race_and_one_of_them_wins,
                rule_04_release::rule_04_a_run_with_an_item_is_not_released,
                rule_04_release::rule_04_a_lease_is_given_back_once,
                rule_04_release::rule_04_rows_come_back_in_the_order_of_arrival,
                rule_04_release::rule_04_a_submit_that_races_a_release_is_never_lost,
                rule_04_release::rule_04_a_run_that_waits_for_nothing_else_is_left_alone,
                rule_05_other_runs::rule_05_a_child_is_created_in_its_parents_commit,
                rule_05_other_runs::rule_05_a_refused_append_creates_and_delivers_nothing,
                rule_05_other_runs::rule_05_the_end_of_a_child_is_delivered_in_its_last_commit,
                rule_05_other_runs::rule_05_an_interrupt_reaches_the_children_once,
                rule_05_other_runs::rule_05_an_interrupt_of_the_parent_is_an_accepted_one,
                rule_05_other_runs::rule_05_an_approval_of_a_child_shows_its_path,
                rule_05_trees::rule_05_an_approval_is_listed_for_every_run_and_thread_on_its_path,
                rule_05_trees::rule_05_pages_of_a_tree_cover_everything_once,
                rule_05_trees::rule_05_a_run_counts_as_executing_while_a_descendant_does_not_wait,
                rule_05_trees::rule_05_a_run_with_a_descendant_in_doubt_is_not_superseded,
                rule_05_other_runs::rule_05_a_delivery_stays_within_the_tenant,
                rule_05_other_runs::rule_05_a_thread_is_deleted_with_those_of_its_child_runs,
                rule_06_tenants::rule_06_another_tenant_finds_nothing,
                rule_06_tenants::rule_06_two_tenants_may_use_the_same_names,
                rule_06_tenants::rule_06_pages_of_runs_and_threads_cover_everything_once_newest_first,
                rule_06_tenants::rule_06_what_comes_in_between_two_pages_shifts_nothing,
                rule_06_tenants::rule_06_an_unknown_cursor_is_refused,
                rule_06_tenants::rule_06_runs_are_filtered_by_status_thread_and_agent,
                rule_06_tenants::rule_06_a_run_whose_interrupt_is_accepted_is_listed_as_interrupting,
                rule_06_tenants::rule_06_approvals_are_listed_oldest_first_in_pages,
                rule_06_tenants::rule_06_pages_of_approvals_keep_answered_unprocessed_ones_in_order,
                rule_06_tenants::rule_06_a_closed_suspension_says_who_closed_it_and_when,
                rule_06_tenants::rule_06_a_thread_keeps_what_was_put_first,
                rule_06_tenants::rule_06_a_thread_is_deleted_with_all_that_belongs_to_it,
                rule_07_claim::rule_07_woken_due_and_lost_runs_come_before_queued_ones,
                rule_07_claim::rule_07_only_what_is_interrupted_or_due_is_urgent,
                rule_07_claim::rule_07_never_more_than_asked_for,
                rule_07_claim::rule_07_a_run_that_is_held_is_not_given_out,
                rule_07_claim::rule_07_one_tenant_after_the_other,
                rule_07_claim::rule_07_no_tenant_starves_behind_a_long_queue,
                rule_07_claim::rule_07_runs_of_a_tenant_that_is_passed_over_stay_queued,
                rule_07_claim::rule_07_a_run_behind_another_is_claimed_once_it_holds_the_thread,
                rule_07_claim::rule_07_a_run_is_claimed_by_its_name,
                rule_07_claim::rule_07_a_queued_run_that_is_interrupted_is_claimed_and_may_end,
                rule_07_claim::rule_07_a_run_falls_due_when_its_deadline_has_come,
                rule_07_claim::rule_07_a_released_run_is_awaited_again,
                rule_07_claim::rule_07_a_released_run_that_is_under_way_is_found_again,
                rule_07_claim::rule_07_concurrent_claims_never_get_the_same_run,
                rule_07_claim::rule_07_of_many_claims_of_one_run_one_gets_it,
                rule_07_shares::rule_07_waiting_and_sleeping_runs_of_one_tenant_keep_no_other_waiting,
                rule_08_counts::rule_08_creation_claim_and_start_are_one_commit,
                rule_08_counts::rule_08_a_claim_a_release_and_a_read_are_no_commit,
                rule_08_counts::rule_08_a_taken_item_and_an_append_count_one_each,
                rule_08_counts::rule_08_what_was_refused_does_not_count,
                rule_08_counts::rule_08_the_writing_of_a_decision_and_its_tool_start_is_one_commit,
                rule_09_threads::rule_09_metadata_that_could_not_be_read_back_is_refused,
                rule_09_threads::rule_09_a_thread_shows_who_is_in_front,
                rule_09_threads::rule_09_a_thread_has_other_agents_or_only_these,
                rule_09_threads::rule_09_the_runs_of_a_thread_are_listed_as_they_were_admitted,
                rule_09_threads::rule_09_a_thread_shows_that_its_front_is_in_doubt,
                rule_09_threads::rule_09_a_run_that_starts_at_once_needs_the_thread_as_it_was_seen,
                rule_09_threads::rule_09_a_run_is_admitted_to_the_thread_as_it_is_and_not_as_it_was_seen,
                rule_09_threads::rule_09_a_run_that_waits_and_one_that_executes_are_asked_for_apart,
                rule_09_threads::rule_09_the_queue_is_bounded_and_the_refusal_names_the_bound,
                rule_09_threads::rule_09_a_run_is_created_once,
                rule_09_threads::rule_09_a_lease_is_given_only_where_the_run_holds_its_thread,
                rule_09_threads::rule_09_the_end_of_the_holder_promotes_the_first_in_the_queue,
                rule_09_threads::rule_09_a_superseding_run_takes_the_place_of_all_before_it,
                rule_09_threads::rule_09_of_several_superseding_runs_the_last_one_runs,
                rule_09_threads::rule_09_a_run_interrupted_by_a_person_is_passed_over_by_a_superseding_one,
                rule_09_threads::rule_09_interrupted_runs_pass_the_thread_on,
                rule_09_threads::rule_09_a_queued_run_that_ends_leaves_the_queue,
                rule_09_threads::rule_09_a_run_begins_after_the_last_message_or_the_one_asked_for,
                rule_09_threads::rule_09_of_many_creations_on_one_thread_one_holds,
                rule_09_threads::rule_09_concurrent_creations_fill_the_queue_up_to_its_bound,
                rule_10_submit::rule_10_a_taken_decision_marks_the_row_and_wakes_the_run,
                rule_10_submit::rule_10_an_unknown_run_is_not_found,
                rule_10_submit::rule_10_what_is_not_taken_leaves_nothing_behind,
                rule_10_submit::rule_10_the_first_decision_wins,
                rule_10_submit::rule_10_of_a_hundred_concurrent_decisions_one_wins,
                rule_10_submit::rule_10_a_run_on_its_way_out_takes_no_decision,
                rule_10_submit::rule_10_an_interrupt_accepted_at_the_worker_counts_too,
                rule_10_submit::rule_10_nothing_is_accepted_after_a_denial_that_ends_the_run,
                rule_10_submit::rule_10_an_interrupt_is_accepted_after_a_denial_that_ends_the_run,
                rule_10_submit::rule_10_a_denial_that_ends_nothing_leaves_the_others_to_be_decided,
                rule_10_submit::rule_10_a_denial_without_an_effect_of_its_own_follows_the_policy,
                rule_10_submit::rule_10_a_denial_that_closed_nothing_ends_nothing,
                rule_10_submit::rule_10_an_early_denial_ends_the_run_from_when_it_answers_an_approval,
                rule_10_submit::rule_10_an_answered_approval_shows_its_answer_and_is_not_pending,
                rule_10_submit::rule_10_a_changed_tool_is_reported_and_the_item_accepted,
                rule_10_submit::rule_10_an_early_decision_answers_the_approval_as_it_opens,
                rule_10_submit::rule_10_an_early_decision_is_for_its_arguments_alone,
                rule_10_submit::rule_10_a_late_answer_settles_what_is_in_doubt,
                rule_11_unique_ids::rule_11_a_call_id_is_used_once_in_a_thread,
                rule_11_unique_ids::rule_11_another_thread_may_use_the_same_call_id,
                rule_11_unique_ids::rule_11_names_with_signs_are_compared_as_they_are,
                rule_11_unique_ids::rule_11_a_message_id_is_used_once_in_a_thread,
                rule_11_unique_ids::rule_11_an_append_adds_no_message_under_a_used_id,
                rule_11_unique_ids::rule_11_another_thread_may_use_the_same_message_id,
                rule_11_unique_ids::rule_11_a_message_id_of_a_queued_run_is_used_too,
                rule_11_unique_ids::rule_11_a_call_whose_message_id_a_queued_run_has_is_refused,
                rule_12_crash::rule_12_logs_threads_and_approvals_are_there_again,
                rule_12_crash::rule_12_an_accepted_decision_survives_and_no_other_is_accepted,
                rule_12_crash::rule_12_an_accepted_interrupt_survives,
                rule_12_crash::rule_12_a_lease_dies_with_its_process,
                rule_12_crash::rule_12_the_queue_of_a_thread_survives,
                rule_12_crash::rule_12_a_deadline_survives,
                rule_12_crash::rule_12_what_plugins_keep_and_calls_used_survive,
                rule_12_crash::rule_12_a_call_under_way_is_in_doubt_after_the_crash,
                rule_13_messages::rule_13_messages_are_listed_as_they_joined_in_pages,
                rule_13_messages::rule_13_newest_first_is_the_reverse_and_stays_so_while_messages_join,
                rule_13_messages::rule_13_what_waits_to_join_is_not_there_yet,
                rule_13_messages::rule_13_a_thread_without_messages_is_not_a_thread_that_is_not_there,
                rule_14_post_keys::rule_14_a_key_is_bound_with_its_run,
                rule_14_post_keys::rule_14_a_creation_whose_key_is_taken_is_stale,
                rule_14_post_keys::rule_14_a_creation_that_is_refused_binds_no_key,
                rule_14_post_keys::rule_14_of_many_creations_under_one_key_one_is_made,
                rule_14_post_keys::rule_14_a_hundred_posts_under_one_key_start_one_run,
                rule_14_post_keys::rule_17_a_key_has_a_largest_size_and_goes_with_its_thread,
                rule_15_answers::rule_15_the_first_answer_under_a_scope_is_kept,
                rule_15_answers::rule_15_concurrent_answers_all_return_the_same,
                rule_15_answers::rule_16_what_plugins_keep_is_shown_without_a_lease,
                rule_15_answers::rule_17_an_answer_has_a_largest_size_and_goes_with_its_thread,
                rule_15_answers::rule_17_remembered_answers_of_a_run_are_bounded,
                rule_18_bytes::rule_18_what_is_read_at_once_has_a_largest_size,
                rule_18_bytes::rule_18_an_event_of_any_size_is_read,
                rule_19_census::rule_19_unended_runs_of_all_tenants_are_counted_by_status,
                rule_19_census::rule_19_unprocessed_inbox_items_are_counted,
                rule_19_census::rule_19_approved_calls_are_counted_until_their_run_has_processed_it,
                rule_19_census::rule_19_things_of_one_tenant_are_counted_up_to_a_bound,
                rule_20_callback_key::rule_20_the_first_key_is_kept_over_a_crash,
                rule_20_callback_key::rule_20_a_removed_key_is_gone_and_another_one_can_be_kept,
                rule_20_callback_key::rule_20_a_rotated_key_is_kept_as_the_previous_one_until_it_is_removed,
                rule_20_callback_key::rule_20_concurrent_keys_all_return_the_same,
                rule_20_callback_key::rule_20_of_many_rotations_at_once_one_is_made,
                rule_21_inline_agents::rule_21_what_came_with_a_message_is_kept_with_its_run,
                rule_21_inline_agents::rule_21_it_is_found_for_its_own_thread_alone,
                rule_21_inline_agents::rule_21_it_goes_with_its_thread_and_with_no_other,
                rule_21_inline_agents::rule_21_a_creation_that_is_refused_leaves_none_of_it,
                rule_21_inline_agents::rule_21_the_same_comes_to_many_threads_at_once,
                rule_21_inline_agents::rule_21_a_post_races_the_deletion_of_its_thread_and_its_run_has_its_agent,
                rule_22_gone_threads::rule_22_a_thread_that_is_gone_stays_gone,
                rule_22_gone_threads::rule_22_another_thread_of_the_same_id_is_not_the_one_that_was_seen,
                rule_22_gone_threads::rule_22_a_thread_that_was_absent_is_created_once,
                rule_22_gone_threads::rule_22_a_deletion_and_a_creation_at_once_do_not_both_succeed,
                rule_23_grants::rule_23_a_grant_counts_for_its_thread_as_it_was_given,
                rule_23_grants::rule_23_auto_approve_replaces_itself_and_its_end_revokes_every_grant_of_the_thread,
                rule_23_grants::rule_23_a_grant_is_revoked_once_and_stays_revoked,
                rule_23_grants::rule_23_another_tenant_finds_and_revokes_nothing,
                rule_23_grants::rule_23_grants_are_listed_newest_first_in_pages_and_by_giver,
                rule_23_grants::rule_23_grants_go_with_their_thread,
                rule_23_grants::rule_23_grants_read_for_one_call_are_bounded,
                rule_24_undecoded::rule_24_an_interrupted_run_ends_by_its_columns,
                rule_24_undecoded::rule_24_only_the_lease_holder_ends_the_run,
                rule_25_chain::rule_25_every_commit_extends_the_chain_of_its_run,
                rule_25_chain::rule_25_queued_runs_children_and_accepted_decisions_are_chained,
                rule_25_chain::rule_25_a_commit_without_events_and_a_refused_one_leave_the_head,
                rule_25_chain::rule_25_the_end_of_an_undecoded_run_is_chained,
                rule_25_chain::rule_25_a_chain_continues_after_a_crash,
                rule_25_chain::rule_25_hashes_are_the_same_in_every_store,
                rule_26_audit::rule_26_the_record_has_exactly_the_decisions_of_the_logs,
                rule_26_audit::rule_26_a_commit_that_is_refused_records_nothing,
                rule_26_audit::rule_26_a_decision_names_its_call_and_arguments,
                rule_26_audit::rule_26_changes_without_a_run_are_recorded_with_their_actor,
                rule_26_audit::rule_26_each_tenant_has_a_chain_without_gaps,
                rule_26_audit::rule_26_records_are_selected_by_time_action_and_principal,
                rule_26_audit::rule_26_a_pruned_chain_still_verifies,
                rule_26_audit::rule_26_interrupts_are_recorded,
                rule_26_audit::rule_26_records_of_a_configuration_are_written_together_and_once,
                rule_26_audit::rule_26_a_decision_that_a_halted_run_never_applied_is_recorded,
            }
        }
    };
    (@tests $fixture:ty; $($rule:ident :: $test:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                crate::$rule::$test::<$fixture>().await;
            }
        )*
    };
}

conformance!(memory, crate::fixture::Memory);
conformance!(sqlite, crate::sqlite_fixture::Sqlite<false>);
conformance!(sqlite_inline, crate::sqlite_fixture::Sqlite<true>);
conformance!(postgres, crate::postgres_fixture::Postgres);
