//! The backend and the layers for each URL.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin as _;
use polylock_core::memory::{Memory, MemoryBackend};
use polylock_core::prelude::*;
use polylock_core::{Backend, LockUrl, Registry, Result};

use super::local_queue::handed_over;
use super::support::{Log, memory, settle};

/// A memory store that pretends to be a server, and remembers the URLs it was asked for.
#[derive(Clone, Debug)]
struct Example {
    memory: Arc<Memory>,
    urls: Arc<Mutex<Vec<String>>>,
    schemes: &'static [&'static str],
    namespace: &'static str,
}

impl Example {
    fn new() -> Self {
        Self {
            memory: Arc::new(Memory::new()),
            urls: Arc::default(),
            schemes: &["example", "examples"],
            namespace: "",
        }
    }

    fn named(schemes: &'static [&'static str]) -> Self {
        let example = Self::new();
        Self { schemes, ..example }
    }

    fn registry(&self) -> Registry {
        let registry = Registry::new().with(self.clone());
        let registry = registry.and_then(|registry| registry.with(MemoryBackend::default()));
        registry.expect("the schemes differ")
    }

    fn with_namespace(namespace: &'static str) -> Self {
        let new = Self::new();
        Self { namespace, ..new }
    }

    /// The locks of a URL with these parameters.
    async fn connect(&self, params: &str) -> Arc<dyn DistributedLock> {
        let url = format!("example://h{params}");
        self.registry().connect(&url).await.expect("it is right")
    }

    async fn holders(&self) -> Vec<String> {
        let locks = self.memory.list("").await.expect("it is reached");
        locks.into_iter().map(|info| info.key.to_string()).collect()
    }
}

#[async_trait]
impl Backend for Example {
    fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    fn default_port(&self, _: &str) -> Option<u16> {
        Some(4711)
    }

    fn default_namespace(&self) -> &'static str {
        self.namespace
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        url.expect_hosts()?;
        let mut params = url.params();
        let ping_every = params.duration("ping-every")?;
        params.finish()?;
        let mut urls = self.urls.lock().expect("not poisoned");
        urls.push(format!("{url} {ping_every:?}"));
        Ok(Arc::new(self.memory.client()))
    }
}

async fn refusal(registry: &Registry, url: &str) -> String {
    let error = registry.connect(url).await.expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(!error.is_retryable());
    error.to_string()
}

#[tokio::test]
async fn the_backend_sees_its_own_parameters_alone() {
    let example = Example::new();
    let url = "example://u:s3ntinel@h/x?namespace=a&ping-every=1s&max-handovers=0&local-queue=on";
    example.registry().connect(url).await.unwrap();
    let seen = "example://u:***@h/x?ping-every=*** Some(1s)";
    assert_eq!(*example.urls.lock().unwrap(), [seen]);
}

#[tokio::test]
async fn the_namespace_goes_before_the_key() {
    let example = Example::with_namespace("lock");
    let registry = example.registry();
    let cases = [
        ("", "lock", "lock:k"),
        ("?namespace=", "", "k"),
        ("?namespace=shop", "shop", "shop:k"),
    ];
    for (params, namespace, stored) in cases {
        let url = format!("examples://h{params}");
        let locks = registry.connect(&url).await.unwrap();
        let guard = locks.lock("k").await.unwrap();
        assert_eq!(guard.key().as_str(), "k");
        assert_eq!(example.holders().await, [stored]);
        guard.release().await.unwrap();
        let url = registry.backend_url(&url).unwrap();
        assert_eq!(url.namespace(), namespace);
    }
    let refused = refusal(&registry, "example://h?namespace=a:b").await;
    assert!(refused.starts_with("example: a namespace has"), "{refused}");
}

#[tokio::test]
async fn the_local_queue_keeps_one_contender_unless_it_is_off() {
    for (params, contenders) in [("", 1), ("?local-queue=off", 2)] {
        let example = Example::new();
        let locks = example.connect(params).await;
        let other = example.memory.client();
        let key = LockKey::new("k").unwrap();
        let _guard = other.lock("k").await.unwrap();
        let wait = |locks: Arc<dyn DistributedLock>| async move { locks.lock("k").await.map(drop) };
        let waiting = [Arc::clone(&locks), locks].map(|locks| tokio::spawn(wait(locks)));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while example.memory.waiters(&key) != contenders {
            assert!(tokio::time::Instant::now() < deadline, "{params}");
            tokio::task::yield_now().await;
        }
        // Both tasks have had many turns when the last contender has come.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(example.memory.waiters(&key), contenders, "{params}");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn the_local_queue_is_bounded_by_the_url() {
    let example = Example::new();
    let locks = example.connect("?max-waiters=1").await;
    let _guard = locks.lock("k").await.unwrap();
    let first = Arc::clone(&locks);
    let first = tokio::spawn(async move { first.lock("k").await.map(drop) });
    tokio::task::yield_now().await;
    let error = locks.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn hand_overs_end_after_the_time_of_the_url() {
    let example = Example {
        memory: Arc::new(memory()),
        ..Example::new()
    };
    let params = "?namespace=&max-handovers=1&handover-time=50ms";
    let here = example.connect(params).await;
    let place = handed_over(&here, &example.memory).await;
    // A millisecond each, and the last of the run is told in advance.
    assert!((50..=52).contains(&place), "granted in place {place}");
}

#[tokio::test]
async fn wrong_parameters_of_the_layers_are_refused() {
    let registry = Example::new().registry();
    let cases = [
        r#"local-queue=of | parameter "local-queue" is "of" and must be on or off"#,
        "max-handovers=many | must be a whole number from 0 to 1000000",
        "max-waiters=0 | must be a whole number from 1 to 1000000",
        "handover-time=61s | handover-time is at most 60s",
        "local-queue=off&max-waiters=5 | handover-time, max-handovers and max-waiters need \
         local-queue=on",
    ];
    for case in cases {
        let (params, part) = case.split_once(" | ").expect(case);
        let refused = refusal(&registry, &format!("example://h?{params}")).await;
        let is_named = refused.starts_with("example: ");
        assert!(is_named && refused.contains(part), "{refused}");
    }
}

#[tokio::test]
async fn a_misspelt_parameter_may_be_one_of_the_layers_or_of_the_backend() {
    let registry = Example::new().registry();
    for (misspelt, meant) in [("name_space", "namespace"), ("pingevery", "ping-every")] {
        let refused = refusal(&registry, &format!("example://h?{misspelt}=1")).await;
        let known = "handover-time, local-queue, max-handovers, max-waiters, namespace, ping-every";
        let expected = format!(
            "example: unknown parameter {misspelt:?}, did you mean {meant:?}? (known: {known})"
        );
        assert_eq!(refused, expected);
    }
}

#[tokio::test]
async fn bare_is_the_backend_without_layers() {
    let example = Example::with_namespace("lock");
    let registry = example.registry();
    let locks = registry.connect_bare("example://h").await.unwrap();
    let _guard = locks.lock("k").await.unwrap();
    assert_eq!(example.holders().await, ["k"]);
    assert!(!locks.capabilities().reentry);
    let refused = registry.connect_bare("example://h?namespace=a").await;
    let error = refused.unwrap_err();
    let unknown = r#"unknown parameter "namespace""#;
    assert!(error.message().starts_with(unknown), "{error}");
}

#[tokio::test]
async fn a_stack_over_locks_of_the_application_excludes_that_of_a_url() {
    let example = Example::with_namespace("lock");
    let registry = example.registry();
    let by_url = registry.connect("example://h").await.unwrap();
    let bare = registry.connect_bare("example://h").await.unwrap();
    let own = registry.stack(Arc::clone(&bare), "lock").unwrap();
    assert!(own.capabilities().reentry);
    let guard = by_url.lock("k").await.unwrap();
    assert_eq!(example.holders().await, ["lock:k"]);
    assert!(own.try_lock("k").await.unwrap().is_none());
    let other = registry.stack(Arc::clone(&bare), "").unwrap();
    let _without_namespace = other.try_lock("k").await.unwrap().unwrap();
    drop(guard);
    let error = registry.stack(bare, "a\n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}

#[tokio::test]
async fn schemes_are_listed_taken_and_checked() {
    let mut registry = Example::new().registry();
    let schemes: Vec<_> = registry.schemes().collect();
    assert_eq!(schemes, ["example", "examples", "memory"]);
    let taken = registry.register(Example::named(&["other", "example"]));
    let taken = taken.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::InvalidConfig);
    let expected = r#"the scheme "example" is registered already"#;
    assert_eq!(taken.message(), expected);
    for wrong in [&[""] as &[_], &["Upper"], &["a b"], &["1st"]] {
        assert!(registry.register(Example::named(wrong)).is_err());
    }
    assert_eq!(registry.schemes().count(), 3);
    registry
        .register(Example::named(&["a"]))
        .unwrap()
        .register(Example::named(&["b+c"]))
        .unwrap();
    registry.connect("B+C://h").await.unwrap();
    let refused = refusal(&registry, "exampel://h").await;
    assert!(refused.starts_with(r#"unknown scheme "exampel", did you mean "example"?"#));
    let refused = refusal(&Registry::new(), "memory:").await;
    assert_eq!(refused, r#"unknown scheme "memory" (registered: none)"#);
}

#[tokio::test]
async fn an_observer_hears_of_the_locks() {
    let log = Log::default();
    let registry = Example::new().registry();
    let registry = registry.with_observer(Arc::new(log.clone()));
    let url = "example://h?namespace=shop";
    let locks = registry.connect(url).await.unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    let expected = ["requested", "held", "acquired", "given_up", "released"];
    let heard: Vec<_> = log.take().into_iter().map(|one| one.what).collect();
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn no_password_reaches_an_error() {
    let registry = Example::new().registry();
    let urls = [
        "example://u:s3ntinel@h?pingevery=1s",
        "example://u:s3ntinel@h?ping-every=30",
        "example://h?password=s3ntinel",
        "example://h?password=a&s3ntinel=b",
        "example://h?password=a&ping-every=s3ntinel",
        "exampel://u:s3ntinel@h",
        "redis://u:s3ntinel@h",
        "memory://u:s3ntinel@h",
        "u:s3ntinel@h",
        "example://u:s3n/s3ntinel@h",
        "example://u:s3n#s3ntinel@h",
    ];
    for url in urls {
        let error = registry.connect(url).await.unwrap_err();
        let printed = format!("{error} {error:?}");
        assert!(!printed.contains("s3ntinel"), "{error}");
    }
}

#[tokio::test]
async fn a_backend_is_not_migrated_to_itself() {
    let registry = Example::new().registry();
    let same = [
        ("example://h/locks", "example://h/locks"),
        (
            "example://h/locks?namespace=a",
            "examples://me:secret@h/locks?namespace=a",
        ),
    ];
    for (old, new) in same {
        let error = registry.connect_migrating(old, new).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{new}");
        assert!(error.to_string().contains("to move from"), "{error}");
    }
    let others = [
        "example://other/locks",
        "example://h/new",
        "example://h/locks?namespace=a",
        "memory:",
    ];
    for new in others {
        let both = registry.connect_migrating("example://h/locks", new).await;
        assert!(both.is_ok(), "{new}");
    }
    let two_stores = registry.connect_migrating("memory:", "memory:").await;
    assert!(two_stores.is_ok());
}

#[tokio::test]
async fn an_observer_is_notified_of_hand_overs_during_a_migration() {
    let log = Log::default();
    let registry = Example::new().registry();
    let registry = registry.with_observer(Arc::new(log.clone()));
    let (old, new) = ("example://h?local-queue=off", "memory:?local-queue=off");
    let both = registry.connect_migrating(old, new).await.unwrap();
    let first = both.lock("k").await.unwrap();
    let second = tokio::spawn(async move { both.lock("k").await.unwrap() });
    settle().await;
    first.release().await.unwrap();
    let _second = second.await.unwrap();
    let held = log.take_only("held");
    assert_eq!(held.len(), 4, "two holders on each backend: {held:?}");
}

#[test]
fn a_host_without_a_scheme_gets_a_suggestion() {
    let registry = Example::new().registry();
    // What looks like a port may be the beginning of a password.
    let cases = [
        "cache:4711 | there is no scheme; did you mean example://cache:4711?",
        " example:4711/x | there is no scheme; did you mean example://example:4711?",
        "[::1]:4711,h:4711 | there is no scheme; did you mean example://[::1]:4711?",
        "10.0.0.1:80?a=b | there is no scheme; write SCHEME://10.0.0.1:80 (registered: example, \
         examples, memory)",
        "cache | there is no scheme; write SCHEME://HOST:PORT, or SCHEME:PATH for a file",
        "user:4711/5@h | an @ stands once, as in SCHEME://USER:PASSWORD@HOST",
        "memory://C:/locks | two slashes make a host of what follows, and a file has none; write \
         memory:PATH",
        "memory:///locks?a=1&a=2 | parameter \"a\" is given twice",
    ];
    for case in cases {
        let (text, start) = case.split_once(" | ").expect(case);
        let error = registry.parse_url(text).expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().starts_with(start), "{text:?}: {error}");
    }
    // A name that is a number, and a scheme that only a feature adds.
    assert_eq!(registry.parse_url("memory:4711").unwrap().path(), "4711");
    let registry = registry.with_features(&[("other", "other")]);
    assert_eq!(registry.parse_url("other:4711").unwrap().scheme(), "other");
}
