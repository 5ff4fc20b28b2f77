//! Undoing acquisitions whose outcome is unknown.

use std::time::Duration;

use polylock_core::PendingRelease;

use super::server::fake::Fake;

const TTL: Duration = Duration::from_secs(30);

fn armed(unanswered: usize) -> (Fake, PendingRelease) {
    let fake = Fake::new();
    fake.state().unanswered = unanswered;
    let pending = fake.pending(TTL);
    (fake, pending)
}

#[tokio::test(start_paused = true)]
async fn an_armed_release_is_repeated_until_there_is_an_answer_or_no_lease() {
    let (fake, pending) = armed(3);
    drop(pending);
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 4, "three without an answer and one with");

    let (fake, pending) = armed(usize::MAX);
    drop(pending);
    tokio::time::sleep(TTL * 2).await;
    let after_a_ttl = fake.releases();
    tokio::time::sleep(TTL * 10).await;
    assert_eq!(fake.releases(), after_a_ttl);

    let (fake, pending) = armed(0);
    pending.disarm();
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_lease_is_released_for_as_long_as_it_takes() {
    let (fake, pending) = armed(250);
    fake.state().session = true;
    drop(pending);
    tokio::time::sleep(TTL * 10).await;
    let tries = fake.releases();
    assert!((10..100).contains(&tries), "with pauses: {tries}");
    tokio::time::sleep(TTL * 1_000).await;
    assert_eq!(fake.releases(), 251);
}

#[tokio::test(start_paused = true)]
async fn an_undo_is_done_when_it_returns_or_goes_on_without_an_answer() {
    let (fake, pending) = armed(0);
    pending.undo().await;
    assert_eq!(fake.releases(), 1);
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 1);

    let (fake, pending) = armed(1);
    pending.undo().await;
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 2);
}
