//! The memory backend keeps every promise.

use polylock_core::memory::Memory;

polylock_conformance::conformance!(harness = Memory::new(), skip = [Taker]);
