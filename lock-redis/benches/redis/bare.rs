//! The two commands that a lock in Redis takes at least, on the same client.

use lock_testkit::servers::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    hash: String,
}

impl Bare {
    pub(crate) async fn connect(server: &RedisServer) -> Self {
        let info = server.url().into_connection_info().unwrap();
        let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(info).unwrap();
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap();
        let script = Script::new(COMPARE_AND_DELETE);
        let _hash: String = script.load_async(&mut connection).await.unwrap();
        Self {
            connection,
            hash: script.get_hash().to_owned(),
        }
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&mut self, key: &str, value: &str) {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("NX").arg("PX").arg(30_000);
        let taken: Option<String> = set.query_async(&mut self.connection).await.unwrap();
        assert_eq!(taken.as_deref(), Some("OK"));
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.hash).arg(1).arg(key).arg(value);
        let released: u32 = release.query_async(&mut self.connection).await.unwrap();
        assert_eq!(released, 1);
    }

    pub(crate) async fn round_trip(&mut self) {
        let _taken: Option<String> = redis::cmd("SET")
            .arg("round-trip")
            .arg("value")
            .arg("NX")
            .arg("PX")
            .arg(30_000)
            .query_async(&mut self.connection)
            .await
            .unwrap();
    }
}
