//! What the observer of the `metrics` facade records, on real stacks.

mod alerts;
mod coordination;
mod dashboard;
mod events;
mod gauges;
mod http;
mod page;
mod promql;
mod recorder;
mod spans;
