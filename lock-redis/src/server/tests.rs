use async_trait::async_trait;

use super::*;
use crate::link::Said;

/// Renews every other lease, and never says why.
#[derive(Debug)]
struct Mute;

#[async_trait]
impl Link for Mute {
    async fn call(&self, call: Call<'_>) -> Result<Value, Failure> {
        if call.script.name == WHY.name {
            std::future::pending::<()>().await;
        }
        let held = (0..call.keys.len()).map(|n| Value::Int(i64::from(n % 2 == 0)));
        Ok(Value::Array(held.collect()))
    }

    async fn call_with(
        &self,
        call: Call<'_>,
        _wait: Option<(u32, Duration)>,
    ) -> Result<Done, Failure> {
        Ok(Done {
            value: self.call(call).await?,
            acked: 0,
            server: "a:1".into(),
        })
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, Failure> {
        Ok(None)
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        None
    }

    fn one_slot(&self) -> bool {
        true
    }

    async fn on_each_master(&self, _command: &redis::Cmd) -> Result<Vec<Said>, Failure> {
        Ok(Vec::new())
    }

    async fn scan(&self, _pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_reason_that_does_not_come_holds_up_no_answer() {
    let server = Server::new(Arc::new(Mute), Duration::from_secs(1));
    let id = LeaseId::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
    let due = ["a", "b", "c"].map(|name| {
        let key = LockKey::new(name).unwrap();
        RenewalRequest::new(key, id, Duration::from_secs(9))
    });
    let renewed = tokio::time::timeout(Duration::from_secs(5), server.renew(&due)).await;
    let renewed: Result<Vec<_>, _> = renewed.unwrap().into_iter().collect();
    let lost = LeaseState::Lost(LostReason::Stolen);
    assert_eq!(renewed.unwrap(), [LeaseState::Held, lost, LeaseState::Held]);
}
