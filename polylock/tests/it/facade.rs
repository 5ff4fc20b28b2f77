//! What the facade compiles in, and what it says of the rest.

use polylock::prelude::*;

#[tokio::test]
async fn named_memory_is_one_store_in_the_process() {
    let here = polylock::connect("memory:facade").await.unwrap();
    let there = polylock::compiled_in()
        .connect("memory:facade")
        .await
        .unwrap();
    let elsewhere = polylock::connect("memory:").await.unwrap();
    let _guard = here.lock("key").await.unwrap();
    assert!(there.try_lock("key").await.unwrap().is_none());
    assert!(elsewhere.try_lock("key").await.unwrap().is_some());
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn a_backend_that_is_not_compiled_in_names_its_feature() {
    let error = polylock::connect("postgres://h1/locks").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(
        error
            .message()
            .contains(r#"postgres needs the feature "postgres" of polylock"#),
        "{error}"
    );
    assert!(error.message().contains("registered: memory"), "{error}");
}

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[tokio::test]
async fn servers_read_their_urls_before_they_connect() {
    for scheme in ["mariadb", "mysql", "postgres", "postgresql"] {
        let url = format!("{scheme}://u:p@127.0.0.1:1/locks?namespace=shop&mod=lease");
        let error = polylock::connect(&url).await.unwrap_err();
        let expected = r#"unknown parameter "mod", did you mean "mode"?"#;
        assert!(error.message().starts_with(expected), "{error}");
    }
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn zookeeper_reads_its_url_before_it_connects() {
    for scheme in ["zk", "zookeeper"] {
        let url = format!("{scheme}://127.0.0.1:1/locks?sesion-timeout=5s");
        let error = polylock::connect(&url).await.unwrap_err();
        let expected = r#"unknown parameter "sesion-timeout", did you mean "session-timeout"?"#;
        assert!(error.message().starts_with(expected), "{error}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_locks_between_two_connections() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db?namespace=shop", folder.path().display());
    let here = polylock::connect(&url).await.unwrap();
    let there = polylock::connect(&url).await.unwrap();
    let guard = here.lock("orders/42").await.unwrap();
    assert!(there.try_lock("orders/42").await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(there.try_lock("orders/42").await.unwrap().is_some());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_misspelt_parameter_is_looked_up_in_the_backend_and_in_the_layers() {
    for (misspelt, meant) in [("namespce", "namespace"), ("busy-timout", "busy-timeout")] {
        let error = polylock::connect(&format!("sqlite:locks.db?{misspelt}=1"))
            .await
            .unwrap_err();
        let expected = format!("unknown parameter {misspelt:?}, did you mean {meant:?}?");
        assert!(error.message().starts_with(&expected), "{error}");
    }
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn sqlite_without_its_feature_says_so() {
    let error = polylock::connect("sqlite:locks.db").await.unwrap_err();
    assert!(
        error
            .message()
            .contains(r#"the feature "sqlite" of polylock"#),
        "{error}"
    );
}
