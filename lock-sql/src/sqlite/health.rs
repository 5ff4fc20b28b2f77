//! Health checks of a file and its location.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lock_core::HealthCheck;
use rustix::fs::{Access, access};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::{clocks, db_error, file};
use crate::checks::{FileFacts, FileInside, file_findings, may_open};
use crate::config::SqliteConfig;
use crate::dialect::sqlite::{Durability, Statements};
use crate::error::Cause;

/// Looks at the file; what is not there is not made.
pub(crate) async fn check_health(config: &SqliteConfig) -> Result<Vec<HealthCheck>, Cause> {
    let path = std::path::absolute(&config.path);
    let path = path.map_err(|e| db_error::opening(&config.path, e))?;
    let mut facts = outside(path, config.creates_directory);
    let failed = |e| db_error::of(&facts.path, e);
    facts.version = version().await.map_err(failed)?;
    if may_open(&facts) {
        facts.inside = Some(inside(&facts.path, config).await?);
    }
    Ok(file_findings(&facts, config.table.as_str()))
}

fn outside(path: PathBuf, makes_directory: bool) -> FileFacts {
    // A link leads to the file that the log is beside.
    let file = path.canonicalize();
    let target = file.as_deref().unwrap_or(&path);
    let has_file = file.is_ok();
    let parents = target.ancestors().skip(1);
    let directory = parents.clone().find(|directory| directory.is_dir());
    let nearest = directory.unwrap_or_else(|| Path::new("/"));
    let may = |path, rights| access(path, rights).is_ok();
    FileFacts {
        version: String::new(),
        file_system: file::file_system(if has_file { target } else { nearest }),
        clock_shift: clocks::shift(),
        has_own_boot_id: clocks::has_own_boot_id(),
        makes_directory,
        has_directory: target.parent() == directory,
        directory_takes_files: may(nearest, Access::WRITE_OK | Access::EXEC_OK),
        has_file,
        file_takes_writes: may(target, Access::READ_OK | Access::WRITE_OK),
        inside: None,
        path,
    }
}

async fn version() -> Result<String, sqlx::Error> {
    let options = SqliteConnectOptions::new().in_memory(true);
    let mut raw = options.disable_statement_logging().connect().await?;
    let version = sqlx::query_scalar("SELECT sqlite_version()");
    let version = version.fetch_one(&mut raw).await?;
    raw.close().await?;
    Ok(version)
}

async fn inside(path: &Path, config: &SqliteConfig) -> Result<FileInside, Cause> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(config.busy_timeout)
        .disable_statement_logging();
    let mut raw = options.connect().await.map_err(|e| db_error::of(path, e))?;
    let read = read(&mut raw, config).await;
    let closed = raw.close().await;
    match read.map_err(|e| db_error::of(path, e)) {
        Err(Cause::Damaged { .. }) => Ok(FileInside::default()),
        Err(cause) => Err(cause),
        Ok(inside) => closed.map(|()| inside).map_err(|e| db_error::of(path, e)),
    }
}

async fn read(
    raw: &mut SqliteConnection,
    config: &SqliteConfig,
) -> Result<FileInside, sqlx::Error> {
    let statements = Statements::new(config.table.clone());
    let table = config.table.as_str();
    sqlx::query(Durability::Every.settings())
        .execute(&mut *raw)
        .await?;
    let synchronous = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&mut *raw)
        .await?;
    let exists = sqlx::query_scalar::<_, i64>(AssertSqlSafe(Arc::clone(&statements.exists)));
    let exists = exists.bind(table).fetch_optional(&mut *raw).await?;
    let columns = sqlx::query_scalar("SELECT name FROM pragma_table_info(?)");
    let columns = columns.bind(table).fetch_all(&mut *raw).await?;
    // A foreign table lacks these columns, and the error names its own.
    let layout = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&statements.layout)));
    let layout = layout.fetch_optional(&mut *raw).await.unwrap_or(None);
    Ok(FileInside {
        is_database: true,
        synchronous,
        has_table: exists.is_some(),
        columns,
        layout,
    })
}
