use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::{Engine, TIMEOUT_RANGE, duration_in_range};
use polylock_core::{Error, LockUrl, Result};

use crate::dialect::SqlName;

/// Configuration of the database file that stores the locks.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_sql::SqliteConfig;
///
/// # fn main() -> polylock_core::Result<()> {
/// let config = SqliteConfig::new("/var/lib/shop/locks.db")
///     .with_table("shop_locks")?
///     .with_busy_timeout(Duration::from_secs(2))?;
/// # let _ = config;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) table: SqlName,
    pub(crate) busy_timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) creates_directory: bool,
    pub(crate) engine: Option<Engine>,
}

impl SqliteConfig {
    /// How long one operation may take, unless set.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// How long unused rows are kept, unless set.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Names the database file, which is created if it is missing. Its directory must exist.
    ///
    /// A relative path counts from the working directory at the time of the connection.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            table: SqlName::default(),
            busy_timeout: Self::DEFAULT_BUSY_TIMEOUT,
            retention: Self::DEFAULT_RETENTION,
            creates_directory: false,
            engine: None,
        }
    }

    /// Reads `sqlite:PATH` and its parameters.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `busy-timeout=DURATION` | `5s` | see [`with_busy_timeout`](Self::with_busy_timeout) |
    /// | `create-dir=on` or `off` | `off` | see [`with_directory`](Self::with_directory) |
    /// | `mode=lease` | `lease` | the only one that SQLite has |
    /// | `retention=DURATION` | `7days` | see [`with_retention`](Self::with_retention) |
    /// | `table=NAME` | `polylock_locks` | see [`with_table`](Self::with_table) |
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) names what is wrong with the URL.
    pub fn from_url(url: &LockUrl) -> Result<Self> {
        if url.path().starts_with(":memory:") {
            let message = "a database in memory is seen by one connection only; \
                           for locks inside one process use memory:";
            return Err(Error::config(message));
        }
        let mut config = Self::new(url.expect_file()?);
        let mut params = url.params();
        params.one_of("mode", &["lease"])?;
        if let Some(name) = params.string("table") {
            config = config.with_table(name)?;
        }
        if let Some(timeout) = params.duration("busy-timeout")? {
            config = config.with_busy_timeout(timeout)?;
        }
        if let Some(retention) = params.duration("retention")? {
            config = config.with_retention(retention);
        }
        if params.bool("create-dir")? == Some(true) {
            config = config.with_directory();
        }
        params.finish()?;
        Ok(config)
    }

    /// Names the table. Default: `polylock_locks`.
    ///
    /// Locks of the same key in two tables are two locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters,
    /// digits and underscores, begins with a digit, or with `sqlite_`.
    pub fn with_table(mut self, name: &str) -> Result<Self> {
        self.table = SqlName::table(name)?;
        Ok(self)
    }

    /// Sets how long one operation may take, 100 ms to 1 min, before it fails with
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable). Default: 5 s.
    ///
    /// The operations of all processes run one at a time, each for about as long as the disk needs to
    /// store a page. A shorter timeout fails earlier when the disk hangs or another client keeps the
    /// database locked; a longer one survives that. Renewals are limited by their leases as well.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_busy_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.busy_timeout = duration_in_range("busy-timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Sets how long the row of an unused lock is kept. Default: 7 days.
    ///
    /// Rows are reused, so this limits the file size if keys are never used again. Fencing tokens keep
    /// increasing after their row is deleted, because the largest one is kept for all keys. At most for
    /// this long, a holder of a broken lock gets the reason
    /// [`Broken`](polylock_core::LostReason::Broken), later
    /// [`Stolen`](polylock_core::LostReason::Stolen).
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Creates the directory of the file, for its owner only, if it is missing. Default: an error.
    #[must_use]
    pub fn with_directory(mut self) -> Self {
        self.creates_directory = true;
        self
    }

    /// Replaces the engine of this process, for tests that control the clock.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }
}

#[cfg(test)]
mod tests {
    use polylock_core::ErrorKind;

    use super::*;

    fn read(url: &str) -> Result<SqliteConfig> {
        SqliteConfig::from_url(&LockUrl::parse(url)?)
    }

    #[test]
    fn reads_every_parameter() {
        let config = read(
            "sqlite:/tmp/a b.db?mode=lease&table=t1&busy-timeout=500ms&retention=1day&create-dir=on",
        );
        let config = config.unwrap();
        assert_eq!(config.path, PathBuf::from("/tmp/a b.db"));
        assert_eq!(config.table.as_str(), "t1");
        assert_eq!(config.busy_timeout, Duration::from_millis(500));
        assert_eq!(config.retention, Duration::from_secs(86_400));
        assert!(config.creates_directory);
    }

    #[test]
    fn names_the_mistake() {
        for (url, says) in [
            ("sqlite::memory:", "use memory:"),
            ("sqlite:", "sqlite:PATH"),
            ("sqlite://locks.db", "sqlite:locks.db"),
            ("sqlite:x.db?mode=row", "lease"),
            ("sqlite:x.db?table=a;b", "table name"),
            ("sqlite:x.db?busy-timeout=1ms", "100ms"),
            (
                "sqlite:x.db?busy-timeut=1s",
                "did you mean \"busy-timeout\"",
            ),
            ("sqlite:x.db?retention=7", "unit"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
            assert!(error.message().contains(says), "{url}: {error}");
        }
    }
}
