//! The test kit itself: servers, networks and clocks do what they say, and the checks see what is broken.

mod flaws;
mod mutants;
mod network;
mod proxy_redis;
mod proxy_sql;
mod servers;
mod simulation;
mod support;
