//! Calls of gRPC, which cannot read documents.

use lock_tower::{KeyError, Problem};

use super::scene::{SECRET, ask, bad_key, call, layer};
use crate::support::{Scene, Stage};

#[tokio::test]
async fn calls_of_grpc_get_a_status_and_no_document() {
    let scene = Scene::new();
    let _holder = scene.try_elsewhere(&format!("account-{SECRET}")).await;
    let app = Stage::new().router(layer(scene.builder().try_only(), Problem::new()));
    for (asked, answered) in [
        ("", ""),
        ("+proto", ""),
        ("-web+proto", "-web+proto"),
        ("-web-text", "-web-text+proto"),
    ] {
        let said = ask(&app, call(&format!("application/grpc{asked}"))).await;
        assert_eq!((said.status, &said.body[..]), (200, ""));
        let answered = format!("application/grpc{answered}");
        assert_eq!(said.header("content-type"), Some(&*answered));
        assert_eq!(said.header("grpc-status"), Some("10"));
        let message = said.header("grpc-message").expect("a message");
        assert_eq!(message.replace("%20", " "), "the lock is held");
        let details = said.header("grpc-status-details-bin");
        assert_eq!(details.is_some(), cfg!(feature = "tonic"));
    }
}

#[tokio::test]
async fn a_message_of_grpc_is_escaped() {
    let app = bad_key(KeyError::Invalid("100 % \u{e4}\r\n".to_owned()));
    let said = ask(&app, call("application/grpc")).await;
    assert_eq!(said.header("grpc-status"), Some("3"));
    let message = said.header("grpc-message").expect("a message");
    let expected = "the request does not name its lock: 100 %25 %C3%A4%0D%0A";
    assert_eq!(message.replace("%20", " "), expected);
}
