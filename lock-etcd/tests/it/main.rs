//! The tests of this crate, as one program: each that is linked by itself costs seconds.

mod admin;
mod auth;
mod conformance;
mod faults;
mod leader;
mod other_clients;
mod renewal;
mod requests;
mod support;
