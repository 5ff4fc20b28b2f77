//! Each broken backend or engine is caught, and by the violation that it stands for.

use lock_testkit::mutants::Mutation;
use lock_testkit::sim::ViolationKind;

/// How many histories a mutant may survive. The first hundred without a mutation are judged in
/// `simulation`.
const SEEDS: u64 = 60;

#[expect(clippy::print_stdout, reason = "which history was enough")]
fn catch(mutation: Mutation, shows: ViolationKind) {
    let caught = mutation.hunt(shows, 0..SEEDS);
    let (last, violation) =
        caught.unwrap_or_else(|| panic!("{mutation:?} survived {SEEDS} histories"));
    println!("{mutation:?} is caught at seed {last}: {violation}");
}

macro_rules! mutants {
    ($($name:ident: $mutation:ident shows $kind:ident,)*) => {
        $(#[test] fn $name() { catch(Mutation::$mutation, ViolationKind::$kind); })*

        // Does not compile while a mutation is neither hunted here nor caught by the suite alone.
        const _: fn(Mutation) = |mutation| match mutation {
            $(Mutation::$mutation |)*
            Mutation::ExtendsNothing
            | Mutation::LastComeFirstServed
            | Mutation::RenewalsCut
            | Mutation::RenewalsSkipped
            | Mutation::TriesWait => {}
        };
    };
}

mutants! {
    acknowledged_only: AcknowledgedOnly shows Orphan,
    contention_as_error: ContentionAsError shows FalseError,
    deadline_from_the_reply: DeadlineFromReply shows BeyondExpiry,
    error_as_contention: ErrorAsContention shows FalseContention,
    every_request_is_granted: ExcludesNobody shows Overlap,
    names_folded_to_lower_case: FoldsNames shows BeyondExpiry,
    hand_over_without_a_new_token: HandOverKeepsToken shows TokenOrder,
    id_reused: IdReused shows Overlap,
    late_grant_returned: LateGrant shows BeyondExpiry,
    lost_waiter: LostWaiter shows PassedOver,
    no_expiry: NoExpiry shows PassedOver,
    permit_beyond_the_limit: PermitBeyondLimit shows Overlap,
    queue_entry_left_by_a_dropped_waiter: QueueEntryLeft shows Orphan,
    release_by_anyone: ReleaseByAnyone shows Overlap,
    renewal_after_release: RenewalAfterRelease shows HeldAfterRelease,
    renewal_that_revives_an_expired_lease: RenewalRevives shows BeyondExpiry,
    shared_lock_that_admits_a_writer: SharedAdmitsWriter shows Overlap,
    silence_taken_for_a_renewal: SilenceIsConsent shows BeyondExpiry,
    token_reused: TokenReused shows TokenOrder,
    un_lose: UnLose shows Unlost,
}
