//! The answers of `config` for programs.

use std::path::Path;

use polylock::config::{Config, ConfigError, ConfigErrors, Origin, Setting};
use serde_json::{Value, json};

/// The answer of `config check`.
pub(super) fn checked(path: &Path, loaded: &Result<Config, ConfigErrors>) -> Value {
    let (errors, warnings) = match loaded {
        Ok(config) => (Vec::new(), config.warnings().iter().map(error).collect()),
        Err(errors) => (errors.iter().map(error).collect(), Vec::new()),
    };
    json!({
        "file": path.display().to_string(),
        "ok": loaded.is_ok(),
        "errors": errors,
        "warnings": warnings,
    })
}

/// The answer of `config show`.
pub(super) fn shown(path: &Path, config: &Config) -> Value {
    let settings: Vec<_> = config.effective().iter().map(setting).collect();
    let warnings: Vec<_> = config.warnings().iter().map(error).collect();
    json!({
        "file": path.display().to_string(),
        "settings": settings,
        "warnings": warnings,
    })
}

fn error(error: &ConfigError) -> Value {
    let mut value = origin(error.origin());
    value["line"] = error.line().into();
    value["column"] = error.column().into();
    value["message"] = error.message().into();
    value
}

fn setting(setting: &Setting) -> Value {
    let mut value = origin(&setting.origin);
    value["key"] = setting.key.as_str().into();
    value["value"] = setting.value.as_str().into();
    value
}

fn origin(origin: &Origin) -> Value {
    let (kind, line, variable) = match origin {
        Origin::Environment { variable } => ("env", None, Some(variable)),
        Origin::File { line } => ("file", Some(line), None),
        Origin::Flag => ("flag", None, None),
        _ => ("default", None, None),
    };
    json!({ "from": kind, "line": line, "variable": variable })
}
