use crate::error::Error;
use crate::suggest::{did_you_mean, list, nearest};

/// Says what is registered in place of a scheme that is not, and what would add it.
pub(super) fn unknown(scheme: &str, registered: &[&str]) -> Error {
    let known = FEATURES.iter().map(|(known, _)| *known);
    let near = nearest(scheme, registered.iter().copied().chain(known));
    let hint = did_you_mean(near.filter(|near| *near != scheme));
    let known = near
        .filter(|near| !registered.contains(near))
        .and_then(feature_of);
    let feature = match known {
        Some((known, feature)) => format!("; {known} needs the feature {feature:?} of polylock"),
        None => String::new(),
    };
    let registered = list(registered.iter().copied());
    Error::config(format!(
        "unknown scheme {scheme:?}{hint} (registered: {registered}{feature})"
    ))
}

fn feature_of(scheme: &str) -> Option<(&'static str, &'static str)> {
    FEATURES.iter().copied().find(|(known, _)| *known == scheme)
}

/// The features of `polylock` that add schemes.
const FEATURES: &[(&str, &str)] = &[
    ("mariadb", "mysql"),
    ("mysql", "mysql"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("redis", "redis"),
    ("redis+unix", "redis"),
    ("redis-cluster", "redis"),
    ("redis-sentinel", "redis"),
    ("rediss", "redis"),
    ("redlock", "redis"),
    ("sqlite", "sqlite"),
    ("zk", "zk"),
    ("zookeeper", "zk"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_registered_what_was_meant_and_what_would_add_it() {
        let cases: &[(&str, &[&str], &str)] = &[
            (
                "memroy",
                &["memory"],
                r#""memroy", did you mean "memory"? (registered: memory)"#,
            ),
            (
                "rediss",
                &["memory", "sqlite"],
                r#""rediss" (registered: memory, sqlite; rediss needs the feature "redis" of polylock)"#,
            ),
            (
                "postgress",
                &["memory"],
                r#""postgress", did you mean "postgres"? (registered: memory; postgres needs the feature "postgres" of polylock)"#,
            ),
            ("gopher", &[], r#""gopher" (registered: none)"#),
        ];
        for (scheme, registered, expected) in cases {
            let error = unknown(scheme, registered);
            assert_eq!(error.message(), format!("unknown scheme {expected}"));
        }
    }
}
