use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polylock_core::engine::catch_panic_async;

use super::driver::{ConnectionSlot, DriverOptions};
use super::socket::{Duplicate, SocketWatch};
use super::sql::Sql;
use super::target::ConnectTarget;
use super::value::{QueryResult, SqlValue};
use super::{DbError, ErrorClass};
use crate::error::SqlFailure;

/// A connection to a server.
///
/// A dropped call leaves it in an unknown state: then drop it as well.
pub(crate) struct ServerConnection {
    /// Another descriptor of its socket, which keeps the socket open until this is dropped.
    pub(crate) socket: Option<Duplicate>,
    /// Notices the end of the connection while it is idle.
    pub(crate) watch: Option<SocketWatch>,
    place: Box<dyn ConnectionSlot>,
    pub(crate) target: Arc<ConnectTarget>,
}

impl ServerConnection {
    pub(crate) async fn open(target: &Arc<ConnectTarget>) -> Result<Self, DbError> {
        let options = target.options().await?;
        let open = async {
            match target.reserved.get() {
                Some(reserved) => Arc::clone(reserved).open(options).await,
                None => dial(options).await,
            }
        };
        let opened = understood(Box::pin(open)).await;
        let place = opened.map_err(|db_error| target.unreachable(db_error))?;
        Ok(Self {
            socket: None,
            watch: None,
            place,
            target: Arc::clone(target),
        })
    }

    /// Opens a connection for the start, before any other.
    pub(crate) async fn open_first(target: &Arc<ConnectTarget>) -> Result<Self, SqlFailure> {
        let opened = async {
            let opened = Self::open(target).await;
            opened.map_err(|db_error| target.refusal(db_error))
        };
        target.within(opened).await
    }

    /// Prepares the connection for single statements: the server-side limit is the timeout of the
    /// caller.
    ///
    /// Behind a pooler, settings would affect other clients, and are not changed: those of the role apply
    /// to each statement.
    pub(crate) async fn settle(&mut self, timeout: Duration) -> Result<(), DbError> {
        match self.target.is_pooled() {
            true => Ok(()),
            false => understood(self.place.raw().settle(timeout))
                .await
                .map_err(DbError::of_statement),
        }
    }

    /// Runs a statement that is prepared, in one round trip or, if it is new, in two. Other texts are sent
    /// in one round trip, with the values in them.
    ///
    /// Behind a pooler nothing is prepared: the next statement may reach another server connection, or
    /// one where its name is taken.
    pub(crate) async fn run(
        &mut self,
        sql: &Sql,
        values: &[SqlValue],
    ) -> Result<QueryResult, DbError> {
        let raw = self.place.raw();
        let answer = async {
            if !sql.is_prepared || self.target.is_pooled() {
                return raw.message(sql, values).await;
            }
            match raw.statement(sql, values).await {
                Err(db_error) if db_error.class == ErrorClass::Unprepared => {
                    tracing::warn!(
                        "a pooler is in the path: statements are not prepared from here on"
                    );
                    self.target.is_pooled.store(true, Ordering::Relaxed);
                    raw.message(sql, values).await
                }
                answer => answer,
            }
        };
        understood(answer)
            .await
            .map_err(|db_error| self.target.missing_right(db_error.of_statement()))
    }
}

/// The client of a database panics at some malformed messages. That is an error of the connection: the holders of its
/// locks are told before it is closed.
async fn understood<T>(work: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    catch_panic_async(work).await.unwrap_or_else(|| {
        let message = "a message that is not understood".to_owned();
        Err(DbError::of_client(sqlx::Error::Protocol(message)))
    })
}

async fn dial(options: DriverOptions) -> Result<Box<dyn ConnectionSlot>, DbError> {
    Ok(match options {
        #[cfg(feature = "mysql")]
        DriverOptions::MySql(options) => Box::new(Box::pin(super::mysql::open(&options)).await?),
        #[cfg(feature = "postgres")]
        DriverOptions::Postgres(options) => {
            Box::new(Box::pin(super::postgres::open(&options)).await?)
        }
    })
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::io;

    use async_trait::async_trait;
    use polylock_core::LockUrl;

    use super::super::driver::RawConnection;
    use super::*;
    use crate::config::SqlConfig;

    /// A connection whose replies arrive damaged.
    struct Damaged;

    fn unreadable<T>() -> Result<T, DbError> {
        let error = io::Error::from(io::ErrorKind::InvalidData);
        Err(DbError::of_client(sqlx::Error::Io(error)))
    }

    #[async_trait]
    impl RawConnection for Damaged {
        async fn settle(&mut self, _: Duration) -> Result<(), DbError> {
            unreadable()
        }

        async fn statement(&mut self, _: &Sql, _: &[SqlValue]) -> Result<QueryResult, DbError> {
            unreadable()
        }

        async fn message(&mut self, _: &Sql, _: &[SqlValue]) -> Result<QueryResult, DbError> {
            unreadable()
        }
    }

    /// Its certificate was accepted before.
    #[tokio::test]
    async fn a_reply_to_settings_that_tls_cannot_read_is_no_matter_of_certificates() {
        let url = LockUrl::parse("postgres://a:b@127.0.0.1/c?mode=lease").unwrap();
        let target = ConnectTarget::of(SqlConfig::from_url(&url).unwrap()).unwrap();
        let mut connection = ServerConnection {
            socket: None,
            watch: None,
            place: Box::new(Damaged),
            target: Arc::new(target),
        };
        let settled = connection.settle(Duration::from_secs(1)).await;
        assert_eq!(settled.unwrap_err().class, ErrorClass::Gone);
        let answer = connection.run(&Sql::new("SELECT 1"), &[]).await;
        assert_eq!(answer.unwrap_err().class, ErrorClass::Gone);
    }
}
