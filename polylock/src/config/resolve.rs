//! What file, environment and flags amount to.

use std::path::Path;

use super::document::{BackendTable, ClassTable, Document};
use super::environment;
use super::inputs::{Inputs, Scope};
use super::place::{At, Found};
use super::report::Report;
use super::requirement::Requirement;
use super::settings::{BackendSettings, ClassSettings};
use super::terms::Terms;
use super::urls::{Urls, Use};
use super::words::{instead_of, quoted};

/// A configuration that may have mistakes.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) default: Option<Found<String>>,
    pub(super) namespace: Option<Found<String>>,
    pub(super) backends: Vec<BackendSettings>,
    pub(super) classes: Vec<ClassSettings>,
}

/// Puts the sources together, and reports what does not fit.
pub(super) fn resolve(
    mut document: Document,
    path: Option<&Path>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Resolved {
    check_names(document.backends.iter().map(|table| &table.name), report);
    check_names(document.classes.iter().map(|table| &table.name), report);
    let profile = inputs.profile.clone();
    let profile = profile
        .map(|name| Found::new(name, At::Flag))
        .or_else(|| inputs.env.text(environment::PROFILE, report));
    let reads_variable = profile.is_none();
    let default = default(&mut document, profile, inputs, report);
    check_scope(inputs, &document.classes, report);
    let Document {
        namespace,
        backends,
        classes,
        ..
    } = document;
    let urls = Urls::new(path, inputs, reads_variable, namespace, report);
    let mut classes: Vec<_> = classes
        .into_iter()
        .filter_map(|table| class(table, &default, &backends, inputs, report))
        .collect();

    let default = default.ok().flatten();
    let is_default = |name: &str| default.as_ref().is_some_and(|found| found.value == name);
    let is_opened = |name: &str| {
        let of_class = |class: &ClassSettings| class.is_opened && class.backend.value == name;
        let by_default = is_default(name) && !matches!(inputs.scope, Scope::Class(_));
        classes.iter().any(of_class) || by_default || inputs.scope == Scope::All
    };
    check_migrations(&backends, report);
    let is_needed = |name: &str| {
        let moves_from = |table: &BackendTable| {
            let from = table.migrate_from.as_ref();
            from.is_some_and(|from| from.value == name) && is_opened(&table.name.value)
        };
        is_opened(name) || backends.iter().any(moves_from)
    };
    let uses: Vec<_> = backends
        .iter()
        .map(|table| {
            let name = table.name.value.as_str();
            Use {
                is_default: is_default(name),
                is_needed: is_needed(name),
                is_opened: is_opened(name),
            }
        })
        .collect();
    let settings: Vec<_> = backends
        .into_iter()
        .zip(uses)
        .map(|(table, used)| backend(table, used, &urls, inputs, report))
        .collect();
    for class in &mut classes {
        let backend = settings
            .iter()
            .find(|backend| backend.name.value == class.backend.value);
        let below = backend
            .map(|backend| backend.terms.clone())
            .unwrap_or_default();
        class.terms = std::mem::take(&mut class.terms).over(&below);
        class.terms.check(report);
    }
    Resolved {
        default,
        namespace: urls.namespace().cloned(),
        backends: settings,
        classes,
    }
}

/// Names that differ as variables of the environment do not.
fn check_names<'n>(names: impl Iterator<Item = &'n Found<String>>, report: &mut Report<'_>) {
    let mut seen: Vec<(String, &str)> = Vec::new();
    for name in names {
        let variable = environment::of_class(&name.value);
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == variable) {
            let message = format!(
                "the variables of {} would be those of {}; let the names differ in more than case, \
                 - and _",
                quoted(&name.value),
                quoted(other)
            );
            report.mistake(&name.at, message);
        }
        seen.push((variable, &name.value));
    }
}

/// Finds out which backend is the default one, and makes it if it is not in the file.
fn default(
    document: &mut Document,
    profile: Option<Found<String>>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Result<Option<Found<String>>, Told> {
    let names: Vec<_> = document
        .backends
        .iter()
        .map(|table| &table.name.value)
        .collect();
    if let Some(named) = profile.or_else(|| document.default.take()) {
        if names.contains(&&named.value) {
            return Ok(Some(named));
        }
        let hint = instead_of(&named.value, names.into_iter().map(String::as_str));
        let message = format!("there is no backend {}{hint}", quoted(&named.value));
        report.mistake(&named.at, message);
        return Err(Told);
    }
    let is_left = |table: &&BackendTable| {
        let mut others = document.backends.iter();
        others.any(|other| {
            let from = other.migrate_from.as_ref();
            from.is_some_and(|from| from.value == table.name.value)
        })
    };
    let mut ends = document.backends.iter().filter(|table| !is_left(table));
    let implied = match (ends.next(), ends.next()) {
        (Some(only), None) => Some(only.name.value.clone()),
        _ => names
            .iter()
            .find(|name| **name == DEFAULT)
            .map(|name| (*name).clone()),
    };
    if let Some(name) = implied {
        return Ok(Some(Found::new(name, At::Default)));
    }
    let url = inputs.url.is_some() || inputs.env.text(environment::URL, report).is_some();
    if !url && (inputs.fallback.is_none() || !names.is_empty()) {
        if document.are_backends_wrong {
            return Err(Told);
        }
        if names.is_empty() {
            let message = "there is no backend: write a table [backend.NAME] with a url, or set \
                           LOCK_URL";
            report.mistake(&At::File, message);
            return Err(Told);
        }
        return Ok(None);
    }
    let name = Found::new(DEFAULT.to_owned(), At::Default);
    document.backends.push(BackendTable {
        name: name.clone(),
        url: None,
        is_url_wrong: false,
        options: Vec::new(),
        migrate_from: None,
        terms: Terms::default(),
    });
    Ok(Some(name))
}

/// A mistake that is reported already.
#[derive(Debug)]
struct Told;

/// The name of a backend that is the default one without being named, and of the one that a
/// configuration without a file has.
const DEFAULT: &str = "default";

fn class(
    table: ClassTable,
    default: &Result<Option<Found<String>>, Told>,
    backends: &[BackendTable],
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Option<ClassSettings> {
    let ClassTable {
        name,
        backend,
        require,
        terms,
    } = table;
    let prefix = environment::of_class(&name.value);
    let terms = inputs.env.terms(&prefix, report).over(&terms);
    let variable = inputs.env.text(&format!("{prefix}BACKEND"), report);
    let Some(backend) = variable.or(backend) else {
        let default = match default {
            Ok(Some(default)) => default,
            Ok(None) => {
                let message = format!(
                    "the class {} has no backend, and there is no default one: write backend = \
                     \"NAME\" here, or default = \"NAME\" at the top",
                    quoted(&name.value)
                );
                report.mistake(&name.at, message);
                return None;
            }
            Err(Told) => return None,
        };
        let backend = Found::new(default.value.clone(), At::Default);
        return Some(made(name, backend, require, terms, inputs));
    };
    let names = backends.iter().map(|table| table.name.value.as_str());
    if !names.clone().any(|known| known == backend.value) {
        let hint = instead_of(&backend.value, names);
        let message = format!("there is no backend {}{hint}", quoted(&backend.value));
        report.mistake(&backend.at, message);
        return None;
    }
    Some(made(name, backend, require, terms, inputs))
}

fn made(
    name: Found<String>,
    backend: Found<String>,
    require: Vec<Found<Requirement>>,
    terms: Terms,
    inputs: &Inputs,
) -> ClassSettings {
    let is_opened = match &inputs.scope {
        Scope::All | Scope::Program => true,
        Scope::Class(only) => *only == name.value,
        Scope::Default => false,
    };
    ClassSettings {
        name,
        backend,
        require,
        terms,
        is_opened,
    }
}

fn check_scope(inputs: &Inputs, classes: &[ClassTable], report: &mut Report<'_>) {
    let Scope::Class(name) = &inputs.scope else {
        return;
    };
    let names = classes.iter().map(|table| table.name.value.as_str());
    if !names.clone().any(|known| known == name) {
        let message = format!(
            "there is no class {}{}",
            quoted(name),
            instead_of(name, names)
        );
        report.mistake(&At::Flag, message);
    }
}

/// A lock is taken on two backends, and those are no migrations themselves.
fn check_migrations(backends: &[BackendTable], report: &mut Report<'_>) {
    for table in backends {
        let Some(from) = &table.migrate_from else {
            continue;
        };
        let names = backends.iter().map(|table| table.name.value.as_str());
        let old = backends.iter().find(|old| old.name.value == from.value);
        let wrong = match old {
            None => {
                let hint = instead_of(&from.value, names);
                format!("there is no backend {}{hint}", quoted(&from.value))
            }
            Some(old) if old.name.value == table.name.value => {
                "a backend is not moved to from itself".to_owned()
            }
            Some(old) if old.migrate_from.is_some() => format!(
                "{} is still moved to itself: end that migration first",
                quoted(&from.value)
            ),
            Some(_) => continue,
        };
        report.mistake(&from.at, wrong);
    }
}

fn backend(
    table: BackendTable,
    used: Use,
    urls: &Urls<'_>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> BackendSettings {
    let url = urls.of(&table, used, report);
    let BackendTable {
        name,
        options,
        migrate_from,
        terms,
        ..
    } = table;
    let mut above = inputs
        .env
        .terms(&environment::of_backend(&name.value), report);
    if used.is_default {
        above = above.over(&inputs.env.terms(environment::OF_DEFAULT, report));
    }
    let terms = above.over(&terms);
    terms.check(report);
    BackendSettings {
        name,
        url,
        options,
        migrate_from,
        terms,
        is_opened: used.is_opened,
    }
}
