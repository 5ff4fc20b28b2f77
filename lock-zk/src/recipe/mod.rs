//! How the nodes of a lock are named and ordered, and which tokens they make.

pub(crate) mod directory;
pub(crate) mod names;
pub(crate) mod sequence;
pub(crate) mod tokens;
