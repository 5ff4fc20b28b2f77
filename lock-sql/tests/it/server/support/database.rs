use std::sync::Arc;

use lock_testkit::servers::{DatabaseServer, MariaDbServer, PostgresServer, SharedDatabase};

use super::Kind;

/// A server, shared by the whole test run or of one test.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    MariaDb(Arc<MariaDbServer>),
    Postgres(Arc<PostgresServer>),
    Shared(Kind, SharedDatabase),
}

impl Database {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::MariaDb(_) => Kind::MariaDb,
            Self::Postgres(_) => Kind::Postgres,
            Self::Shared(kind, _) => *kind,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Shared(_, server) => server.port(),
            _ => self.own().port(),
        }
    }

    /// The server, if it belongs to one test.
    pub(crate) fn own(&self) -> &DatabaseServer {
        match self {
            Self::MariaDb(server) => server,
            Self::Postgres(server) => server,
            Self::Shared(..) => panic!("it belongs to all tests"),
        }
    }

    /// A database for a test: one of its own where that costs next to nothing.
    pub(crate) fn make(&self) -> String {
        match self {
            Self::Shared(Kind::MariaDb, server) => {
                let url = server.database();
                url.rsplit('/').next().unwrap_or_default().to_owned()
            }
            _ => "test".to_owned(),
        }
    }

    /// Runs statements past the library, as the superuser.
    pub(crate) async fn sql(&self, database: &str, text: impl Into<String>) -> Vec<Vec<String>> {
        let (this, url, text) = (self.clone(), format!("/{database}"), text.into());
        let rows = tokio::task::spawn_blocking(move || match this {
            Self::Shared(_, server) => server.sql(&url, &text),
            _ => this.own().sql(&text),
        });
        rows.await.expect("no panic")
    }
}
