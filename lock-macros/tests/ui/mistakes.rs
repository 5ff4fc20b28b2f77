#![allow(unused_variables)]

use polylock_macros::locked;

struct Locks;
struct Guard;

#[locked]
async fn has_no_key(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", tll = "30s")]
async fn misspells_an_option(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", wait = "2s", key = "j")]
async fn has_two_keys(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "")]
async fn has_an_empty_key(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", ttl = 30)]
async fn has_a_ttl_without_a_unit(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", ttl = "30")]
async fn has_another_ttl_without_a_unit(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", ttl = "100ms")]
async fn has_a_ttl_that_is_too_short(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", wait = "soon")]
async fn has_a_wait_that_is_no_time(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", wait = "0s")]
async fn has_a_wait_of_zero(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", max_hold = "never")]
async fn has_a_max_hold_that_is_no_time(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", shared = true)]
async fn gives_a_value_to_a_word(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k")]
async fn has_no_locks(id: u64) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k")]
fn is_not_async(locks: &Locks) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k")]
async fn returns_nothing(locks: &Locks) {}

#[locked(key = "k")]
async fn has_two_guards(
    locks: &Locks,
    #[guard] one: &Guard,
    #[guard] two: &Guard,
) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k", tll = "30s")]
async fn has_a_guard_and_a_mistake(locks: &Locks, #[guard] guard: &Guard) -> Result<(), ()> {
    Ok(())
}

#[locked(key = "k")]
struct NoFunction;

/// No second error where the function is called.
async fn calls(locks: &Locks) -> Result<(), ()> {
    has_a_guard_and_a_mistake(locks).await
}

struct Shop {
    locks: Locks,
}

#[locked(key = "k")]
async fn names_a_field_locks_and_no_variable(Shop { locks: here }: Shop) -> Result<(), ()> {
    Ok(())
}

fn main() {}
