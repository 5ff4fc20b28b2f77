//! A test for each case, by name and backend.

/// Makes a test of every conformance case, `conformance::GROUP::CASE`.
///
/// `harness` is an expression for a [`Harness`](crate::Harness), evaluated for each case;
/// it may `.await`. `skip` names each [`Need`](crate::Need) that the backend or the
/// harness does not meet. Both directions are tested. A missing need that is not named fails the cases that
/// have it, except cases with another need that is named. A case with a need that is named becomes
/// `conformance::GROUP::CASE::is_not_offered`, which asserts that the first such need is really missing, and
/// that its use is an error.
///
/// Several backends in one file need a module each.
///
/// # Examples
///
/// ```
/// mod memory {
///     use polylock_core::memory::Memory;
///
///     polylock_conformance::conformance!(harness = Memory::new(), skip = [Taker]);
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    (harness = $harness:expr $(, skip = [$($lacking:ident),* $(,)?])? $(,)?) => {
        fn conformance_harness() -> $crate::cases::NewHarness {
            ::std::boxed::Box::pin(async {
                ::std::sync::Arc::new($harness)
                    as ::std::sync::Arc<dyn $crate::Harness>
            })
        }

        // An unknown need in the skip list does not compile.
        const _: &[$crate::cases::Need] =
            &[$($($crate::cases::Need::$lacking),*)?];

        mod conformance {
            $crate::__conformance_table! { [$($($lacking)*)?] }
        }
    };
}

/// Every case with its needs.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_table {
    ($skip:tt) => {
        $crate::__conformance_group! { $skip admin {
            breaking_a_free_lock_does_nothing [Admin];
            breaking_a_lock_lets_the_next_one_in [Admin];
            inspect_shows_all_readers [Admin Shared];
            inspect_shows_the_holder [Admin];
            inspect_shows_waiters [Admin];
            list_shows_what_is_held_in_order [Admin];
            the_holder_of_a_broken_lock_learns_it [Admin];
            watch_reports_what_is_taken_and_freed [Admin];
        } }
        $crate::__conformance_group! { $skip adoption {
            a_lease_that_has_ended_is_not_adopted [Lease Admin Adoption];
            a_shared_lease_is_not_adopted [Lease Admin Adoption Shared];
            a_waiter_keeps_its_place_over_an_adoption [Lease Admin Adoption];
            an_adopted_lease_lasts_for_its_ttl [Lease Admin Adoption];
            an_adoption_dropped_after_each_poll_can_be_repeated [Lease Admin Adoption];
            an_adoption_that_arrives_twice_is_one [Lease Admin Adoption Duplicates];
            an_adoption_that_is_repeated_is_answered_alike [Lease Admin Adoption];
            an_adoption_without_an_answer_is_repeated [Lease Admin Adoption Faults];
            an_unreachable_server_has_no_answer_about_adoption [Lease Admin Adoption Faults];
            one_of_several_adopters_has_the_lease [Lease Admin Adoption];
            the_former_holder_of_an_adopted_lease_has_lost_it [Lease Admin Adoption];
            tokens_grow_over_adoptions [Lease Admin Adoption Fencing];
        } }
        $crate::__conformance_group! { $skip cancellation {
            a_dropped_waiter_does_not_swallow_the_lock [];
            acquire_dropped_after_each_poll_leaves_nothing [];
            acquire_dropped_before_it_reads_the_answer_has_no_min_hold [];
            acquire_dropped_before_it_reads_the_answer_leaves_nothing [];
            acquire_dropped_while_it_waits_leaves_the_queue [];
            guard_dropped_by_a_panic_is_released [];
            guard_dropped_in_another_runtime_is_released [];
            guard_dropped_outside_a_runtime_is_released [];
            release_dropped_after_each_poll_goes_on [];
            runtime_shut_down_with_live_guards_loses_no_lock_for_ever [];
        } }
        $crate::__conformance_group! { $skip coordination {
            a_job_runs_once_in_its_period_on_two_clients [Admin Fencing Records];
            a_job_that_failed_is_due_at_once [Admin Fencing Records];
            a_leader_that_died_is_replaced [Admin Fencing Lease];
            a_resignation_elects_a_candidate_that_waits [Admin Fencing];
            followers_see_the_address_of_the_present_leader [Admin Fencing Records];
            one_leads_at_a_time [Admin Fencing];
        } }
        $crate::__conformance_group! { $skip crash {
            a_holder_that_was_stopped_sees_its_loss_at_once [Taker];
            a_waiter_that_is_killed_is_passed_over [Taker];
            no_increment_of_several_processes_is_lost [Taker];
            processes_killed_at_any_moment_leave_order [Taker];
            waiter_gets_lock_after_holder_is_killed [Taker];
        } }
        $crate::__conformance_group! { $skip downgrade {
            a_downgrade_leaves_no_gap_for_a_writer [Downgrade];
            a_downgraded_lock_admits_readers_and_no_writer [Downgrade];
            a_downgraded_lock_is_kept_beyond_its_ttl [Downgrade];
            a_shared_lock_cannot_be_downgraded [Downgrade];
        } }
        $crate::__conformance_group! { $skip exclusion {
            different_keys_do_not_exclude_each_other [];
            no_increment_is_lost [];
            one_holder_at_a_time_although_futures_and_guards_are_dropped [];
            one_holder_at_a_time_among_many_tasks_and_clients [];
            two_clients_exclude_each_other [];
            two_guards_of_one_client_exclude_each_other [];
        } }
        $crate::__conformance_group! { $skip fencing {
            a_token_stays_as_it_is [Fencing];
            tokens_grow_among_competitors [Fencing];
            tokens_grow_over_a_break [Fencing Admin];
            tokens_grow_over_cancelled_requests [Fencing];
            tokens_grow_over_drops [Fencing];
            tokens_grow_over_expiry [Fencing Lease];
            tokens_grow_over_releases [Fencing];
        } }
        $crate::__conformance_group! { $skip handover {
            a_lock_that_was_handed_over_is_kept_beyond_its_ttl [];
            handing_over_is_bounded [Fair Look];
            handing_over_lets_another_client_in [];
            tokens_grow_over_hand_overs [Fencing];
        } }
        $crate::__conformance_group! { $skip keys {
            hostile_names_are_carried_exactly [];
            hostile_names_are_listed_exactly [Admin];
            hostile_names_do_not_share_a_lock [];
            names_that_look_alike_do_not_share_a_lock [];
            random_names_do_not_share_a_lock [];
            the_longest_name_in_a_namespace_is_listed [Admin];
            the_longest_names_differ_in_their_last_byte [];
        } }
        $crate::__conformance_group! { $skip lease {
            a_blocked_runtime_keeps_its_locks [];
            a_guard_is_valid_for_less_than_the_ttl_from_before_the_request [Lease];
            a_held_lock_is_not_signaled [];
            a_lease_without_renewal_runs_out [Lease];
            a_renewal_cuts_no_lease_that_was_extended [Lease];
            a_renewed_lease_excludes_until_its_end [Lease];
            an_extended_lease_lasts_as_long_as_was_asked_for [Lease];
            an_extension_that_cannot_be_kept_is_refused [Lease];
            expiring_does_not_warn_of_a_lock_that_is_renewed [];
            expiring_warns_before_the_loss [Lease];
            manual_renewal_extends_the_lease [Lease];
            renewal_keeps_a_lock_beyond_its_ttl [];
            renewal_keeps_many_locks [];
        } }
        $crate::__conformance_group! { $skip lost {
            a_holder_does_not_take_back_what_the_server_ended [Faults];
            a_holder_learns_that_the_server_ended_its_lock [Faults];
            a_holder_that_is_cut_off_loses_its_lock_in_time [Faults];
            a_holder_that_was_cut_off_is_out_before_the_next_is_in [Faults];
            a_released_lock_is_never_lost [];
            a_short_outage_costs_no_lock [Faults];
            loss_is_signaled_before_another_client_gets_the_lock [Lease];
            lost_is_final [Lease];
            run_drops_the_work_on_loss [Lease];
            run_returns_what_the_work_returns [];
            the_longest_hold_ends_a_lock [];
            the_signal_outlives_the_guard [];
        } }
        $crate::__conformance_group! { $skip multi {
            crossing_orders_do_not_deadlock [];
            lock_all_dropped_after_each_poll_leaves_nothing [];
            lock_all_holds_every_key_in_order [];
            lock_all_holds_nothing_after_a_refusal [];
            lock_all_keeps_every_key_beyond_the_ttl [];
        } }
        $crate::__conformance_group! { $skip network {
            a_grant_that_comes_too_late_is_no_guard [Lease Faults];
            a_grant_without_an_answer_leaves_nothing [Faults];
            a_late_grant_counts_from_its_request [Lease Faults];
            a_ping_is_answered_by_a_server_that_is_reached [Admin Faults];
            a_place_in_the_queue_without_an_answer_leaves_nothing [Faults];
            a_renewal_that_fails_once_costs_no_lock [Lease Faults];
            a_request_that_arrives_twice_is_one [Duplicates];
            an_unreachable_server_is_unavailable [Faults];
            renewals_that_hang_cost_the_lock_in_time [Lease Faults];
            the_wait_bounds_a_server_that_is_silent [Faults];
        } }
        $crate::__conformance_group! { $skip permits {
            the_permit_of_a_dead_holder_is_free_after_its_ttl [Permits Lease];
            a_limit_of_one_is_exclusive [Permits];
            a_waiter_gets_the_next_permit [Permits];
            each_permit_counts_by_its_own_limit [Permits];
            at_most_the_limit_hold_permits [Permits];
            competitors_are_never_more_than_the_limit [Permits];
            permits_and_exclusive_holders_exclude_each_other [Permits];
        } }
        $crate::__conformance_group! { $skip queue {
            a_full_queue_refuses [Bare];
            a_task_that_gives_up_swallows_no_wake_up [];
            a_thousand_tasks_are_one_contender [Bare];
            a_wait_in_the_queue_ends_at_its_limit [];
            acquire_dropped_after_each_poll_leaves_no_line [];
            tasks_are_served_in_the_order_of_their_arrival [];
            tasks_do_not_wait_for_a_holder_that_lost_the_lock [Lease];
            the_place_of_a_contender_that_gave_up_is_taken_over [Bare];
        } }
        $crate::__conformance_group! { $skip records {
            a_record_has_any_bytes_up_to_its_limit [Admin Records];
            a_record_is_kept_for_its_time [Admin Records];
            a_record_is_no_lock [Admin Records];
            a_record_outlives_its_holder [Admin Records Fencing];
            a_smaller_token_replaces_no_record [Admin Records];
            a_write_dropped_after_each_poll_leaves_a_whole_record [Admin Records];
            an_unreachable_server_has_no_answer_about_records [Admin Records Faults];
            records_of_two_keys_do_not_meet [Admin Records];
            records_of_two_namespaces_do_not_meet [Admin Records];
            the_record_of_the_largest_token_stays [Admin Records];
        } }
        $crate::__conformance_group! { $skip reentry {
            an_owner_does_not_enter_a_lock_that_it_lost [Lease];
            an_owner_enters_again_until_its_last_guard [];
            dropped_guards_of_an_owner_are_counted [];
            guards_of_an_owner_are_lost_together [];
            only_the_owner_enters_again [];
        } }
        $crate::__conformance_group! { $skip release {
            a_lease_is_kept_and_released_by_its_id [Lease Admin];
            a_release_after_the_min_hold_is_a_release [];
            a_release_that_arrives_twice_is_one [Duplicates];
            a_release_without_an_answer_frees_the_lock [Faults];
            a_released_lock_is_not_renewed [Lease Faults];
            abandoned_lock_stays_taken_until_its_lease_is_over [Lease];
            old_guard_dropped_after_its_lease_affects_no_other_holder [Lease];
            old_guard_released_after_its_lease_affects_no_other_holder [Lease];
            release_frees_the_lock_at_once [];
            shutdown_does_not_touch_live_guards [];
            shutdown_waits_for_dropped_guards [];
            the_min_hold_outlasts_the_release [];
        } }
        $crate::__conformance_group! { $skip requests {
            a_hold_out_of_range_is_refused [];
            a_name_that_is_no_key_is_refused [];
            a_ttl_out_of_range_is_refused [];
            an_owner_is_served_or_refused [];
            endless_waits_and_holds_are_served [];
            the_shortest_ttl_is_served [];
        } }
        $crate::__conformance_group! { $skip shared {
            a_dead_reader_does_not_outlive_its_ttl [Shared Lease];
            a_reader_keeps_its_lock_beyond_its_ttl [Shared];
            a_waiting_writer_is_not_starved_by_readers [Shared];
            a_writer_waits_for_the_last_reader [Shared];
            readers_and_writers_that_compete_never_meet [Shared];
            readers_hold_together [Shared];
            readers_wait_for_the_writer_and_enter_together [Shared];
            tokens_grow_between_readers_and_writers [Shared Fencing];
        } }
        $crate::__conformance_group! { $skip tickets {
            a_ticket_passes_the_lock_to_another_client [Lease Admin Adoption Fencing];
            adopt_dropped_after_each_poll_leaves_nothing_or_the_ticket [Lease Admin Adoption];
            an_adoption_without_an_answer_is_an_adoption [Lease Admin Adoption Faults];
            of_several_that_adopt_a_ticket_one_holds_the_lock [Lease Admin Adoption];
        } }
        $crate::__conformance_group! { $skip waiting {
            a_wait_ends_at_its_limit_with_contention [];
            a_timeout_names_the_holder [Admin];
            a_wait_of_zero_is_one_attempt [];
            a_wait_without_limit_lasts [];
            a_waiter_that_gave_up_is_passed_over [];
            try_lock_never_waits [];
            waiter_gets_lock_after_holder_is_dropped [];
            waiter_gets_lock_after_lease_of_holder_expired [Lease];
            waiter_gets_lock_after_release [];
            waiters_are_served_in_the_order_of_their_arrival [Fair Look];
        } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_group {
    ($skip:tt $group:ident { $($case:ident $needs:tt;)* }) => {
        mod $group {
            $($crate::__conformance_case! { $skip $group $case [] $needs })*
        }
    };
}

/// One case: the needs that are met are moved to the first list, one by one.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_case {
    ($skip:tt $group:ident $case:ident [$($met:ident)*] []) => {
        #[test]
        fn $case() {
            $crate::cases::run(
                &[$($crate::cases::Need::$met),*],
                super::super::conformance_harness(),
                $crate::cases::$group::$case,
            );
        }
    };
    ($skip:tt $group:ident $case:ident [$($met:ident)*] [$need:ident $($rest:ident)*]) => {
        $crate::__conformance_skips! { $need $skip
            {
                mod $case {
                    #[test]
                    fn is_not_offered() {
                        $crate::cases::run_lacking(
                            $crate::cases::Need::$need,
                            super::super::super::conformance_harness(),
                        );
                    }
                }
            }
            {
                $crate::__conformance_case! {
                    $skip $group $case [$($met)* $need] [$($rest)*]
                }
            }
        }
    };
}

/// Chooses the first block if the skip list has the need, else the second.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_skips {
    ($need:ident [] { $($skipped:tt)* } { $($run:tt)* }) => { $($run)* };
    (Admin [Admin $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Adoption [Adoption $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Bare [Bare $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Downgrade [Downgrade $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Duplicates [Duplicates $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Fair [Fair $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Faults [Faults $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Fencing [Fencing $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Lease [Lease $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Look [Look $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Permits [Permits $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Records [Records $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Shared [Shared $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    (Taker [Taker $($rest:ident)*] { $($skipped:tt)* } $run:tt) => { $($skipped)* };
    ($need:ident [$other:ident $($rest:ident)*] $skipped:tt $run:tt) => {
        $crate::__conformance_skips! { $need [$($rest)*] $skipped $run }
    };
}
