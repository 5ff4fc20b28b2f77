use std::sync::Arc;

use lock_testkit::servers::{MariaDbServer, PostgresServer, SharedMariaDb, SharedPostgres};

use super::Kind;

/// A server, shared by the whole test run or of one test.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    MariaDb(Arc<MariaDbServer>),
    Postgres(Arc<PostgresServer>),
    SharedMariaDb(SharedMariaDb),
    SharedPostgres(SharedPostgres),
}

impl Database {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::MariaDb(_) | Self::SharedMariaDb(_) => Kind::MariaDb,
            Self::Postgres(_) | Self::SharedPostgres(_) => Kind::Postgres,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::MariaDb(server) => server.port(),
            Self::Postgres(server) => server.port(),
            Self::SharedMariaDb(server) => server.port(),
            Self::SharedPostgres(server) => server.port(),
        }
    }

    /// A database for a test: one of its own where that costs next to nothing.
    pub(crate) fn make(&self) -> String {
        match self {
            Self::MariaDb(_) | Self::Postgres(_) | Self::SharedPostgres(_) => "test".to_owned(),
            Self::SharedMariaDb(server) => {
                let url = server.database();
                url.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Runs statements past the library, as who may do everything.
    pub(crate) async fn sql(&self, database: &str, text: impl Into<String>) -> Vec<Vec<String>> {
        let (this, url, text) = (self.clone(), format!("/{database}"), text.into());
        let rows = tokio::task::spawn_blocking(move || match this {
            Self::MariaDb(server) => server.sql(&text),
            Self::Postgres(server) => server.sql(&text),
            Self::SharedMariaDb(server) => server.sql(&url, &text),
            Self::SharedPostgres(server) => server.sql(&url, &text),
        });
        rows.await.expect("no panic")
    }
}
