//! Every name is carried exactly, and different names are different locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use polylock_core::engine::{Entropy, SeededEntropy};
use polylock_core::layers::Prefix;
use polylock_core::{DistributedLock, DistributedLockExt, LockKey};

use super::Case;
use super::admin::{inspect, list};
use super::support::release_all;

/// What follows the prefix of the case in names that break careless stores.
pub(super) fn hostile() -> Vec<String> {
    let short = [
        "a/b/c", "a//b", "/", "//", ".", "..", "a/../b", "~", "%2F", "%00", "a b", "a ", " a", "'",
        "\"", "';--", "`id`", "$(id)", "${HOME}", "{tag}", "{", "}", "{}", "*", "?", "[a-z]", "_",
        "%", "\\", "\\0", "a\\'b", "#", "&a=b", "a:b", "|", "<script>", "null", "0", "-1",
        "\u{e9}", "e\u{301}", "\u{212b}", "\u{c5}", "\u{fb01}", "\u{200d}", "\u{feff}", "\u{ffff}",
        "\u{130}", "\u{131}", "I", "i", "strasse", "STRASSE",
    ];
    let long = [
        "../../etc/passwd",
        "'; DROP TABLE locks; --",
        "zookeeper",
        "_c_x-lock-0000000001",
        "\u{1f512}\u{1f600}",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "\u{202e}abc",
        "\u{10ffff}",
        "stra\u{df}e",
    ];
    short
        .iter()
        .chain(&long)
        .map(|name| (*name).to_owned())
        .collect()
}

/// Hostile names are locked and shown as they are.
pub async fn hostile_names_are_carried_exactly(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    for name in hostile() {
        let key = case.named(&name);
        let guard = case.lock(&client, &key).await;
        assert_eq!(guard.key().as_bytes(), key.as_bytes());
        let attempt = async || other.request(&key).ttl(case.ttl()).try_acquire().await;
        let refused = attempt().await.expect("contention is no error");
        assert!(
            refused.is_none(),
            "another client got the lock: {refused:?}"
        );
        guard.release().await.expect("a held lock is released");
        let next = attempt().await.expect("contention is no error");
        let next = next.expect("the lock is not free");
        next.release().await.expect("a held lock is released");
    }
}

/// All of the hostile names can be held at once.
pub async fn hostile_names_do_not_share_a_lock(case: Case) {
    let client = case.client().await;
    hold_all(&case, &client, hostile()).await;
}

/// Names that are taken for the same by a store that folds, trims, decodes or normalizes.
pub async fn names_that_look_alike_do_not_share_a_lock(case: Case) {
    let client = case.client().await;
    let short = [
        "Job", "job", "JOB", "job ", " job", "job  ", "jo b", "job/", "/job", "job//", "./job",
        "job%20", "job+", "j\u{f6}b", "job0", "job00", "1", "01", "1.0", "a:b", "a/b", "a%2Fb",
        "a%2fb", "a\\b", "a_b", "a-b", "a.b",
    ];
    let long = ["jo\u{308}b", "job\u{200b}", "\u{ff4a}ob"];
    let alike = short.iter().chain(&long).map(|name| (*name).to_owned());
    hold_all(&case, &client, alike.collect()).await;
}

/// Holds all of them at once, or as many at a time as a client can.
async fn hold_all(case: &Case, client: &dyn DistributedLock, names: Vec<String>) {
    let at_once = client.capabilities().max_locks.max(1);
    for names in names.chunks(at_once) {
        let mut guards = Vec::new();
        for name in names {
            let key = case.named(name);
            let attempt = client.request(&key).ttl(case.ttl()).try_acquire().await;
            let shared = format!("{key:?} shares a lock with one before it");
            guards.push(attempt.expect("the name is carried").expect(&shared));
        }
        release_all(guards).await;
    }
}

/// Random names can be held at once, each by itself.
pub async fn random_names_do_not_share_a_lock(case: Case) {
    let seed = seed();
    let client = case.client().await;
    let entropy = SeededEntropy::new(seed);
    let alphabet: Vec<char> = "abAB01/.:%'\"\\ {}*_-\u{e9}e\u{301}\u{1f512}"
        .chars()
        .collect();
    let mut names = BTreeSet::new();
    while names.len() < 100 {
        let mut bytes = [0; 8];
        entropy.fill(&mut bytes);
        let length = usize::from(bytes[0] % 6) + 1;
        let letter = |byte: &u8| alphabet[usize::from(*byte) % alphabet.len()];
        names.insert(bytes[1..=length].iter().map(letter).collect::<String>());
    }
    hold_all(&case, &client, names.into_iter().collect()).await;
}

/// The seed that `LOCK_TEST_SEED` names, or a random one; it is printed either way.
fn seed() -> u64 {
    let given = std::env::var("LOCK_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        polylock_core::engine::OsEntropy::default().fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    // Shown by the test runner if the case fails.
    #[expect(clippy::print_stdout, reason = "the seed repeats a failure")]
    {
        println!("LOCK_TEST_SEED={seed}");
    }
    seed
}

/// The longest names are different locks even if they differ only in their last byte.
pub async fn the_longest_names_differ_in_their_last_byte(case: Case) {
    let client = case.client().await;
    let longest = client.capabilities().max_key_len.min(LockKey::MAX_LEN);
    let stem = format!("{}/{}", case.prefix(), "x".repeat(longest));
    let ends = ["a", "b", "A"].map(|end| format!("{}{end}", &stem[..longest - 1]));
    let mut guards = Vec::new();
    for name in ends {
        assert_eq!(name.len(), longest);
        let attempt = client.request(name).ttl(case.ttl()).try_acquire().await;
        let guard = attempt.expect("the name is carried");
        guards.push(guard.expect("two long names share a lock"));
    }
    release_all(guards).await;
}

/// The longest name in the longest namespace is listed.
pub async fn the_longest_name_in_a_namespace_is_listed(case: Case) {
    let client = case.client().await;
    let namespace = format!("{:n<1$}", case.prefix(), LockKey::MAX_NAMESPACE_LEN);
    let inside = Prefix::new(Arc::clone(&client), &namespace).expect("it is a namespace");
    let longest = inside.capabilities().max_key_len.min(LockKey::MAX_LEN);
    let key = LockKey::new("x".repeat(longest)).expect("it is not too long");
    let guard = case.lock(&inside, &key).await;
    let listed = list(&inside, "").await;
    let listed: Vec<_> = listed.into_iter().map(|info| info.key).collect();
    assert_eq!(listed, [key]);
    release_all([guard]).await;
}

/// The administration shows hostile names as they are.
pub async fn hostile_names_are_listed_exactly(case: Case) {
    let client = case.client().await;
    let mut guards = Vec::new();
    for name in hostile().into_iter().take(client.capabilities().max_locks) {
        guards.push(case.lock(&client, &case.named(&name)).await);
    }
    let listed = list(&client, case.prefix()).await;
    let listed: Vec<_> = listed.into_iter().map(|info| info.key).collect();
    let held: BTreeSet<_> = guards.iter().map(|guard| guard.key().clone()).collect();
    assert!(listed.iter().eq(&held), "{listed:?}");
    for guard in guards {
        let shown = inspect(&client, guard.key()).await;
        assert_eq!(shown.expect("it is held").key, *guard.key());
        guard.release().await.expect("a held lock is released");
    }
}
