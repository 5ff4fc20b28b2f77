//! The answers of `config` for programs.

use std::path::Path;

use polylock::config::{Config, Mistake, Mistakes, Origin, Setting};
use serde_json::{Value, json};

/// The answer of `config check`.
pub(super) fn checked(path: &Path, loaded: &Result<Config, Mistakes>) -> Value {
    let (mistakes, warnings) = match loaded {
        Ok(config) => (Vec::new(), config.warnings().iter().map(mistake).collect()),
        Err(mistakes) => (mistakes.iter().map(mistake).collect(), Vec::new()),
    };
    json!({
        "file": path.display().to_string(),
        "ok": loaded.is_ok(),
        "mistakes": mistakes,
        "warnings": warnings,
    })
}

/// The answer of `config show`.
pub(super) fn shown(path: &Path, config: &Config) -> Value {
    let settings: Vec<_> = config.effective().iter().map(setting).collect();
    let warnings: Vec<_> = config.warnings().iter().map(mistake).collect();
    json!({
        "file": path.display().to_string(),
        "settings": settings,
        "warnings": warnings,
    })
}

fn mistake(mistake: &Mistake) -> Value {
    let mut value = origin(mistake.origin());
    value["line"] = mistake.line().into();
    value["column"] = mistake.column().into();
    value["message"] = mistake.message().into();
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
