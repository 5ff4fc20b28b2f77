//! The test kit itself: servers, networks and clocks do what they say, and the checks see what is broken.

mod database_hosts;
mod doubles;
mod flaws;
mod mutants;
mod network;
mod postgres_standby;
mod proxy_redis;
mod proxy_sql;
mod proxy_zookeeper;
mod redis_cluster;
mod redis_hosts;
mod redis_sentinel;
mod servers;
mod simulation;
mod support;
mod zookeeper_ensemble;
mod zookeeper_hosts;
