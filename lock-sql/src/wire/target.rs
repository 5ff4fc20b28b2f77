use std::sync::atomic::AtomicBool;

#[cfg(feature = "mysql")]
use sqlx::mysql::MySqlConnectOptions;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnectOptions;

/// What to connect to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) options: Options,
    /// Whether statements of one connection may meet several of the server's.
    pub(crate) is_pooled: AtomicBool,
}

#[derive(Debug)]
pub(super) enum Options {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

/// Which of those that speak the protocol of MySQL a server is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavour {
    MariaDb,
    MySql,
}

impl Target {
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql(options: MySqlConnectOptions) -> Self {
        Self {
            options: Options::MySql(options),
            is_pooled: AtomicBool::new(false),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(options: PgConnectOptions) -> Self {
        Self {
            options: Options::Postgres(options),
            is_pooled: AtomicBool::new(false),
        }
    }
}
