//! Each broken backend or engine is caught, and by the violation that it stands for.

use lock_testkit::mutants::Mutation;

/// How many histories a mutant may survive. The first hundred without a mutation are judged in
/// `simulation`.
const SEEDS: u64 = 60;

#[expect(clippy::print_stdout, reason = "which history was enough")]
fn catch(mutation: Mutation) {
    let caught = mutation.hunt(0..SEEDS);
    let (last, violation) =
        caught.unwrap_or_else(|| panic!("{mutation:?} survived {SEEDS} histories"));
    println!("{mutation:?} is caught at seed {last}: {violation}");
}

macro_rules! mutants {
    ($($name:ident: $mutation:ident,)*) => {
        $(#[test] fn $name() { catch(Mutation::$mutation); })*

        #[test]
        fn every_mutant_is_hunted() {
            let hunted = [$(Mutation::$mutation),*];
            let all = Mutation::ALL.iter().copied();
            let violate: Vec<_> = all.filter(|mutation| mutation.violates().is_some()).collect();
            assert_eq!(hunted[..], violate);
        }
    };
}

mutants! {
    acknowledged_only: AcknowledgedOnly,
    contention_as_error: ContentionAsError,
    deadline_from_the_reply: DeadlineFromReply,
    error_as_contention: ErrorAsContention,
    every_request_is_granted: ExcludesNobody,
    names_folded_to_lower_case: FoldsNames,
    hand_over_without_a_new_token: HandOverKeepsToken,
    id_reused: IdReused,
    late_grant_returned: LateGrant,
    lost_waiter: LostWaiter,
    no_expiry: NoExpiry,
    permit_beyond_the_limit: PermitBeyondLimit,
    queue_entry_left_by_a_dropped_waiter: QueueEntryLeft,
    release_by_anyone: ReleaseByAnyone,
    renewal_after_release: RenewalAfterRelease,
    renewal_that_revives_an_expired_lease: RenewalRevives,
    shared_lock_that_admits_a_writer: SharedAdmitsWriter,
    silence_taken_for_a_renewal: SilenceIsConsent,
    token_reused: TokenReused,
    un_lose: UnLose,
}
