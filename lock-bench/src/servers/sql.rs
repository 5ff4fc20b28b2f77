//! What the URLs of both databases say.

use polylock::LockUrl;

use crate::subject::{Failure, INVALID, REFUSED, Subject};
use crate::target::{Bare, runner};

/// Where a database is, and how its locks are kept.
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) username: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
    pub(super) mode: Mode,
    /// How many connections there are at most.
    pub(super) connections: usize,
    /// Whether no table may be made.
    pub(super) is_closed: bool,
    #[cfg(feature = "postgres")]
    pub(super) schema: String,
}

/// How a lock is kept, as `lock_sql::SqlMode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    Advisory,
    Lease,
    Row,
}

impl Mode {
    /// What is measured beside the locks.
    pub(super) fn bare(self, least: impl Subject, advisory: &str) -> Bare {
        let commands = match self {
            Self::Advisory => advisory,
            Self::Lease => "two updates of a row",
            Self::Row => "BEGIN and SELECT .. FOR UPDATE in one message, and COMMIT",
        };
        let bare = Bare::new(commands, runner(least));
        match self {
            Self::Advisory | Self::Row => bare.waiting(),
            Self::Lease => bare,
        }
    }
}

impl Place {
    pub(super) fn of(url: &LockUrl) -> Result<Self, Failure> {
        let host = url.expect_host()?;
        let mut params = url.params();
        let mode = params.one_of("mode", &["row", "lease", "advisory"])?;
        let schema = params.string("schema").unwrap_or("public");
        if !schema
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return Err(Failure::new(
                INVALID,
                "a schema has letters, digits and underscores",
            ));
        }
        Ok(Self {
            host: host.name.clone(),
            port: host.port,
            username: url.username().unwrap_or_default().to_owned(),
            password: url.password().map(str::to_owned),
            database: url.path().trim_start_matches('/').to_owned(),
            mode: match mode {
                Some("advisory") => Mode::Advisory,
                Some("lease") => Mode::Lease,
                _ => Mode::Row,
            },
            connections: params.integer("connections", 1..=1_000)?.unwrap_or(10),
            is_closed: params.bool("create-table")? == Some(false),
            #[cfg(feature = "postgres")]
            schema: schema.to_owned(),
        })
    }

    /// Whether the host is the path of a socket.
    #[cfg(feature = "mysql")]
    pub(super) fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Whether bare statements need a table.
    pub(super) fn has_table(&self) -> bool {
        self.mode != Mode::Advisory
    }

    /// The table that those of a run have for themselves.
    pub(super) fn table(&self, run: u64) -> String {
        format!("polylock_bench_{run:x}")
    }
}

/// A text as SQL has it. Only names of locks of a benchmark get here.
pub(super) fn quoted(text: &str) -> Result<String, Failure> {
    match text.contains(['\\', '\0']) {
        true => Err(Failure::new(
            INVALID,
            "the name of a lock has no backslash and no NUL",
        )),
        false => Ok(format!("'{}'", text.replace('\'', "''"))),
    }
}

/// A number that every process makes of a name: FNV-1a.
pub(super) fn number_of(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failure(error: sqlx::Error) -> Failure {
    let kind = match &error {
        sqlx::Error::Database(_) => REFUSED,
        _ => "unavailable",
    };
    Failure::of(kind, &error)
}
