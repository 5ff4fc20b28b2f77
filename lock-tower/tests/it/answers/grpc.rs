//! Calls of gRPC, which cannot read documents.

use std::sync::Arc;

use http::StatusCode;
use lock_core::memory::Memory;
use lock_tower::{KeyError, Problem};

use super::scene::{Scene, ask, bad_key, of, request};
use crate::support::InTime as _;

#[tokio::test]
async fn calls_of_grpc_get_a_status_and_no_document() {
    let kinds = [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        (
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
        ),
    ];
    let locks = Arc::new(Memory::new());
    let scene = Scene::new(of(&locks).try_only(), Problem::new());
    let first = scene.spawn("account");
    scene
        .entered
        .notified()
        .in_time("the start of the handler")
        .await;
    for (asked, answered) in kinds {
        let mut call = request("account");
        let asked = asked.parse().expect("a header");
        call.headers_mut().insert("content-type", asked);
        let said = ask(scene.app.clone(), call).await;
        assert_eq!(said.status, StatusCode::OK);
        assert_eq!(said.header("content-type"), Some(answered));
        assert_eq!(said.header("grpc-status"), Some("10"));
        let message = said.header("grpc-message").expect("a message");
        assert_eq!(message.replace("%20", " "), "the lock is held");
        let details = said.header("grpc-status-details-bin");
        assert_eq!(details.is_some(), cfg!(feature = "tonic"));
        assert_eq!(said.body, "");
    }
    scene.go_on.notify_one();
    assert_eq!(first.answered().await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_message_of_grpc_is_escaped() {
    let app = bad_key(KeyError::Invalid("100 % \u{e4}\r\n".to_owned()));
    let mut call = request("account");
    let grpc = "application/grpc".parse().expect("a header");
    call.headers_mut().insert("content-type", grpc);
    let said = ask(app, call).await;
    assert_eq!(said.header("grpc-status"), Some("3"));
    let message = said.header("grpc-message").expect("a message");
    assert_eq!(
        message.replace("%20", " "),
        "the request does not name its lock: 100 %25 %C3%A4%0D%0A"
    );
}
