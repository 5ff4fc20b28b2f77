//! Elections and jobs on the memory backend, under faults and paused time.

mod candidates;
mod election;
mod faults;
mod lead;
mod once;
mod support;
