//! The memory backend keeps every promise.

use lock_core::memory::Memory;

lock_testkit::conformance!(harness = Memory::new(), skip = [Taker]);
