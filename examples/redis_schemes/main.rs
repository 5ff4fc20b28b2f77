//! Seven Redis locks and how each of them fails.

fn main() {}
