//! Combines file, environment and flags.

use std::path::Path;

use super::entry::{Entry, Named, Tables};
use super::environment;
use super::error::Report;
use super::file::{BackendTable, ClassTable, File};
use super::loader::{Inputs, Scope};
use super::origin::{At, Found};
use super::settings::{BackendSettings, ClassSettings};
use super::suggest::{instead_of, quoted};
use super::urls::{Urls, Use};

/// A configuration; valid if nothing was reported.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) default: Option<Found<String>>,
    pub(super) namespace: Option<Found<String>>,
    pub(super) backends: Vec<BackendSettings>,
    pub(super) classes: Vec<ClassSettings>,
}

/// Combines the sources, and reports what does not fit together.
pub(super) fn resolve(
    file: File,
    path: Option<&Path>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Resolved {
    let is_incomplete = matches!(&file.backend, Entry::Wrong);
    let mut backends = file.backend.value().unwrap_or_default();
    backends.is_incomplete |= is_incomplete;
    let classes = file.class.value().unwrap_or_default().all;
    check_names(backends.all.iter().map(|table| &table.name), report);
    check_names(classes.iter().map(|table| &table.name), report);
    let profile = inputs.profile.clone();
    let profile = profile
        .map(|name| Found::new(name, At::Flag))
        .or_else(|| inputs.env.text(environment::PROFILE, report));
    let reads_variable = profile.is_none();
    let named = profile.or_else(|| file.default.found());
    let is_default_wrong = matches!(&file.default, Entry::Wrong);
    let default = match named {
        None if is_default_wrong => Err(AlreadyReported),
        named => default(&mut backends, named, inputs, report),
    };
    let backends = backends.all;
    check_scope(inputs, &classes, report);
    check_migrations(&backends, report);
    let namespace = file.namespace.found();
    let urls = Urls::new(path, inputs, reads_variable, namespace, report);
    let classes: Vec<_> = classes
        .into_iter()
        .map(|named| class(named, &default, &backends, inputs, report))
        .collect();

    let default = default.ok().flatten();
    let is_default = |name: &str| default.as_ref().is_some_and(|found| found.value == name);
    let is_opened = |name: &str| {
        let of_class = |class: &Class| class.is_opened && class.backend_name() == Some(name);
        let by_default = is_default(name) && !matches!(inputs.scope, Scope::Class(_));
        classes.iter().any(of_class) || by_default || inputs.scope == Scope::All
    };
    let is_needed = |name: &str| {
        let migrates = |other: &Named<BackendTable>| {
            migrates_from(other, name) && is_opened(&other.name.value)
        };
        is_opened(name) || backends.iter().any(migrates)
    };
    let settings: Vec<_> = backends
        .iter()
        .map(|named| {
            let name = named.name.value.as_str();
            let used = Use {
                is_default: is_default(name),
                is_needed: is_needed(name),
                is_opened: is_opened(name),
            };
            backend(named, used, &urls, inputs, report)
        })
        .collect();
    let classes = classes
        .into_iter()
        .filter_map(|class| {
            let name = class.backend_name();
            let backend = settings.iter().find(|backend| Some(backend.name()) == name);
            let mut lock_settings = class.lock_settings;
            if let Some(backend) = backend {
                lock_settings = lock_settings.over(&backend.lock_settings);
            }
            lock_settings.check(report);
            Some(ClassSettings {
                name: class.name,
                backend: class.backend?,
                require: class.table.require.value().unwrap_or_default(),
                lock_settings,
                is_opened: class.is_opened,
            })
        })
        .collect();
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
                "{} and {} have the same variables: names must differ in more than case, - and _",
                quoted(&name.value),
                quoted(other)
            );
            report.error(&name.at, message);
        }
        seen.push((variable, &name.value));
    }
}

/// The default backend, if there is one, made if only a variable or the program has it.
type Default = Result<Option<Found<String>>, AlreadyReported>;

/// The error of this value is reported.
#[derive(Debug)]
struct AlreadyReported;

fn default(
    backends: &mut Tables<BackendTable>,
    named: Option<Found<String>>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Default {
    let all = &backends.all;
    if let Some(named) = named {
        return match known(all, &named, report) {
            true => Ok(Some(named)),
            false => Err(AlreadyReported),
        };
    }
    let is_left = |table: &&Named<BackendTable>| {
        all.iter()
            .any(|other| migrates_from(other, &table.name.value))
    };
    let mut ends = all.iter().filter(|table| !is_left(table));
    let implied = match (ends.next(), ends.next()) {
        (Some(only), None) => Some(only),
        _ => all.iter().find(|table| table.name.value == DEFAULT),
    };
    if let Some(implied) = implied {
        return Ok(Some(Found::new(implied.name.value.clone(), At::Default)));
    }
    let has_url = inputs.url.is_some() || inputs.env.text(environment::URL, report).is_some();
    if !has_url && (inputs.fallback.is_none() || !all.is_empty()) {
        if backends.is_incomplete {
            return Err(AlreadyReported);
        }
        if all.is_empty() {
            let message = "there is no backend: write a table [backend.NAME] with a url, or set \
                           LOCK_URL";
            report.error(&At::File, message);
            return Err(AlreadyReported);
        }
        return Ok(None);
    }
    let name = Found::new(DEFAULT.to_owned(), At::Default);
    backends.all.push(Named {
        name: name.clone(),
        table: BackendTable::default(),
    });
    Ok(Some(name))
}

/// The default backend where none is named, and the only one without a file.
const DEFAULT: &str = "default";

/// Whether there is a backend of that name; reports that there is none.
fn known(backends: &[Named<BackendTable>], name: &Found<String>, report: &mut Report<'_>) -> bool {
    let mut names = backends.iter().map(|table| table.name.value.as_str());
    let hint = instead_of(&name.value, names.clone());
    let is_known = names.any(|known| known == name.value);
    if !is_known {
        let message = format!("there is no backend {}{hint}", quoted(&name.value));
        report.error(&name.at, message);
    }
    is_known
}

fn migrates_from(table: &Named<BackendTable>, name: &str) -> bool {
    let from = table.table.migrate_from.found();
    from.is_some_and(|from| from.value == name)
}

/// A class whose backend may be unknown.
struct Class {
    name: Found<String>,
    table: ClassTable,
    backend: Option<Found<String>>,
    lock_settings: super::settings::LockSettings,
    is_opened: bool,
}

impl Class {
    fn backend_name(&self) -> Option<&str> {
        self.backend.as_ref().map(|found| found.value.as_str())
    }
}

fn class(
    Named { name, table }: Named<ClassTable>,
    default: &Default,
    backends: &[Named<BackendTable>],
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> Class {
    let prefix = environment::of_class(&name.value);
    let above = inputs.env.lock_settings(&prefix, report);
    let variable = inputs.env.text(&format!("{prefix}BACKEND"), report);
    let named = variable.or_else(|| table.backend.found());
    let backend = match (named, &table.backend, default) {
        (Some(named), ..) => Some(named).filter(|named| known(backends, named, report)),
        (None, Entry::Wrong, _) | (None, _, Err(AlreadyReported)) => None,
        (None, _, Ok(Some(default))) => Some(Found::new(default.value.clone(), At::Default)),
        (None, _, Ok(None)) => {
            let message = format!(
                "the class {} has no backend, and there is no default one: write backend = \
                 \"NAME\" here, or default = \"NAME\" at the top",
                quoted(&name.value)
            );
            report.error(&name.at, message);
            None
        }
    };
    Class {
        lock_settings: above.over(&table.lock_settings()),
        is_opened: match &inputs.scope {
            Scope::All | Scope::Program => true,
            Scope::Class(only) => *only == name.value,
            Scope::Default => false,
        },
        name,
        table,
        backend,
    }
}

fn check_scope(inputs: &Inputs, classes: &[Named<ClassTable>], report: &mut Report<'_>) {
    let Scope::Class(name) = &inputs.scope else {
        return;
    };
    let names = classes.iter().map(|table| table.name.value.as_str());
    if !names.clone().any(|known| known == name) {
        let hint = instead_of(name, names);
        report.error(
            &At::Flag,
            format!("there is no class {}{hint}", quoted(name)),
        );
    }
}

/// A lock is acquired on two backends, and those are no migrations themselves.
fn check_migrations(backends: &[Named<BackendTable>], report: &mut Report<'_>) {
    for table in backends {
        let Some(from) = table.table.migrate_from.found() else {
            continue;
        };
        let old = backends.iter().find(|old| old.name.value == from.value);
        match old {
            None => {
                known(backends, &from, report);
            }
            Some(old) if old.name.value == table.name.value => {
                report.error(&from.at, "a backend does not migrate from itself");
            }
            Some(old) if old.table.migrate_from.found().is_some() => {
                let name = quoted(&from.value);
                let message = format!("{name} migrates from another backend: finish that first");
                report.error(&from.at, message);
            }
            Some(_) => {}
        }
    }
}

fn backend(
    named: &Named<BackendTable>,
    used: Use,
    urls: &Urls<'_>,
    inputs: &Inputs,
    report: &mut Report<'_>,
) -> BackendSettings {
    let Named { name, table } = named;
    let options = table.options.found();
    let options = options.map(|found| found.value).unwrap_or_default();
    let url = urls.of(named, &options, used, report);
    let prefix = environment::of_backend(&name.value);
    let mut above = inputs.env.lock_settings(&prefix, report);
    if used.is_default {
        above = above.over(&inputs.env.lock_settings(environment::OF_DEFAULT, report));
    }
    let lock_settings = above.over(&table.lock_settings());
    lock_settings.check(report);
    BackendSettings {
        name: name.clone(),
        url,
        options,
        migrate_from: table.migrate_from.found(),
        lock_settings,
        is_opened: used.is_opened,
    }
}
