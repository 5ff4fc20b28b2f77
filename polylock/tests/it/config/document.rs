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
    assert!(parse(files[0]).is_err(), "LEDGER_URL is not set here");
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
        let mut backends = config.backends().iter();
        let new = backends.find(|backend| backend.name == default);
        assert!(new.is_some_and(|new| new.migrate_from.is_some()), "{file}");
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
    let fractions =
        "[backend.main]\nurl = 'memory:'\nttl = '1.5m'\nwait = '0.5s'\nmax-hold = '1.5h'";
    assert!(parse(fractions).is_ok(), "{:?}", parse(fractions));
    for file in blocks(DOCUMENT, "toml").into_iter().chain([fractions]) {
        let value: toml::Value = toml::from_str(file).unwrap();
        let value = serde_json::to_value(value).unwrap();
        assert!(is_valid(&schema, &schema, &value), "{file}");
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
        assert!(!is_valid(&schema, &schema, &value), "{value}");
    }
}

/// Whether a schema accepts a value, by the part of JSON schema that is in use.
fn is_valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return schema != &Value::Bool(false);
    };
    let valid = |schema: &Value, value: &Value| is_valid(root, schema, value);
    let text = |rule| Value::as_str(rule).expect("a string");
    let list = |rule| Value::as_array(rule).expect("an array");
    let is_known = |key: &str| !schema["properties"][key].is_null();
    keywords
        .iter()
        .all(|(keyword, rule)| match (keyword.as_str(), value) {
            ("$ref", _) => {
                let target = text(rule).trim_start_matches('#');
                valid(root.pointer(target).expect("a definition"), value)
            }
            ("anyOf", _) => list(rule).iter().any(|one| valid(one, value)),
            ("enum", _) => list(rule).contains(value),
            ("type", _) => match text(rule) {
                "array" => value.is_array(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64(),
                "object" => value.is_object(),
                "string" => value.is_string(),
                other => panic!("this test knows nothing of the type {other}"),
            },
            ("pattern", Value::String(found)) => matches(text(rule), found),
            ("items", Value::Array(items)) => items.iter().all(|item| valid(rule, item)),
            ("properties", Value::Object(entries)) => {
                let mut known = entries.iter().filter(|(key, _)| is_known(key));
                known.all(|(key, value)| valid(&rule[key], value))
            }
            ("additionalProperties", Value::Object(entries)) => {
                let mut others = entries.iter().filter(|(key, _)| !is_known(key));
                others.all(|(_, value)| valid(rule, value))
            }
            ("pattern" | "items" | "properties" | "additionalProperties", _) => true,
            ("$defs" | "$schema" | "description" | "examples" | "title", _) => true,
            (other, _) => panic!("this test knows nothing of {other}"),
        })
}

/// The patterns of the schema: words, or a number, with a fraction if the pattern has one, and a unit.
fn matches(pattern: &str, text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit();
    let unit = text.trim_start_matches(digits);
    let unit = match unit.strip_prefix('.') {
        Some(fraction) if pattern.contains(r"\.") => fraction.trim_start_matches(digits),
        _ => unit,
    };
    let has_unit = unit
        .trim_start()
        .starts_with(|c: char| c.is_ascii_lowercase());
    let is_word = ["never", "forever"].contains(&text) && pattern.contains(text);
    is_word || (unit.len() < text.len() && has_unit)
}
