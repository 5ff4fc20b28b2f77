use std::sync::Arc;

use lock_core::{DistributedLock, Registry};
use lock_sql::{MySqlBackend, PostgresBackend, SqliteBackend};

/// How a lock is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Advisory,
    Lease,
    Row,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Lease, Self::Row, Self::Advisory];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Advisory => "advisory",
            Self::Lease => "lease",
            Self::Row => "row",
        }
    }
}

/// The stack that users get.
pub(crate) async fn connect(url: &str) -> Arc<dyn DistributedLock> {
    let registry = Registry::new()
        .with(PostgresBackend::default())
        .unwrap()
        .with(MySqlBackend::default())
        .unwrap()
        .with(SqliteBackend::default())
        .unwrap();
    registry.connect(url).await.unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
