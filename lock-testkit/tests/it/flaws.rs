//! Every mutation of a backend is caught by the case that stands for it, which passes without it.

use std::sync::Arc;

use lock_testkit::conformance::{self as cases, Case};
use lock_testkit::harness::Harness;
use lock_testkit::mutants::Mutation;
use lock_testkit::sim::SimBackend;

fn catch<F: Future<Output = ()>>(mutation: Mutation, case: fn(Case) -> F, by: &str) {
    let caught = |mutation| {
        let harness = async move { Arc::new(SimBackend::new(mutation)) as Arc<dyn Harness> };
        cases::caught(Box::pin(harness), case)
    };
    assert_eq!(caught(None), None, "without {mutation:?}");
    let message = caught(Some(mutation));
    let message = message.unwrap_or_else(|| panic!("{mutation:?} is not caught"));
    assert!(
        message.contains(by),
        "{mutation:?} is caught by {message:?}"
    );
}

macro_rules! flaws {
    ($($name:ident: $mutation:ident by $group:ident::$case:ident with $message:literal,)*) => {
        $(#[test]
        fn $name() {
            catch(Mutation::$mutation, cases::$group::$case, $message);
        })*
    };
}

flaws! {
    anyone_releases: ReleaseByAnyone
        by release::old_guard_released_after_its_lease_affects_no_other_holder with "another client",
    counts_from_reply: DeadlineFromReply
        by network::a_late_grant_counts_from_its_request with "valid for",
    errors_are_contention: ErrorAsContention
        by network::an_unreachable_server_is_unavailable with "the lock is held",
    excludes_no_client: ExcludesNobody
        by exclusion::two_clients_exclude_each_other with "two hold the lock",
    excludes_no_counting_client: ExcludesNobody
        by exclusion::no_increment_is_lost with "increments are lost",
    excludes_no_client_in_a_crowd: ExcludesNobody
        by exclusion::one_holder_at_a_time_among_many_tasks_and_clients
        with "was granted the lock while",
    extends_nothing: ExtendsNothing
        by lease::an_extended_lease_lasts_as_long_as_was_asked_for with "another client",
    folds_names: FoldsNames
        by keys::names_that_look_alike_do_not_share_a_lock with "shares a lock",
    hand_over_keeps_token: HandOverKeepsToken
        by handover::tokens_grow_over_hand_overs with "token",
    last_come_first_served: LastComeFirstServed
        by waiting::waiters_are_served_in_the_order_of_their_arrival with "[1, 2, 3, 4, 5, 6]",
    never_expires: NoExpiry
        by lease::a_lease_without_renewal_runs_out with "does not become free",
    nothing_undone: AcknowledgedOnly
        by cancellation::acquire_dropped_after_each_poll_leaves_nothing with "not free",
    places_stay: QueueEntryLeft
        by cancellation::acquire_dropped_while_it_waits_leaves_the_queue with "dropped after",
    releases_late: RenewalAfterRelease
        by release::release_frees_the_lock_at_once with "not free",
    renewals_cut: RenewalsCut
        by lease::a_renewal_cuts_no_lease_that_was_extended with "another client",
    renewals_skipped: RenewalsSkipped
        by lease::a_renewed_lease_excludes_until_its_end with "two hold the lock",
    renewals_take: RenewalRevives
        by lost::a_holder_does_not_take_back_what_the_server_ended with "the loss is signaled",
    tokens_repeat: TokenReused
        by fencing::tokens_grow_over_releases with " after ",
    tries_wait: TriesWait
        by waiting::try_lock_never_waits with "waited",
}
