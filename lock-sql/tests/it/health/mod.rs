//! What is said of databases whether they are fit for locks or not: each fault is provoked alone, and
//! found by its name.

mod mariadb;
mod pooler;
mod postgres;
mod postgres_readers;
mod sqlite;
mod support;
