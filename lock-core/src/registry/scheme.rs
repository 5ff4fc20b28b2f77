use crate::error::Error;
use crate::suggest::{did_you_mean, list, nearest};

/// Says what is registered in place of a scheme that is not, and which of the features would add it.
pub(super) fn unknown(scheme: &str, registered: &[&str], features: &[(&str, &str)]) -> Error {
    let known = features.iter().map(|(known, _)| *known);
    let near = nearest(scheme, registered.iter().copied().chain(known));
    let hint = did_you_mean(near.filter(|near| *near != scheme));
    let known = near
        .filter(|near| !registered.contains(near))
        .and_then(|near| features.iter().find(|(known, _)| *known == near));
    let feature = match known {
        Some((known, feature)) => {
            format!("; {known} needs the feature {feature:?} of polylock or lockctl")
        }
        None => String::new(),
    };
    let registered = list(registered.iter().copied());
    Error::config(format!(
        "unknown scheme {scheme:?}{hint} (registered: {registered}{feature})"
    ))
}

/// Suggests a scheme for a host and a port that have none.
pub(super) fn missing(host: &str, port: u16, usual: Option<&&str>, registered: &[&str]) -> Error {
    Error::config(match usual {
        Some(scheme) => format!("there is no scheme; did you mean {scheme}://{host}:{port}?"),
        None => {
            let registered = list(registered.iter().copied());
            format!("there is no scheme; write SCHEME://{host}:{port} (registered: {registered})")
        }
    })
}

pub(super) fn host_of_a_file(scheme: &str) -> Error {
    Error::config(format!(
        "two slashes make a host of what follows, and a file has none; write {scheme}:PATH"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_registered_what_was_meant_and_what_would_add_it() {
        let features = [
            ("postgres", "postgres"),
            ("redis", "redis"),
            ("rediss", "redis"),
        ];
        let cases: &[(&str, &[&str], &str)] = &[
            (
                "memroy",
                &["memory"],
                r#""memroy", did you mean "memory"? (registered: memory)"#,
            ),
            (
                "rediss",
                &["memory", "sqlite"],
                r#""rediss" (registered: memory, sqlite; rediss needs the feature "redis" of polylock or lockctl)"#,
            ),
            (
                "postgress",
                &["memory"],
                r#""postgress", did you mean "postgres"? (registered: memory; postgres needs the feature "postgres" of polylock or lockctl)"#,
            ),
            ("gopher", &[], r#""gopher" (registered: none)"#),
        ];
        for (scheme, registered, expected) in cases {
            let error = unknown(scheme, registered, &features);
            assert_eq!(error.message(), format!("unknown scheme {expected}"));
        }
    }
}
