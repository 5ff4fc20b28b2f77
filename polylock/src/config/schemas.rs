//! The schemas of values with custom serde functions.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::requirement::Requirement;

/// A key may be left out, but TOML has no null.
pub(super) fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// Adds the keys of `T` to a table that has them as well.
pub(super) fn add_keys_of<T: JsonSchema>(schema: &mut Schema) {
    let added = SchemaGenerator::default().into_root_schema_for::<T>();
    let added = added.get("properties").and_then(Value::as_object);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    if let (Some(properties), Some(added)) = (properties, added) {
        properties.extend(added.clone());
    }
}

fn text(pattern: &str, examples: &[&str]) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern, "examples": examples })
}

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    text(r"^[0-9]+(\.[0-9]+)? *[a-z]", &["30s", "1m 30s"])
}

pub(super) fn time_or_forever(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^(forever|[0-9]+(\.[0-9]+)? *[a-z].*)$";
    text(pattern, &["1h", "forever"])
}

pub(super) fn wait(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^(never|forever|[0-9]+(\.[0-9]+)? *[a-z].*)$";
    text(pattern, &["5s", "never", "forever"])
}

pub(super) fn require(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<_> = Requirement::names().collect();
    json_schema!({ "type": "array", "items": { "type": "string", "enum": names } })
}

pub(super) fn options(_: &mut SchemaGenerator) -> Schema {
    let of = |name: &str| json_schema!({ "type": name });
    let value = json_schema!({ "anyOf": [of("integer"), of("boolean"), of("string")] });
    json_schema!({ "type": "object", "additionalProperties": value })
}
