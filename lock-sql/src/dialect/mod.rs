//! SQL text and the quirks of each database; no logic.

#[cfg(feature = "_server")]
pub(crate) mod mysql;
mod name;
#[cfg(feature = "_server")]
pub(crate) mod postgres;
mod range;
#[cfg(feature = "_server")]
pub(crate) mod records;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "_server")]
pub(crate) mod table;

pub(crate) use self::name::SqlName;
#[cfg(feature = "_server")]
pub(crate) use self::name::sequence;
pub(crate) use self::range::range;
