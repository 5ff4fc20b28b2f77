//! Combines file, environment and flags.

use std::collections::BTreeSet;
use std::path::Path;

use polylock_core::layers::Prefix;
use secrecy::ExposeSecret;
use toml::Spanned;
use toml::de::DeTable;

use super::configuration::Config;
use super::context::{Context, spelt};
use super::error::{ConfigErrors, ConfigReport, Origin};
use super::file::{BackendTable, ClassTable, TableKind, keys_of};
use super::loader::Scope;
use super::requirement::Requirement;
use super::settings::{BackendSettings, ClassSettings, LockSettings, Setting, any_key};
use super::table::{ConfigTable, Document};
use super::urls::{BackendUse, UrlOption, Urls, check_sources};
use super::value::quoted;

/// The variable that names the default backend.
const DEFAULT_BACKEND: &str = "LOCK_DEFAULT_BACKEND";

/// The URL of the default backend, unless [`DEFAULT_BACKEND`] or the program names it.
const URL: &str = "LOCK_URL";

/// The beginning of the other variables of that backend.
const OF_DEFAULT: &str = "LOCK_";

/// Goes before every key. It is not `LOCK_NAMESPACE`, in which `lockctl run` passes the namespace
/// of its own lock to its command: a service under `lockctl` would lock other keys than its peers.
const NAMESPACE: &str = "LOCK_KEY_NAMESPACE";

/// Combines the sources; fails with all errors, also those that were reported before.
pub(super) fn resolve(
    cx: &Context<'_, '_>,
    mut document: Document<'_>,
) -> Result<Config, ConfigErrors> {
    check_names(cx, &document.backends);
    check_names(cx, &document.classes);
    let is_named = set_top(cx, &mut document.top);
    let Document {
        top,
        mut backends,
        mut classes,
    } = with_default(cx, document);
    let scope = &cx.loader.scope;
    if let Scope::Class(name) = scope {
        cx.find(TableKind::Class, &classes, &cx.flag(name));
    }
    check_migrations(cx, &backends);
    for backend in &mut backends {
        let is_default = top.says("default", backend.name());
        set_backend(cx, backend, is_default, is_named);
    }
    for class in &mut classes {
        set_class(cx, class, &top, &backends);
    }
    let opened = opened(&backends, &classes, &top, scope);

    let mut listing = Listing(cx.report, Vec::new());
    listing.add_text(&top, "default");
    listing.add_text(&top, "namespace");
    let namespace = top.text("namespace");
    let urls = Urls { cx, namespace };
    let settings = backends.iter().map(|table| {
        let is_opened = |table: &ConfigTable<'_>| opened.contains(table.name());
        let migrates = |other: &&ConfigTable<'_>| other.says("migrate-from", table.name());
        let need = match is_opened(table) {
            true => BackendUse::Opened,
            false if backends.iter().filter(migrates).any(is_opened) => BackendUse::MigratedFrom,
            false => BackendUse::Unused,
        };
        backend(table, need, &urls, &mut listing)
    });
    let backends = settings.collect();
    let classes = classes.iter();
    let classes = classes.filter_map(|table| class(cx, table, &mut listing));
    let classes = classes.collect();
    Ok(Config {
        file: cx.path.map(Path::to_owned),
        registry: cx.loader.registry.clone(),
        default: top.text("default").map(Spanned::into_inner),
        backends,
        classes,
        settings: listing.1,
        warnings: cx.report.finish()?,
    })
}

/// Names that differ as variables of the environment do not.
fn check_names(cx: &Context<'_, '_>, tables: &[ConfigTable<'_>]) {
    for (at, table) in tables.iter().enumerate() {
        let is_same = |other: &&ConfigTable<'_>| spelt(other.name()) == spelt(table.name());
        if let Some(other) = tables[..at].iter().find(is_same) {
            let message = format!(
                "{} and {} have the same variables: names must differ in more than case, - and _",
                quoted(table.name()),
                quoted(other.name())
            );
            cx.report.error(table.name.span(), message);
        }
    }
}

/// Sets what flags and environment say of the keys at the top, and says whether they name the
/// default backend.
fn set_top(cx: &Context<'_, '_>, top: &mut ConfigTable<'_>) -> bool {
    let above = |flag: &Option<String>, variable| match flag {
        Some(flag) => Some(cx.flag(flag)),
        None => cx.variable(variable),
    };
    if let Some(namespace) = above(&cx.loader.namespace, NAMESPACE) {
        top.set("namespace", namespace);
    }
    if let Some(namespace) = top.text("namespace")
        && !namespace.get_ref().is_empty()
        && let Err(error) = Prefix::stored_key(namespace.get_ref(), &any_key())
    {
        cx.report.error(namespace.span(), error.message());
        top.reject("namespace");
    }
    let name = above(&cx.loader.default_backend, DEFAULT_BACKEND);
    let is_named = name.is_some();
    if let Some(name) = name {
        top.set("default", name);
    }
    is_named
}

/// Finds the default backend, and adds it if only a variable or the program has it.
fn with_default<'t>(cx: &Context<'t, '_>, mut document: Document<'t>) -> Document<'t> {
    let Document { top, backends, .. } = &mut document;
    if let Some(named) = top.text("default") {
        if cx.find(TableKind::Backend, backends, &named).is_none() {
            top.reject("default");
        }
        return document;
    }
    if top.is_wrong("default") {
        return document;
    }
    let is_left = |table: &&ConfigTable<'_>| {
        let mut others = backends.iter();
        others.any(|other| other.says("migrate-from", table.name()))
    };
    let mut ends = backends.iter().filter(|table| !is_left(table));
    let implied = match (ends.next(), ends.next()) {
        (Some(only), None) => Some(only),
        _ => backends.iter().find(|table| table.name() == DEFAULT),
    };
    let has_url = cx.loader.url.is_some() || cx.variable(URL).is_some();
    if let Some(implied) = implied {
        top.set("default", cx.unset(implied.name()));
    } else if has_url {
        top.set("default", cx.unset(DEFAULT));
        let name = cx.unset(DEFAULT);
        let table = ConfigTable::new(TableKind::Backend, name, DeTable::new(), cx.report);
        backends.push(table);
    } else if backends.is_empty() {
        let message = "there is no backend: write a table [backend.NAME] with a url, or set \
                       LOCK_URL";
        cx.report.error(cx.report.span(Origin::Default), message);
        top.reject("default");
    }
    document
}

/// The default backend where none is named, and the only one without a file.
const DEFAULT: &str = "default";

/// A lock is acquired on two backends, and those are no migrations themselves.
fn check_migrations(cx: &Context<'_, '_>, backends: &[ConfigTable<'_>]) {
    for table in backends {
        let Some(from) = table.text("migrate-from") else {
            continue;
        };
        let Some(old) = cx.find(TableKind::Backend, backends, &from) else {
            continue;
        };
        if old.name() == table.name() {
            let message = "a backend does not migrate from itself";
            cx.report.error(from.span(), message);
        } else if old.text("migrate-from").is_some() {
            let name = quoted(from.get_ref());
            let message = format!("{name} migrates from another backend: finish that first");
            cx.report.error(from.span(), message);
        }
    }
}

/// Sets what environment and flags say of a backend.
fn set_backend(
    cx: &Context<'_, '_>,
    backend: &mut ConfigTable<'_>,
    is_default: bool,
    is_named: bool,
) {
    check_sources(cx, backend);
    let own = format!("LOCK_BACKEND_{}_", spelt(backend.name()));
    let keys = keys_of::<LockSettings>();
    // The last one counts.
    if is_default {
        cx.set_from_variables(backend, OF_DEFAULT, keys);
        if !is_named {
            cx.set_from_variables(backend, OF_DEFAULT, &["url"]);
        }
    }
    cx.set_from_variables(backend, &own, keys);
    cx.set_from_variables(backend, &own, &["url"]);
    if let Some(url) = cx.loader.url.as_ref().filter(|_| is_default) {
        backend.set("url", cx.flag(url.expose_secret()));
    }
}

/// Sets what the environment and the backend say of a class, and finds its backend.
fn set_class<'t>(
    cx: &Context<'_, '_>,
    class: &mut ConfigTable<'t>,
    top: &ConfigTable<'_>,
    backends: &[ConfigTable<'t>],
) {
    let own = format!("LOCK_CLASS_{}_", spelt(class.name()));
    let keys = keys_of::<LockSettings>();
    cx.set_from_variables(class, &own, keys);
    cx.set_from_variables(class, &own, &["backend"]);
    if class.text("backend").is_none() && !class.is_wrong("backend") {
        if let Some(default) = top.text("default") {
            class.set("backend", cx.unset(default.get_ref()));
        } else if !top.is_wrong("default") {
            let message = format!(
                "the class {} has no backend, and there is no default one: write backend = \
                 \"NAME\" here, or default = \"NAME\" at the top",
                quoted(class.name())
            );
            cx.report.error(class.name.span(), message);
        }
    }
    if let Some(named) = class.text("backend") {
        match cx.find(TableKind::Backend, backends, &named) {
            Some(backend) => class.inherit(keys, backend),
            None => class.reject("backend"),
        }
    }
}

/// The names of the backends that are opened.
fn opened(
    backends: &[ConfigTable<'_>],
    classes: &[ConfigTable<'_>],
    top: &ConfigTable<'_>,
    scope: &Scope,
) -> BTreeSet<String> {
    let classes = classes.iter().filter(|class| is_class_opened(class, scope));
    let of_classes = classes.filter_map(|class| class.text("backend"));
    let mut opened: BTreeSet<_> = of_classes.map(Spanned::into_inner).collect();
    match scope {
        Scope::All => opened.extend(backends.iter().map(|table| table.name().to_owned())),
        Scope::Class(_) => {}
        Scope::Default | Scope::Program => {
            opened.extend(top.text("default").map(Spanned::into_inner));
        }
    }
    opened
}

fn is_class_opened(class: &ConfigTable<'_>, scope: &Scope) -> bool {
    match scope {
        Scope::All | Scope::Program => true,
        Scope::Class(only) => only == class.name(),
        Scope::Default => false,
    }
}

fn backend(
    table: &ConfigTable<'_>,
    need: BackendUse,
    urls: &Urls<'_, '_, '_>,
    listing: &mut Listing<'_>,
) -> BackendSettings {
    let BackendTable { options, .. } = table.read();
    let options = UrlOption::all(options);
    let url = urls.of(table, &options, need);
    let (shown, span) = match &url {
        Some(url) => (url.get_ref().to_string(), url.span()),
        None => ("unset".to_owned(), table.name.span()),
    };
    listing.add(table.path("url"), shown, urls.cx.report.origin(&span));
    for option in &options {
        let key = format!("{}.{}", table.path("options"), option.name.get_ref());
        let origin = urls.cx.report.origin(&option.name.span());
        listing.add(key, option.shown(), origin);
    }
    listing.add_text(table, "migrate-from");
    listing.add_lock_settings(table);
    BackendSettings {
        name: table.name().to_owned(),
        url: url.map(Spanned::into_inner),
        migrate_from: table.text("migrate-from").map(Spanned::into_inner),
        lock_settings: lock_settings(urls.cx, table),
        is_opened: need == BackendUse::Opened,
    }
}

/// A class, unless its backend is unknown.
fn class(
    cx: &Context<'_, '_>,
    table: &ConfigTable<'_>,
    listing: &mut Listing<'_>,
) -> Option<ClassSettings> {
    let lock_settings = lock_settings(cx, table);
    let ClassTable { require, .. } = table.read();
    let mut requirements = Vec::new();
    for wanted in require {
        let span = wanted.span();
        match Requirement::try_from(wanted.into_inner()) {
            Ok(requirement) => requirements.push(requirement),
            Err(message) => cx.report.error(span, message),
        }
    }
    listing.add_text(table, "backend");
    listing.add_lock_settings(table);
    if let (Some(span), false) = (table.span("require"), requirements.is_empty()) {
        let names: Vec<_> = requirements.iter().map(|known| known.name()).collect();
        let origin = cx.report.origin(&span);
        listing.add(table.path("require"), names.join(", "), origin);
    }
    Some(ClassSettings {
        name: table.name().to_owned(),
        backend: table.text("backend")?.into_inner(),
        require: requirements,
        lock_settings,
        is_opened: is_class_opened(table, &cx.loader.scope),
    })
}

fn lock_settings(cx: &Context<'_, '_>, table: &ConfigTable<'_>) -> LockSettings {
    let settings: LockSettings = table.read();
    settings.check(|key| table.span(key), |key| table.own_span(key), cx.report);
    settings
}

/// All values in the order of the file, defaults included.
struct Listing<'r>(&'r ConfigReport<'r>, Vec<Setting>);

impl Listing<'_> {
    fn add(&mut self, key: String, value: impl Into<String>, origin: Origin) {
        let value = value.into();
        self.1.push(Setting { key, value, origin });
    }

    /// The value of a key that is a string, if it is there.
    fn add_text(&mut self, table: &ConfigTable<'_>, key: &str) {
        if let Some(value) = table.text(key) {
            let origin = self.0.origin(&value.span());
            self.add(table.path(key), value.into_inner(), origin);
        }
    }

    /// How locks are requested, defaults included.
    fn add_lock_settings(&mut self, table: &ConfigTable<'_>) {
        for (key, default) in LockSettings::defaults() {
            match table.span(key) {
                Some(_) => self.add_text(table, key),
                None => self.add(table.path(key), default, Origin::Default),
            }
        }
    }
}
