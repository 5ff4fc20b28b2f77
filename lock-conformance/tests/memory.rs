//! The memory backend keeps every promise.

use lock_core::memory::Memory;

lock_conformance::conformance!(harness = Memory::new(), skip = [Taker]);
