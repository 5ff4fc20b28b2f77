//! A process that examines a database, as another user or by another clock than the tests.
//!
//! `lock-examiner URL` prints a line for each health check: its check, its status, and what was found.

use std::error::Error;
use std::io::Write as _;

use polylock_core::Registry;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("there is no URL")?;
    let registry = Registry::new()
        .with(polylock_sql::MySqlBackend::default())?
        .with(polylock_sql::PostgresBackend::default())?
        .with(polylock_sql::SqliteBackend::default())?;
    for found in registry.check_health(&url).await? {
        let (check, status) = (found.id, found.status.as_str());
        writeln!(std::io::stdout(), "{check} {status} {found}")?;
    }
    Ok(())
}
