//! What every lock backend is tested with: histories that are judged.

pub mod history;
pub mod mutants;
pub mod sim;
