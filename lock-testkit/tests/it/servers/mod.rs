//! Private servers: each kind lives and ends, and its clock and its mode are what a test asks for.

mod clock;
mod lifecycle;
mod shared;
