//! The locks as they are found in the wild, and provocations for one of them alone.

pub(crate) mod getset;
pub(crate) mod one_key;
pub(crate) mod polylock;
pub(crate) mod unique_value;
pub(crate) mod watchdog;
