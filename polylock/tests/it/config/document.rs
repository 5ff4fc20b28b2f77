//! The programs, files and tables of the document are right.

use serde_json::{Value, json};

use super::{loader, parse};

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

/// The blocks of a document in a language.
fn blocks(document: &'static str, language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks
        .filter_map(|block| Some(block.split_once("\n```")?.0))
        .collect()
}

/// What the files of the document expect to find.
const VARIABLES: &[(&str, &str)] = &[
    ("CACHE_URL", "redis://cache"),
    ("LEDGER_URL", "postgres://app@db/ledger"),
];

#[test]
fn the_files_of_the_document_are_valid() {
    let files = blocks(DOCUMENT, "toml");
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let config = loader(VARIABLES).parse(file);
        assert!(config.is_ok(), "{file}\n{config:?}");
    }
}

#[test]
fn the_file_of_the_move_takes_locks_on_both() {
    let document = include_str!("../../../../docs/migration.md");
    let files = blocks(document, "toml");
    assert!(!files.is_empty());
    for file in files {
        let config = parse(file).unwrap();
        let default = config.default_backend().expect("a default");
        let new = config.backends().find(|backend| backend.name() == default);
        assert!(
            new.is_some_and(|new| new.migrate_from().is_some()),
            "{file}"
        );
    }
}

#[test]
fn the_document_has_every_key() {
    let schema = polylock::config::schema();
    for table in [
        "/properties",
        "/$defs/Backend/properties",
        "/$defs/Class/properties",
    ] {
        let keys = schema.pointer(table).and_then(Value::as_object).unwrap();
        for key in keys.keys() {
            assert!(DOCUMENT.contains(&format!("| `{key}`")), "{key} of {table}");
        }
    }
    for requirement in polylock::config::Requirement::ALL {
        assert!(
            DOCUMENT.contains(&format!("| `{requirement}`")),
            "{requirement}"
        );
    }
}

#[test]
fn the_schema_accepts_the_files_of_the_document_and_no_others() {
    let schema = polylock::config::schema();
    assert!(!schema.to_string().contains("null"), "{schema:#}");
    for file in blocks(DOCUMENT, "toml") {
        let value: toml::Value = toml::from_str(file).unwrap();
        let value = serde_json::to_value(value).unwrap();
        assert_eq!(refused(&schema, &schema, &value), None, "{file}");
    }
    let wrong = [
        json!({ "defualt": "main" }),
        json!({ "default": 1 }),
        json!({ "backend": { "main": { "tll": "5s" } } }),
        json!({ "backend": { "main": { "ttl": "5" } } }),
        json!({ "backend": { "main": { "ttl": 5 } } }),
        json!({ "backend": { "main": { "wait": "always" } } }),
        json!({ "backend": { "main": { "options": { "a": [] } } } }),
        json!({ "class": { "pay": { "require": ["fare"] } } }),
    ];
    for value in wrong {
        assert!(refused(&schema, &schema, &value).is_some(), "{value}");
    }
}

/// Where a value is refused, by the part of JSON schema that is in use.
fn refused(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let known = [
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "examples",
        "format",
        "items",
        "pattern",
        "properties",
        "title",
        "type",
    ];
    let keys = schema.as_object().expect("an object").keys();
    for key in keys {
        assert!(
            known.contains(&key.as_str()),
            "this test knows nothing of {key}"
        );
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = root
            .pointer(name.trim_start_matches('#'))
            .expect("a definition");
        return refused(root, target, value);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|one| refused(root, one, value).is_none());
        return (!fits).then(|| format!("{value} is none of {any:?}"));
    }
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        other => panic!("this test knows nothing of the type {other:?}"),
    };
    if !is_type {
        return Some(format!("{value} is no {}", schema["type"]));
    }
    match value {
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            let inner = match (&schema["properties"][key], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => return Some(format!("the key {key}")),
                (Value::Null, other) => other,
                (known, _) => known,
            };
            refused(root, inner, value)
        }),
        Value::Array(items) => items
            .iter()
            .find_map(|item| refused(root, &schema["items"], item)),
        Value::String(text) => {
            let names = schema["enum"].as_array();
            let is_named = names.is_none_or(|names| names.contains(value));
            let is_written = schema["pattern"]
                .as_str()
                .is_none_or(|pattern| fits(pattern, text));
            (!is_named || !is_written).then(|| format!("the text {text}"))
        }
        _ => None,
    }
}

/// The patterns of the schema: words, or a number and a unit.
fn fits(pattern: &str, text: &str) -> bool {
    let words = ["never", "forever"];
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_time = unit.len() < text.len()
        && unit
            .trim_start()
            .starts_with(|c: char| c.is_ascii_lowercase());
    is_time
        || words
            .iter()
            .any(|word| pattern.contains(word) && text == *word)
}

#[tokio::test]
async fn the_first_file_of_the_document_is_the_one_of_the_module() {
    // The one of the module has two spaces less to its comments.
    let config = parse(blocks(DOCUMENT, "toml")[0]);
    assert!(config.is_err(), "LEDGER_URL is not set here");
    let config = loader(VARIABLES)
        .parse(blocks(DOCUMENT, "toml")[0])
        .unwrap();
    let classes: Vec<_> = config.classes().map(|class| class.name()).collect();
    assert_eq!(classes, ["payment"]);
}
