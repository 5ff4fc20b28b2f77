//! Every flaw of a backend is caught by the case that stands for it, which passes without the flaw.

use std::sync::Arc;

use lock_testkit::conformance::{self as cases, Case};
use lock_testkit::double::{Flaw, FlawedMemory};
use lock_testkit::harness::Harness;

fn catch<F: Future<Output = ()>>(flaw: Flaw, case: fn(Case) -> F, by: &str) {
    let caught = |flaw| {
        let harness = Arc::new(FlawedMemory::new(flaw)) as Arc<dyn Harness>;
        cases::caught(Box::pin(async { harness }), case)
    };
    assert_eq!(caught(None), None, "without {flaw:?}");
    let message = caught(Some(flaw)).unwrap_or_else(|| panic!("{flaw:?} is not caught"));
    assert!(message.contains(by), "{flaw:?} is caught by {message:?}");
}

macro_rules! flaws {
    ($($name:ident: $flaw:ident by $group:ident::$case:ident with $message:literal,)*) => {
        $(#[test]
        fn $name() {
            catch(Flaw::$flaw, cases::$group::$case, $message);
        })*
    };
}

flaws! {
    anyone_releases: AnyoneReleases
        by release::old_guard_released_after_its_lease_hurts_nobody with "another client",
    counts_from_reply: CountsFromReply
        by network::a_late_grant_counts_from_its_request with "valid for",
    errors_are_contention: ErrorsAreContention
        by network::an_unreachable_server_is_unavailable with "the lock is held",
    excludes_nobody: ExcludesNobody
        by exclusion::two_clients_exclude_each_other with "two hold the lock",
    excludes_nobody_who_counts: ExcludesNobody
        by exclusion::no_increment_is_lost with "increments are lost",
    excludes_nobody_in_a_crowd: ExcludesNobody
        by exclusion::one_holder_at_a_time_among_many_tasks_and_clients
        with "was granted the lock while",
    folds_names: FoldsNames
        by keys::names_that_look_alike_do_not_share_a_lock with "shares a lock",
    hand_over_keeps_token: HandOverKeepsToken
        by handover::tokens_grow_over_hand_overs with "token",
    last_come_first_served: LastComeFirstServed
        by waiting::waiters_are_served_in_the_order_of_their_arrival with "[1, 2, 3, 4, 5, 6]",
    never_expires: NeverExpires
        by lease::a_lease_without_renewal_runs_out with "does not become free",
    nothing_undone: NothingUndone
        by cancellation::acquire_dropped_after_each_poll_leaves_nothing with "something left",
    places_stay: PlacesStay
        by cancellation::acquire_dropped_while_it_waits_leaves_the_queue with "dropped after",
    releases_late: ReleasesLate
        by release::release_frees_the_lock_at_once with "not free",
    renewals_take: RenewalsTake
        by lost::a_holder_does_not_take_back_what_the_server_ended with "the loss is signaled",
    tokens_repeat: TokensRepeat
        by fencing::tokens_grow_over_releases with "token 1 after 1",
    tries_wait: TriesWait
        by waiting::try_lock_never_waits with "waited",
}
