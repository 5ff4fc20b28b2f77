/// Whether the safety rule of this name is switched off in this process.
///
/// Always false unless the feature `mutants` is on and the environment variable `POLYLOCK_MUTANT`
/// is the name. A test switches a rule off to prove that it would notice; no program that protects
/// anything is built with this feature.
#[doc(hidden)]
#[must_use]
pub fn is_mutant(name: &str) -> bool {
    #[cfg(feature = "mutants")]
    {
        use std::sync::OnceLock;

        static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
        let active = ACTIVE.get_or_init(|| std::env::var("POLYLOCK_MUTANT").ok());
        active.as_deref() == Some(name)
    }
    #[cfg(not(feature = "mutants"))]
    {
        let _ = name;
        false
    }
}
