use std::future::pending;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::Database;
#[cfg(feature = "mysql")]
use sqlx::MySql;
#[cfg(feature = "postgres")]
use sqlx::Postgres;

use super::db_error::{Class, DbError};
use super::reserved_connections::ReservedConnection;
use super::socket::{Duplicate, Watch};
use super::sql::Sql;
use super::target::{ClientOptions, Target};
use super::value::{Answer, Value};

/// A connection to a server.
///
/// A dropped call leaves it in an unknown state: then drop it as well.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Another descriptor of its socket, which keeps the socket open until this is dropped.
    socket: Option<Duplicate>,
    watch: Option<Watch>,
    raw: Raw,
    target: Arc<Target>,
}

#[derive(Debug)]
enum Raw {
    #[cfg(feature = "mysql")]
    MySql(Place<MySql>),
    #[cfg(feature = "postgres")]
    Postgres(Place<Postgres>),
}

/// Whether the connection counts in a pool of the application.
#[derive(Debug)]
enum Place<DB: Database> {
    /// It does not.
    Own(Box<DB::Connection>),
    /// Among those of a pool of the application.
    Reserved(ReservedConnection<DB>),
}

impl<DB: Database> Deref for Place<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match self {
            Self::Own(connection) => connection,
            Self::Reserved(connection) => connection,
        }
    }
}

impl<DB: Database> DerefMut for Place<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match self {
            Self::Own(connection) => connection,
            Self::Reserved(connection) => connection,
        }
    }
}

impl Connection {
    pub(crate) async fn open(target: &Arc<Target>) -> Result<Self, DbError> {
        let raw = match target.options().await? {
            #[cfg(feature = "mysql")]
            ClientOptions::MySql(options) => {
                let opened = Box::pin(super::mysql::open(&options));
                Raw::MySql(match target.mysql_reserved() {
                    Some(reserved) => Place::Reserved(reserved.open(opened).await?),
                    None => Place::Own(Box::new(opened.await?)),
                })
            }
            #[cfg(feature = "postgres")]
            ClientOptions::Postgres(options) => {
                let opened = Box::pin(super::postgres::open(&options));
                Raw::Postgres(match target.postgres_reserved() {
                    Some(reserved) => Place::Reserved(reserved.open(opened).await?),
                    None => Place::Own(Box::new(opened.await?)),
                })
            }
        };
        Ok(Self {
            socket: None,
            watch: None,
            raw,
            target: Arc::clone(target),
        })
    }

    /// Takes another descriptor of the socket of this connection.
    pub(crate) fn set_socket(&mut self, socket: Option<Duplicate>) {
        self.socket = socket;
    }

    /// Has [`ended`](Self::ended) watch the socket, if there is another descriptor of it.
    pub(crate) fn watch(&mut self) {
        if self.watch.is_none() {
            self.watch = self.socket.as_ref().and_then(Watch::of);
        }
    }

    /// Costs nothing any more when an answer arrives.
    pub(crate) fn stop_watching(&mut self) {
        self.watch = None;
    }

    /// Returns when the server has closed the connection, if that is watched.
    pub(crate) async fn ended(&self) {
        match &self.watch {
            Some(watch) => watch.ended().await,
            None => pending().await,
        }
    }

    /// Prepares the connection for single statements: the server-side limit is the timeout of the
    /// caller.
    ///
    /// Behind a pooler, settings would affect other clients, and are not changed.
    pub(crate) async fn settle(&mut self, timeout: Duration) -> Result<(), DbError> {
        if self.target.is_pooled.load(Ordering::Relaxed) {
            return Ok(());
        }
        match &mut self.raw {
            #[cfg(feature = "mysql")]
            Raw::MySql(raw) => super::mysql::settle(raw, timeout).await,
            #[cfg(feature = "postgres")]
            Raw::Postgres(raw) => super::postgres::settle(raw, timeout).await,
        }
    }

    /// Runs a statement, prepared if its template says so, or several as text.
    pub(crate) async fn run(&mut self, sql: &Sql, values: &[Value]) -> Result<Answer, DbError> {
        match sql.is_single() {
            true => self.statement(sql, values).await,
            false => self.message(sql, values).await,
        }
    }

    /// Runs one statement in one round trip, and a new one in two, to prepare it.
    ///
    /// Behind a pooler it is not prepared: the next statement may reach another server connection, or
    /// one where its name is taken.
    pub(crate) async fn statement(
        &mut self,
        sql: &Sql,
        values: &[Value],
    ) -> Result<Answer, DbError> {
        if self.target.is_pooled.load(Ordering::Relaxed) {
            return self.message(sql, values).await;
        }
        let answer = match &mut self.raw {
            #[cfg(feature = "mysql")]
            Raw::MySql(raw) => super::mysql::statement(raw, sql, values).await,
            #[cfg(feature = "postgres")]
            Raw::Postgres(raw) => super::postgres::statement(raw, sql, values).await,
        };
        if let Err(db_error) = &answer
            && db_error.class == Class::Unprepared
        {
            tracing::warn!("a pooler is in the path: statements are not prepared from here on");
            self.target.is_pooled.store(true, Ordering::Relaxed);
            return self.message(sql, values).await;
        }
        answer
    }

    /// Runs several statements in one round trip, with the values in their text.
    pub(crate) async fn message(&mut self, sql: &Sql, values: &[Value]) -> Result<Answer, DbError> {
        match &mut self.raw {
            #[cfg(feature = "mysql")]
            Raw::MySql(raw) => super::mysql::message(raw, sql, values).await,
            #[cfg(feature = "postgres")]
            Raw::Postgres(raw) => super::postgres::message(raw, sql, values).await,
        }
    }
}
