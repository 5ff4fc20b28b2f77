//! The attribute [`macro@locked`] of [polylock](https://docs.rs/polylock).
//!
//! Use it as `polylock::locked`, with the feature `macros`, and see there how. What it expands to names the
//! crate `polylock`.

mod expand;
mod options;

use proc_macro::TokenStream;

/// Runs an async function under a lock.
#[proc_macro_attribute]
pub fn locked(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(options.into(), &function.into()).into()
}
