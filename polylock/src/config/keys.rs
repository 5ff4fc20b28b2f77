//! The keys of the file, in one place for the parser, the schema and the messages.

/// Keys of the file itself.
pub(super) const FILE: &[&str] = &["backend", "default", "lock", "namespace"];

/// Keys of `[backend.NAME]`.
pub(super) const BACKEND: &[&str] = &[
    "max-hold",
    "migrate-from",
    "min-hold",
    "options",
    "ttl",
    "url",
    "url-env",
    "url-file",
    "wait",
];

/// Keys of `[lock.NAME]`.
pub(super) const CLASS: &[&str] = &["backend", "max-hold", "min-hold", "require", "ttl", "wait"];

/// What to say of a key that people look for and that is not there.
pub(super) fn advice(key: &str) -> Option<&'static str> {
    Some(match key.to_ascii_lowercase().replace('_', "-").as_str() {
        "renew" | "renew-every" | "renew-interval" | "renewal" | "renewal-interval" => {
            "a lease is renewed every third of its ttl, which cannot be changed; set the ttl"
        }
        "driver" | "kind" | "scheme" | "type" => "the scheme of the url says which backend it is",
        "mysql" | "postgres" | "redis" | "sql" | "sqlite" | "zk" | "zookeeper" => {
            "what a backend understands stands in its table \"options\""
        }
        "host" | "password" | "port" | "user" | "username" => "it is part of the url",
        "class" | "classes" | "locks" => "a class of locks is a table [lock.NAME]",
        "backends" | "profile" | "profiles" => "a backend is a table [backend.NAME]",
        _ => return None,
    })
}
