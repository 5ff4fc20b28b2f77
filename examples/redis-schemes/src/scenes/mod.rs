//! One file per scheme: the lock as it is found in the wild, and provocations for it alone.

pub(crate) mod getset;
pub(crate) mod lua;
pub(crate) mod multi_setnx;
pub(crate) mod polylock;
pub(crate) mod redlock;
pub(crate) mod set_ex_nx;
pub(crate) mod setnx_expire;
pub(crate) mod unique_value;
pub(crate) mod watchdog;
