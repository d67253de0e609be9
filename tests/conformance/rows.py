"""Which tests stand for each row of each table and each decision of docs/semantics.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster import test_proof_keys as proof_keys
from tests.conformance import test_ack_and_claim as acks_and_claims
from tests.conformance import test_bodies as bodies
from tests.conformance import test_checkpoints as checkpoints
from tests.conformance import test_claims as claims
from tests.conformance import test_claims_of_named_jobs as named_jobs
from tests.conformance import test_concurrency as concurrency
from tests.conformance import test_config_entries as config_entries
from tests.conformance import test_corners as corners
from tests.conformance import test_dead_letters as letters
from tests.conformance import test_dedupe_keys as dedupe
from tests.conformance import test_ended_jobs as ended_jobs
from tests.conformance import test_expiry as expiry
from tests.conformance import test_fencing as fencing
from tests.conformance import test_group_clearing as clearing
from tests.conformance import test_groups as groups
from tests.conformance import test_identity as identity
from tests.conformance import test_ids as ids
from tests.conformance import test_key_corners as key_corners
from tests.conformance import test_kv as kv
from tests.conformance import test_listed_expiry as listed
from tests.conformance import test_moved as moved
from tests.conformance import test_one_failure as one_failure
from tests.conformance import test_queries as queries
from tests.conformance import test_queues as queues
from tests.conformance import test_quotas as quotas
from tests.conformance import test_replay as replay
from tests.conformance import test_requests_to_stop as to_stop
from tests.conformance import test_retry_listed as retry_listed
from tests.conformance import test_serialize_keys as serialize
from tests.conformance import test_service_binding as binding
from tests.conformance import test_service_breakers as breakers
from tests.conformance import test_service_callers as callers
from tests.conformance import test_service_clocks as clocks
from tests.conformance import test_service_dequeue as dequeue
from tests.conformance import test_service_groups as service_groups
from tests.conformance import test_service_keys as service_keys
from tests.conformance import test_service_outage as outage
from tests.conformance import test_service_queries as service_queries
from tests.conformance import test_service_requests as requests
from tests.conformance import test_service_results as results
from tests.conformance import test_service_searches as searches
from tests.conformance import test_service_settings as service_settings
from tests.conformance import test_service_shards as shards
from tests.conformance import test_service_successors as service_successors
from tests.conformance import test_service_tags as service_tags
from tests.conformance import test_states as states
from tests.conformance import test_stats as stats
from tests.conformance import test_status_text as status
from tests.conformance import test_successors as successors
from tests.conformance import test_tags as tags
from tests.conformance import test_tokens as tokens
from tests.conformance import test_trails as trails
from tests.conformance import test_undelivered as undelivered
from tests.server import test_deliveries as deliveries
from tests.server import test_full_stores as full_stores
from tests.unit import test_homes_change as homes_change
from tests.unit import test_homes_keyed as homes_keyed
from tests.unit import test_homes_successors as homes_successors
from tests.unit import test_longpoll_shared as shared
from tests.unit import test_replace_rules_gate as replace_rules_gate
from tests.unit import test_sql_upgrade as sql_upgrade

Tests = tuple[Callable[..., Any], ...]

STATES: Mapping[str, Tests] = {
    "enqueue": (
        states.test_an_enqueued_job_is_pending_with_all_its_attempts_from_now_on,
        requests.test_no_time_is_now_and_no_attempts_are_one,
    ),
    "claim": (states.test_a_claim_puts_a_pending_job_in_progress_under_a_descriptor_until_its_expiry,),
    "claim within a quota": (
        quotas.test_capped_claims_go_up_to_the_quota_and_no_further,
        quotas.test_whatever_ends_a_claim_makes_room,
    ),
    "claim of jobs that are named": (
        named_jobs.test_a_job_that_is_named_is_handed_out_as_by_a_claim,
        named_jobs.test_each_job_is_answered_in_its_place,
        named_jobs.test_jobs_are_claimed_in_the_order_given_each_once,
    ),
    "ack and claim": (
        acks_and_claims.test_each_gets_what_the_two_calls_would_give,
        acks_and_claims.test_an_ack_frees_room_in_the_quota_for_the_claim_of_the_same_step,
    ),
    "requeue": (states.test_a_job_requeued_is_pending_again_with_all_its_attempts_and_its_old_time,),
    "ack, success": (
        states.test_a_success_ends_the_job_with_its_status_appended,
        states.test_a_success_that_is_not_kept_removes_the_job_at_once,
        dequeue.test_a_time_to_live_of_nothing_removes_ended_jobs_at_once,
    ),
    "ack, failure, more than one": (
        states.test_a_failure_with_attempts_left_is_pending_again_after_the_delay,
        requests.test_a_negative_delay_is_none,
    ),
    "ack, failure, the last": (
        states.test_a_failure_of_the_last_attempt_ends_the_job,
        states.test_a_permanent_failure_ends_the_job_whatever_attempts_remain,
    ),
    "checkpoint": (
        states.test_a_checkpoint_restarts_the_expiry_and_leaves_the_job_in_progress,
        checkpoints.test_a_checkpoint_replaces_the_body,
        checkpoints.test_a_checkpoint_sets_both_the_attempts_allowed_and_those_remaining,
        checkpoints.test_a_checkpoint_puts_status_in_front,
        checkpoints.test_a_checkpoint_sets_run_after,
        expiry.test_a_future_run_after_keeps_no_claim_for_longer_than_the_bound,
        binding.test_a_checkpoint_for_later_keeps_the_job_until_then_and_no_longer_than_any_claim,
    ),
    "checkpoint with moveToPending": (states.test_a_checkpoint_to_pending_requeues_the_job_with_all_its_attempts,),
    "the claim expired": (
        states.test_an_expired_claim_is_a_failed_attempt_and_a_crash,
        expiry.test_an_expired_claim_leaves_the_job_to_be_handed_out_at_once,
        expiry.test_a_claim_expires_only_after_its_time_out,
        expiry.test_a_future_run_after_keeps_the_claim_until_its_time_out_after_that,
    ),
    "the time of a claim is over": (
        listed.test_a_queue_that_lists_its_claims_keeps_them_from_expiring,
        listed.test_a_claim_is_listed_once_its_time_is_over_until_it_has_ended,
        listed.test_any_other_end_counts_while_a_claim_is_listed,
    ),
    "expiry of a claim that was listed": (
        listed.test_a_claim_ends_as_expired_after_a_delay_of_its_own,
        listed.test_what_is_not_under_that_claim_is_ignored,
    ),
    "expire disconnected": (
        states.test_a_released_claim_is_as_an_expired_one,
        expiry.test_a_released_claim_leaves_its_own_line_and_the_job_to_be_handed_out_at_once,
        expiry.test_a_claim_that_was_heard_of_since_is_not_released,
        expiry.test_of_several_claims_those_that_were_heard_of_stay,
        expiry.test_of_two_checkpoints_with_the_same_future_run_after_the_later_one_counts,
    ),
    "nobody received it": (
        undelivered.test_a_job_that_nobody_received_is_pending_again_with_all_its_attempts_and_its_old_time,
        undelivered.test_so_often_in_a_row_and_then_its_claims_expire_as_any_other,
    ),
    "the crash budget is used up": (
        expiry.test_a_job_fails_when_its_crash_budget_is_used_up_whatever_attempts_remain,
        expiry.test_an_operators_retry_clears_the_crashes,
    ),
    "the last failure, in a queue with a dead-letter queue": (
        letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step,
        letters.test_what_does_not_fail_for_good_is_not_pending,
        letters.test_a_job_that_waits_to_be_copied_is_kept_although_failed_jobs_are_not,
    ),
    "dead letter": (
        letters.test_a_dead_letter_is_a_new_job_with_the_same_body_and_its_history,
        letters.test_the_original_stays_as_it_was_but_for_where_it_went,
    ),
    "replay": (
        replay.test_a_letter_that_goes_back_is_a_new_job_of_the_queue_it_came_from,
        replay.test_only_letters_that_are_pending_or_failed_go_back,
        one_failure.test_a_job_whose_letter_goes_back_says_as_what,
    ),
    "moved to another shard": (
        moved.test_a_job_that_was_moved_has_succeeded_here_and_points_to_its_copy,
        moved.test_a_job_under_another_claim_is_not_moved,
    ),
    "retry failed": (
        states.test_an_operator_brings_a_failed_job_back_with_the_attempts_given,
        letters.test_a_job_that_was_retried_is_not_copied,
        one_failure.test_a_retry_takes_the_dead_letter_with_it,
    ),
    "retry of jobs that are named": (
        retry_listed.test_a_job_that_is_named_comes_back_as_by_any_retry,
        retry_listed.test_without_a_number_of_attempts_it_gets_as_many_as_were_allowed,
    ),
    "cancel": (states.test_a_cancel_removes_a_pending_job_and_says_what_any_other_was,),
    "prune": (
        states.test_an_ended_job_is_pruned_when_its_time_to_live_is_over,
        letters.test_a_job_that_waits_to_be_copied_is_kept_although_failed_jobs_are_not,
    ),
    "delete": (states.test_a_delete_removes_the_jobs_of_the_state_it_names_and_no_others,),
}

EXTENDED: Mapping[str, Tests] = {
    "enqueue, the dedupeKey is free": (dedupe.test_a_key_is_taken_while_its_job_is_live,),
    "enqueue, the dedupeKey is taken": (
        dedupe.test_a_key_is_taken_while_its_job_is_live,
        dedupe.test_reject_names_the_job_that_stands,
        service_keys.test_a_duplicate_that_is_to_be_rejected_names_the_job_that_stands,
    ),
    "enqueue with REPLACE": (
        dedupe.test_replace_changes_a_pending_job_alone,
        service_keys.test_an_enqueue_says_what_was_kept_and_what_was_replaced,
    ),
    "enqueue with REPLACE, `replaceRunning`": (
        successors.test_a_newer_job_waits_for_the_running_one,
        successors.test_a_newer_job_has_the_running_one_stopped,
        service_successors.test_a_successor_is_stored_shown_and_handed_out_at_the_end_of_what_runs,
    ),
    "enqueue with REPLACE; the job": (
        successors.test_a_third_one_takes_the_place_of_the_successor,
        successors.test_a_third_one_may_have_the_running_job_stopped,
    ),
    "a job that has a successor ends": (
        successors.test_a_newer_job_waits_for_the_running_one,
        successors.test_whatever_removes_a_running_job_frees_its_successor,
        successors.test_a_successor_keeps_its_place_among_the_jobs_of_its_serialize_key,
    ),
    "whatever makes a job that has a successor PENDING again": (
        successors.test_a_running_job_with_a_successor_is_not_tried_again,
    ),
    "enqueue again": (dedupe.test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end,),
    "the first job of its serializeKey": (serialize.test_every_end_frees_the_next_one_in_its_step,),
    "claim of a job with a claim time-out": (
        to_stop.test_a_claim_time_out_of_its_own_where_the_dequeue_names_none,
        results.test_a_dequeue_that_names_a_time_out_comes_before_that_of_the_job,
    ),
    "heartbeat": (
        corners.test_a_renewal_that_was_overtaken_takes_no_time_from_the_claim,
        to_stop.test_a_heartbeat_renews_the_claim_and_changes_nothing_else,
        to_stop.test_progress_is_shown_and_what_is_not_told_stays,
    ),
    "reschedule": (
        to_stop.test_other_times_bodies_and_attempts_of_pending_jobs,
        service_keys.test_jobs_are_rescheduled_by_descriptor_and_by_key,
    ),
    "cancel of what runs": (to_stop.test_what_runs_is_asked_to_stop, results.test_a_job_in_progress_is_asked_to_stop),
    "ack, success, with a result": (
        to_stop.test_a_result_is_kept_for_its_own_time,
        to_stop.test_a_result_outlasts_its_job_but_not_its_removal,
    ),
    "any other end of a job that is to stop": (to_stop.test_every_other_way_back_ends_as_cancelled,),
    "expiry of the job": (
        to_stop.test_a_job_is_not_handed_out_after_its_expiry,
        to_stop.test_a_job_expires_that_is_to_be_retried,
    ),
    "retry of jobs that are named": (
        to_stop.test_a_cancelled_job_is_retried_where_it_is_named_and_deleted_with_the_failed,
        results.test_what_was_stopped_is_no_failure_to_a_change_of_many,
    ),
    "any retry of a job whose dead letter runs": (
        one_failure.test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is,
        one_failure.test_jobs_that_stay_for_their_letters_take_nothing_of_the_limit,
    ),
    "replay of its dead letter": (
        one_failure.test_a_replayed_job_is_left_out_of_every_retry,
        one_failure.test_a_replayed_job_is_counted_apart_and_as_failed_where_states_are_the_wires,
        one_failure.test_a_replayed_job_is_pruned_as_one_that_failed,
    ),
}

DISAGREEMENTS: Mapping[str, Tests] = {
    "success ack of a job": (fencing.test_an_ack_of_what_is_not_in_progress_changes_nothing,),
    "custom status on ack": (states.test_a_success_ends_the_job_with_its_status_appended,),
    "whose clock": (claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,),
    "order within a priority": (claims.test_jobs_with_equal_run_after_come_by_age,),
    "run_after after a claim": (
        states.test_a_claim_puts_a_pending_job_in_progress_under_a_descriptor_until_its_expiry,
        states.test_a_success_ends_the_job_with_its_status_appended,
    ),
    "a claim's time-out": (
        expiry.test_a_checkpoint_puts_off_the_expiry_by_the_claims_own_time_out,
        expiry.test_a_later_checkpoint_without_a_time_ends_what_a_future_run_after_gave,
    ),
    "the time to live": (ended_jobs.test_the_time_to_live_counts_from_the_end_and_not_from_run_after_or_the_claim,),
    "deleting a queue": (queues.test_a_deleted_queue_is_gone_at_once_with_jobs_in_all_states,),
    "body filter": (
        service_queries.test_a_pattern_is_searched_in_the_bytes_of_the_body,
        service_queries.test_a_pattern_that_is_none_is_refused,
        service_queries.test_a_search_goes_through_more_jobs_than_one_page_holds,
    ),
    "run_after exactly now": (queries.test_a_job_at_exactly_now_is_current_and_counted_once,),
    "order of a scan": (
        queries.test_a_scan_shows_the_newest_run_after_first_and_equal_ones_by_age,
        service_queries.test_pages_show_every_job_once_newest_first_then_by_shard_and_age,
    ),
}

DECISIONS: Mapping[str, Tests] = {
    "1": (
        fencing.test_an_ack_of_what_is_not_in_progress_changes_nothing,
        fencing.test_an_ack_with_another_claim_is_ignored,
        fencing.test_a_checkpoint_without_a_claim_needs_exactly_the_same_source,
        dequeue.test_every_dequeue_has_a_claim_of_its_own,
    ),
    "2": (
        status.test_appended_text_is_cut_at_the_bound_keeping_its_front,
        status.test_appended_text_survives_whole_and_pushes_the_end_of_what_was_there_over_the_bound,
        status.test_text_in_front_pushes_the_end_over_the_bound,
    ),
    "3": (
        shards.test_higher_priorities_come_first_over_all_shards,
        shards.test_never_more_than_the_limit_is_claimed_over_all_shards,
    ),
    "4": (
        claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
        claims.test_times_are_exact_to_the_millisecond_however_large,
    ),
    "5": (
        identity.test_a_ping_tells_the_clock_of_the_store,
        expiry.test_where_the_time_is_uncertain_a_claim_runs_from_the_latest_and_jobs_are_due_by_the_earliest,
        expiry.test_a_failed_ack_with_a_delay_below_0_makes_the_job_due_from_before_now,
        clocks.test_a_job_without_a_time_is_due_at_once_and_one_with_a_time_by_the_earliest_clock,
        clocks.test_a_claim_and_its_checkpoints_last_their_time_out_by_the_latest_clock,
        clocks.test_a_retry_without_a_delay_is_due_at_once_and_a_delay_runs_from_the_latest_clock,
        clocks.test_a_time_to_live_runs_from_the_latest_clock_to_the_earliest,
    ),
    "6": (
        fencing.test_a_claim_alone_takes_no_attempt,
        fencing.test_a_job_is_handed_out_at_most_as_often_as_its_attempts_allow,
    ),
    "7": (
        fencing.test_a_job_that_was_acked_successfully_is_never_handed_out_again,
        identity.test_jobs_and_claims_are_there_when_the_store_is_opened_again,
    ),
    "8": (
        shards.test_all_jobs_of_a_request_go_to_one_shard,
        requests.test_one_invalid_job_refuses_the_whole_request,
        requests.test_an_invalid_checkpoint_keeps_no_other_from_being_carried_out,
        requests.test_more_acks_and_descriptors_than_the_bound_are_carried_out_in_slices,
        outage.test_an_enqueue_with_an_unknown_outcome_says_so_and_is_not_sent_again,
    ),
    "9": (
        dequeue.test_an_answer_stays_within_the_frame_and_the_rest_stays_pending,
        dequeue.test_one_job_is_handed_out_however_tight_the_frame,
    ),
    "10": (
        outage.test_an_ack_for_a_shard_that_is_out_is_an_error_after_all_others_are_done,
        outage.test_a_count_with_a_shard_missing_is_an_error_unless_partial_counts_are_asked_for,
        outage.test_a_scan_goes_on_and_names_the_missing_shards,
        outage.test_only_when_no_shard_is_left_there_is_no_healthy_one,
        full_stores.test_a_full_store_takes_no_new_jobs_goes_on_with_all_else_and_is_told_of,
        full_stores.test_new_jobs_go_to_the_shards_that_have_room_and_nobody_sees_an_error,
    ),
    "11": (callers.test_a_dequeue_on_an_empty_queue_takes_at_most_two_round_trips_per_shard,),
    "12": (
        callers.test_a_job_claimed_for_a_caller_that_left_is_pending_again_with_all_attempts,
        outage.test_jobs_claimed_for_a_caller_that_was_told_of_an_error_are_requeued_with_all_attempts,
    ),
    "13": (
        dequeue.test_riding_acks_are_carried_out_first,
        dequeue.test_acks_that_ride_on_a_refused_dequeue_are_carried_out_and_the_error_says_so,
        requests.test_an_invalid_dequeue_is_refused_and_its_acks_are_carried_out,
        requests.test_an_invalid_ack_keeps_no_other_from_being_carried_out,
        requests.test_an_invalid_ack_that_rides_keeps_the_dequeue_from_jobs_and_no_other_ack_from_being_carried_out,
        requests.test_a_dequeue_tells_what_became_of_its_acks_where_one_of_them_had_no_effect,
    ),
    "14": (
        identity.test_a_store_under_another_shard_id_is_refused_and_stays_as_it_was,
        identity.test_a_store_that_was_wiped_while_it_was_open_is_refused,
        concurrency.test_jobs_enqueued_at_once_have_names_of_their_own,
    ),
    "15": (
        ids.test_ids_never_fall_behind_the_time_in_microseconds,
        ids.test_the_text_order_of_ids_is_their_age,
        identity.test_ids_do_not_repeat_after_all_data_was_lost,
    ),
    "16": (
        bodies.test_a_body_comes_back_as_it_was_given_wherever_it_is_seen,
        requests.test_a_body_over_the_bound_is_refused_with_its_size_and_the_bound,
    ),
    "17": (
        config_entries.test_entries_in_any_order_come_to_the_same_end,
        config_entries.test_what_is_not_newer_changes_nothing,
        config_entries.test_a_queue_made_anew_after_a_deletion_that_was_missed_here_loses_its_old_jobs,
        config_entries.test_a_queue_that_was_never_deleted_keeps_its_jobs_through_every_change,
        config_entries.test_who_polls_by_revision_misses_nothing_that_is_put_meanwhile,
        config_entries.test_old_tombstones_are_removed_without_being_counted_and_nothing_else_is,
        service_settings.test_a_change_is_an_entry_on_every_shard_under_one_version,
    ),
    "18": (
        expiry.test_a_queue_with_a_crash_budget_of_its_own_goes_by_that,
        expiry.test_a_job_that_ends_by_a_crash_is_left_to_collection_also_where_failed_jobs_are_not_kept,
        ended_jobs.test_a_queue_with_a_time_to_live_of_its_own_is_pruned_by_that,
        ended_jobs.test_jobs_that_a_queue_keeps_for_longer_do_not_hide_those_of_other_queues,
        letters.test_each_queue_goes_by_its_own_rules_at_expiry,
        letters.test_a_failure_without_a_dead_letter_queue_is_not_pending_later,
        service_settings.test_the_last_ack_removes_what_is_not_kept_and_other_queues_keep_theirs,
        service_settings.test_a_lost_worker_counts_against_the_crash_budget_of_the_queue,
        service_settings.test_a_paused_queue_hands_out_nothing_and_all_else_goes_on,
        breakers.test_while_it_is_open_one_job_is_out_in_the_whole_cluster,
        breakers.test_two_servers_that_try_at_once_hand_out_one_job,
        breakers.test_a_server_that_dies_before_it_hands_out_the_job_holds_nothing_up,
    ),
    "19": (
        letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step,
        letters.test_steps_at_once_copy_each_job_once,
        letters.test_failed_jobs_that_wait_do_not_hide_those_that_can_go,
        letters.test_a_job_that_was_deleted_is_not_copied,
        letters.test_a_job_that_was_retried_and_fails_again_is_a_dead_letter_again,
        replay.test_the_attempts_of_the_origin_are_known_when_it_is_gone_and_the_letter_was_changed,
        replay.test_a_job_that_is_no_letter_stays,
        one_failure.test_a_retry_and_a_replay_at_once_run_each_failure_once,
        one_failure.test_a_letter_that_was_deleted_by_hand_holds_up_nothing,
        one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
        one_failure.test_without_marks_the_job_stays_as_servers_before_know_it,
        service_settings.test_a_job_that_failed_for_good_goes_to_the_dead_letter_queue_on_its_shard,
    ),
    "20": (
        quotas.test_claimers_at_once_never_hold_more_than_the_quota,
        quotas.test_a_claim_that_expired_counts_until_it_is_expired_in_the_store,
        quotas.test_a_smaller_quota_takes_no_claim_away_and_lets_no_new_one_in,
        quotas.test_an_older_version_is_ignored_and_version_zero_only_reads,
        quotas.test_a_queue_without_a_quota_hands_out_nothing_to_a_capped_claim,
        service_settings.test_never_more_jobs_are_in_progress_than_the_queue_allows_over_all_shards,
    ),
    "21": (
        tokens.test_a_bucket_gives_what_the_rate_limit_says,
        tokens.test_a_clock_that_is_behind_takes_from_the_same_bucket_and_fills_nothing,
        tokens.test_takers_at_once_get_together_exactly_what_was_filled,
        tokens.test_tokens_that_are_refunded_are_there_again_up_to_the_capacity,
        service_settings.test_a_rate_is_charged_for_jobs_that_are_handed_out_and_fills_by_the_clock,
    ),
    "22": (
        kv.test_of_many_that_expect_the_same_version_exactly_one_wins,
        kv.test_an_entry_is_there_until_it_expires_and_then_counts_as_none,
    ),
    "23": (
        stats.test_the_pages_of_stats_make_together_what_is_there,
        stats.test_a_page_counts_about_as_many_as_the_limit_or_all_there_are,
    ),
    "24": (
        expiry.test_a_claim_that_was_heard_of_since_is_not_released,
        concurrency.test_a_checkpoint_against_a_release_has_one_winner,
        binding.test_a_lost_connection_costs_its_claims_an_attempt_and_a_crash,
        binding.test_a_checkpoint_binds_a_claim_to_the_connection_it_came_by,
        binding.test_a_checkpoint_for_later_by_another_way_prevents_a_release_too,
    ),
    "25": (
        undelivered.test_a_hand_out_that_was_received_ends_the_row,
        undelivered.test_a_job_requeued_in_between_does_not_end_the_row,
        undelivered.test_a_claim_that_was_heard_of_stays,
        concurrency.test_taking_back_what_nobody_received_against_expiry_has_one_winner,
        deliveries.test_a_claim_whose_answer_nobody_acknowledged_costs_no_attempt,
        deliveries.test_a_claim_whose_answer_arrived_expires_as_ever,
        deliveries.test_a_connection_that_breaks_before_its_answer_arrived_costs_no_attempt,
        deliveries.test_a_receipt_that_was_promised_and_did_not_come_leaves_the_attempt,
        deliveries.test_the_next_call_on_the_connection_is_the_receipt,
    ),
    "26": (
        acks_and_claims.test_each_gets_what_the_two_calls_would_give,
        acks_and_claims.test_acks_for_an_unknown_queue_have_no_effect_anywhere,
        acks_and_claims.test_steps_at_once_hand_out_each_job_once_and_never_exceed_the_quota,
    ),
    "27": (
        shared.test_queues_that_stay_full_share_by_weight,
        shared.test_what_one_queue_does_not_need_goes_to_the_others,
        shared.test_who_came_first_is_served_first_whether_for_one_queue_or_for_several,
        shared.test_it_never_gets_more_than_its_limit_from_all_queues_together,
        shared.test_no_job_is_forgotten_and_none_is_handed_out_twice,
        shared.test_a_queue_that_is_paused_meanwhile_keeps_nobody_from_the_others,
        shared.test_without_any_shard_it_is_refused_as_a_plain_dequeue_is,
    ),
    "28": (
        dedupe.test_many_callers_store_one_job_of_each_key,
        dedupe.test_keys_are_those_of_a_queue_and_of_a_serialize_key,
        dedupe.test_a_window_begins_at_the_end,
        dedupe.test_a_window_outlasts_a_job_that_is_not_kept,
        dedupe.test_a_key_that_counts_while_its_job_is_kept,
        dedupe.test_cancel_and_delete_end_the_window,
        dedupe.test_a_key_names_its_last_job_while_that_is_kept,
        dedupe.test_a_retry_leaves_a_job_whose_key_has_another_live_one,
        dedupe.test_a_replay_leaves_a_letter_whose_key_has_a_live_job,
        key_corners.test_an_earlier_job_of_a_key_takes_nothing_of_a_later_one_with_it,
        key_corners.test_keys_that_begin_alike_are_others,
        service_keys.test_a_job_is_replaced_by_none_of_another_priority,
        results.test_a_retry_leaves_alone_what_would_be_a_second_live_job_of_its_key,
    ),
    "29": (
        serialize.test_they_are_handed_out_one_at_a_time_in_order,
        key_corners.test_one_at_a_time_and_in_order_whatever_becomes_of_the_jobs,
        key_corners.test_a_place_stays_whatever_is_changed_of_a_job,
        key_corners.test_a_job_that_expired_while_it_waited_is_freed_to_nobody,
        serialize.test_a_chain_goes_through_several_queues,
        serialize.test_a_run_after_of_the_first_keeps_the_others_waiting,
        serialize.test_a_retry_a_requeue_and_a_lapsed_claim_leave_it_the_first,
        serialize.test_a_retry_by_an_operator_takes_a_place_at_the_end,
        serialize.test_a_replay_takes_a_place_at_the_end_and_a_dead_letter_none,
        serialize.test_those_behind_a_deleted_queue_are_freed_by_prune,
        serialize.test_what_waits_is_pending_and_neither_ready_nor_scheduled,
        service_keys.test_a_long_poll_gets_the_next_of_a_key_when_the_first_has_ended,
        proof_keys.test_jobs_of_a_key_are_done_one_at_a_time_and_in_order_while_workers_fail_lapse_and_are_killed,
    ),
    "30": (
        dedupe.test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end,
        dedupe.test_a_resend_of_what_was_kept_is_kept_again,
        dedupe.test_a_send_id_is_remembered_after_a_removal,
        service_keys.test_a_resend_gets_the_first_answer,
    ),
    "31": (
        to_stop.test_a_result_is_kept_for_its_own_time,
        to_stop.test_a_result_outlasts_its_job_but_not_its_removal,
        results.test_a_result_above_the_bound_of_its_queue_fails_the_attempt,
        results.test_a_lookup_waits_for_the_first_end,
        results.test_what_has_ended_or_is_not_there_is_answered_at_once,
    ),
    "32": (
        to_stop.test_what_runs_is_asked_to_stop,
        to_stop.test_a_success_after_the_request_counts,
        to_stop.test_every_other_way_back_ends_as_cancelled,
        results.test_a_job_in_progress_is_asked_to_stop,
    ),
    "33": (
        to_stop.test_a_job_is_not_handed_out_after_its_expiry,
        to_stop.test_a_job_expires_that_is_to_be_retried,
        to_stop.test_jobs_behind_many_that_expired_are_found,
        service_keys.test_an_expired_first_frees_the_next,
    ),
    "34": (
        dedupe.test_a_step_by_older_homes_stores_nothing,
        homes_keyed.test_a_home_that_is_out_refuses_its_keys_and_no_others,
        homes_keyed.test_keys_that_move_wait_while_a_change_is_opening_and_others_go_on,
        dedupe.test_a_former_home_takes_what_it_knows,
        serialize.test_a_barrier_keeps_the_first_job_waiting,
        dedupe.test_windows_go_to_another_shard_and_count_there,
        key_corners.test_windows_give_way_to_what_counts_here,
        proof_keys.test_64_callers_bring_the_same_keys_at_once_and_a_server_is_killed,
        service_keys.test_what_cannot_be_stored_is_refused_as_a_whole,
    ),
    "35": (
        homes_change.test_keys_wait_for_servers_that_do_not_know_them,
        sql_upgrade.test_the_first_extended_job_raises_the_version_and_plain_ones_do_not,
        sql_upgrade.test_a_server_that_knows_no_keys_goes_on_with_the_tables,
    ),
    "36": (
        dedupe.test_a_schedule_fires_once_for_each_time,
        dedupe.test_a_mark_comes_to_a_new_home_and_never_falls,
        dedupe.test_the_mark_of_a_schedule_goes_with_the_tombstone_of_its_entry,
    ),
    "37": (
        named_jobs.test_each_job_is_answered_in_its_place,
        named_jobs.test_a_job_behind_another_one_of_its_serialize_key_stays,
        named_jobs.test_a_job_whose_time_is_over_has_ended_before_maintenance_says_so,
        named_jobs.test_within_the_quota_what_is_beyond_it_stays,
        named_jobs.test_bodies_end_the_answer_and_the_first_always_comes,
        named_jobs.test_large_bodies_come_a_slice_at_a_time,
    ),
    "38": (
        listed.test_a_queue_that_lists_its_claims_keeps_them_from_expiring,
        listed.test_any_other_end_counts_while_a_claim_is_listed,
        listed.test_a_claim_that_was_renewed_since_stays,
        listed.test_the_crash_budget_and_the_dead_letters_count_as_at_any_expiry,
        listed.test_a_job_that_is_to_stop_ends_as_cancelled,
        listed.test_many_claims_that_are_left_alone_take_nothing_of_the_limit,
    ),
    "39": (searches.test_an_empty_list_and_an_empty_key_select_nothing_for_every_action,),
    "40": (
        trails.test_the_attempt_that_runs_and_the_one_that_succeeded,
        trails.test_attempts_that_failed_before_are_kept_with_their_times_and_workers,
        trails.test_attempts_whose_claims_expired_or_were_released,
        trails.test_an_operators_retry_keeps_the_attempt_that_failed,
        trails.test_a_hand_out_that_was_requeued_is_no_attempt,
        trails.test_an_attempt_of_a_job_that_was_to_stop_ended_as_cancelled,
        trails.test_the_last_attempts_are_kept_and_numbered_on,
        trails.test_copies_begin_with_no_attempts,
        trails.test_trails_go_with_their_jobs,
        trails.test_a_job_that_came_from_another_store_goes_on_with_its_trail,
        trails.test_lines_are_kept_with_their_times_and_attempts,
        trails.test_a_line_that_is_sent_twice_is_there_once,
        trails.test_lines_of_a_lost_claim_are_not_kept,
        trails.test_only_the_last_lines_are_kept,
        trails.test_a_log_moves_with_its_job_and_is_not_written_over,
    ),
    "41": (
        tags.test_tags_are_shown_and_found,
        tags.test_a_page_by_tag_has_what_the_request_says,
        tags.test_replace_keeps_the_tags_that_stand,
        tags.test_what_is_removed_is_found_by_its_tags_no_more,
        tags.test_a_deleted_queue_leaves_no_tags_to_the_next_of_its_name,
        tags.test_letters_and_what_is_sent_back_have_the_tags,
        service_tags.test_jobs_of_a_tag_are_found_the_last_first_over_all_shards,
        service_tags.test_tags_that_cannot_be_are_refused_and_nothing_is_stored,
        homes_change.test_a_feature_waits_for_servers_that_do_not_know_it,
    ),
    "42": (
        groups.test_groups_take_turns_whatever_each_has_waiting,
        groups.test_a_job_behind_a_flood_is_handed_out_behind_one_job_of_each_group,
        groups.test_within_a_group_the_order_is_by_run_after_and_age,
        groups.test_jobs_without_a_group_are_a_group_of_their_own,
        groups.test_priorities_count_before_groups_and_each_has_turns_of_its_own,
        groups.test_a_group_that_was_away_gets_no_credit,
        groups.test_a_job_whose_time_is_over_takes_no_turn,
        groups.test_where_the_jobs_of_a_group_end_within_a_claim_all_others_take_its_place,
        groups.test_jobs_come_into_line_when_they_are_due,
        groups.test_a_requeue_gives_the_turn_back,
        groups.test_turns_that_went_back_are_no_credit_for_whoever_comes_then,
        groups.test_what_leaves_its_line_is_not_charged,
        groups.test_calls_by_chance_keep_the_turns,
        clearing.test_no_job_has_a_group_any_more_in_whatever_state,
        clearing.test_a_cleared_queue_is_as_one_that_never_had_groups,
        clearing.test_claims_between_the_steps_hand_each_job_out_once,
        clearing.test_jobs_with_groups_that_come_meanwhile_have_turns_and_are_cleared_too,
        service_groups.test_groups_have_fair_shares_over_two_shards,
        service_groups.test_a_group_that_cannot_be_is_refused_and_nothing_is_stored,
        homes_change.test_a_feature_waits_for_servers_that_do_not_know_it,
    ),
    "43": (
        successors.test_many_callers_store_one_successor_of_each_key,
        successors.test_a_successor_may_have_another_priority_than_the_running_job,
        successors.test_no_window_of_the_one_before_counts,
        successors.test_a_failure_for_good_is_one_beside_a_successor_too,
        successors.test_a_claim_that_expires_for_the_last_time_fails_beside_a_successor,
        successors.test_a_success_counts_although_a_newer_job_had_it_stopped,
        successors.test_a_successor_that_goes_leaves_the_running_job_as_it_was,
        successors.test_a_successor_is_rescheduled_as_a_pending_job,
        successors.test_a_send_id_of_a_replacement_names_the_successor,
        successors.test_a_former_home_takes_a_successor,
        successors.test_a_shard_that_takes_no_jobs_takes_no_successor,
        successors.test_replacements_postpone_a_job_up_to_a_bound,
        successors.test_the_bound_pulls_nothing_in,
        successors.test_the_bound_of_a_successor_counts_from_its_own_enqueue,
        service_successors.test_a_key_is_cancelled_with_its_successor,
        service_successors.test_a_key_is_rescheduled_as_its_successor,
        homes_successors.test_a_successor_overtakes_no_later_job_of_its_chain,
        replace_rules_gate.test_jobs_that_replace_by_rules_of_their_own_wait_for_older_servers,
        sql_upgrade.test_the_first_successor_shuts_older_versions_out,
    ),
}
