//! The span of an acquisition.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock::prelude::*;
use tracing::Instrument as _;
use tracing_subscriber::fmt::format::FmtSpan;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nothing panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().expect("nothing panics").clone();
        String::from_utf8(bytes).expect("text")
    }
}

fn subscriber(log: &Log) -> impl tracing::Subscriber + use<> {
    let log = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || log.clone())
        .finish()
}

#[tokio::test]
async fn the_span_says_how_an_acquisition_ended() {
    let log = Log::default();
    let _subscriber = tracing::subscriber::set_default(subscriber(&log));
    let locks = polylock::connect("memory:").await.unwrap();
    let around = tracing::info_span!("request", fencing_token = tracing::field::Empty);
    let guard = locks.request("orders/42").class("orders").acquire();
    let guard = guard.instrument(around).await.unwrap();
    assert!(locks.try_lock("orders/42").await.unwrap().is_none());
    let cancelled = tokio::time::timeout(Duration::from_millis(5), locks.lock("orders/42"));
    assert!(cancelled.await.is_err());

    let token = guard.fencing_token().expect("memory has tokens");
    let text = log.text();
    let closed: Vec<_> = text.lines().filter(|line| line.contains("close")).collect();
    let [acquired, request, busy, cancelled] = closed[..] else {
        panic!("{text}");
    };
    for part in [
        "lock.acquire{",
        r#"backend="memory""#,
        r#"class="orders""#,
        r#"key="orders/42""#,
        "mode=Exclusive",
        r#"outcome="acquired""#,
        "waited=",
        &format!("fencing_token={token}"),
    ] {
        assert!(acquired.contains(part), "{part} is missing in {acquired}");
    }
    assert!(
        request.contains(&format!("request{{fencing_token={token}}}")),
        "{request}"
    );
    assert!(
        busy.contains(r#"outcome="busy""#) && busy.contains("error="),
        "{busy}"
    );
    assert!(cancelled.contains(r#"outcome="cancelled""#), "{cancelled}");
}
