//! The JSON schema of the file, for editors.

use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::Value;

use super::requirement::Requirement;

/// The JSON schema of a configuration file, for editors that complete and check it.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schema_for!(File);
    RecursiveTransform(without_null).transform(&mut schema);
    schema.to_value()
}

/// A key that is not there has no value; TOML knows no null.
fn without_null(schema: &mut Schema) {
    let is_null = |value: &Value| *value == "null" || value["type"] == "null";
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|of| !is_null(of));
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|of| !is_null(of));
        if let [Value::Object(only)] = any.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            schema.ensure_object().extend(only);
        }
    }
}

/// Backends and classes of locks for polylock.
#[expect(dead_code, reason = "the fields are read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "polylock", rename_all = "kebab-case")]
struct File {
    /// The backends by name.
    backend: Option<BTreeMap<String, Backend>>,
    /// The backend of those who name none. Default: the only one, apart from those that are moved
    /// from; or the one named "default".
    default: Option<String>,
    /// The classes of locks by name.
    lock: Option<BTreeMap<String, Class>>,
    /// Goes before every key of URLs that name no namespace.
    namespace: Option<String>,
}

/// A lock service. It has one of url, url-env and url-file.
#[expect(dead_code, reason = "the fields are read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Backend {
    /// Time after which a lock is taken from a holder that keeps renewing. Default: 1h.
    max_hold: Option<Limit>,
    /// The backend that each lock is taken on as well, while a fleet moves from there to here.
    migrate_from: Option<String>,
    /// Keeps a lock at least this long, even if it is released sooner. Default: 0s.
    min_hold: Option<Time>,
    /// Parameters of the URL.
    options: Option<BTreeMap<String, Parameter>>,
    /// The lease, 1s to 24h; renewed every third of it. Default: 30s.
    ttl: Option<Time>,
    /// Where the service is, such as redis://cache.
    url: Option<String>,
    /// The variable of the environment that has the URL.
    url_env: Option<String>,
    /// The file that has the URL; relative to the directory of this one.
    url_file: Option<String>,
    /// How long to wait for a lock that somebody else holds. Default: 30s.
    wait: Option<Wait>,
}

/// A class of locks.
#[expect(dead_code, reason = "the fields are read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Class {
    /// The backend that has the locks. Default: the default one.
    backend: Option<String>,
    /// Time after which a lock is taken from a holder that keeps renewing. Default: the backend's.
    max_hold: Option<Limit>,
    /// Keeps a lock at least this long, even if it is released sooner. Default: the backend's.
    min_hold: Option<Time>,
    /// What the backend must have.
    require: Option<Vec<Requirement>>,
    /// The lease, 1s to 24h; renewed every third of it. Default: the backend's.
    ttl: Option<Time>,
    /// How long to wait for a lock that somebody else holds. Default: the backend's.
    wait: Option<Wait>,
}

/// A duration with its unit, such as "500ms", "30s" or "1m 30s".
#[expect(dead_code, reason = "read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^[0-9]+ *[a-z]", "examples" = ["30s", "5m"]))]
struct Time(String);

/// A duration with its unit, or "forever".
#[expect(dead_code, reason = "read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^(forever|[0-9]+ *[a-z].*)$", "examples" = ["1h", "forever"]))]
struct Limit(String);

/// A duration with its unit, "never" or "forever".
#[expect(dead_code, reason = "read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(extend(
    "pattern" = "^(never|forever|[0-9]+ *[a-z].*)$",
    "examples" = ["5s", "never", "forever"]
))]
struct Wait(String);

/// The value of a parameter; true and false are written "on" and "off".
#[expect(dead_code, reason = "the variants are read by the derived schema")]
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Parameter {
    Number(i64),
    Switch(bool),
    Text(String),
}

impl JsonSchema for Requirement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Requirement".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Self::names().collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    fn properties(schema: &Value) -> Vec<&str> {
        let properties = schema["properties"].as_object().expect("properties");
        let mut names: Vec<_> = properties.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_schema_has_the_keys_that_the_parser_knows() {
        let schema = schema();
        assert_eq!(properties(&schema), keys::FILE);
        assert_eq!(properties(&schema["$defs"]["Backend"]), keys::BACKEND);
        assert_eq!(properties(&schema["$defs"]["Class"]), keys::CLASS);
    }

    #[test]
    fn nothing_is_null() {
        assert!(!schema().to_string().contains("null"), "{:#}", schema());
    }
}
