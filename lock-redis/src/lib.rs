//! Locks in Redis: one server, Sentinel, Cluster, and a quorum of independent masters.

mod script;
