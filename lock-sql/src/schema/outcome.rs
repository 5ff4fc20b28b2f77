//! The result of a change to the schema.

/// The result of [`Schema::apply`](crate::Schema::apply).
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// use polylock_sql::{Applied, Schema, SqliteConfig};
///
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("locks.db");
/// let schema = Schema::from(SqliteConfig::new(path));
/// assert_eq!(schema.apply().await?, Applied::Created);
/// assert_eq!(schema.apply().await?, Applied::Found);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Applied {
    /// The table was created.
    Created,
    /// The table existed with the layout of this version.
    Found,
}
