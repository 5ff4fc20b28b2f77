//! Private servers: they live and end, and their clocks are what a test asks for.

mod clock;
mod lifecycle;
mod shared;
