//! The sources of a configuration: variables and flags; and the report of errors.

use std::path::Path;

use toml::Spanned;

use super::error::{ConfigReport, Origin};
use super::file::TableKind;
use super::loader::Loader;
use super::table::ConfigTable;
use super::value::{instead_of, quoted};

/// What overrides a file, its place, and where its errors go.
pub(super) struct Context<'t, 'l> {
    pub(super) loader: &'l Loader,
    /// The configuration file, if there is one.
    pub(super) path: Option<&'l Path>,
    pub(super) report: &'t ConfigReport<'t>,
}

impl Context<'_, '_> {
    /// A variable that is set and not empty.
    pub(super) fn variable(&self, variable: &str) -> Option<Spanned<String>> {
        let value = (self.loader.env)(variable).filter(|value| !value.is_empty())?;
        let variable = variable.to_owned();
        let span = self.report.span(Origin::Environment { variable });
        match value.into_string() {
            Ok(text) => Some(Spanned::new(span, text)),
            Err(_) => {
                self.report.error(span, "the value is not UTF-8");
                None
            }
        }
    }

    /// Sets the keys of a table for which there is a variable.
    pub(super) fn set_from_variables(
        &self,
        table: &mut ConfigTable<'_>,
        prefix: &str,
        keys: &[&'static str],
    ) {
        for key in keys {
            if let Some(value) = self.variable(&format!("{prefix}{}", spelt(key))) {
                table.set(key, value);
            }
        }
    }

    pub(super) fn flag(&self, value: &str) -> Spanned<String> {
        Spanned::new(self.report.span(Origin::Flag), value.to_owned())
    }

    pub(super) fn unset(&self, value: &str) -> Spanned<String> {
        Spanned::new(self.report.span(Origin::Default), value.to_owned())
    }

    /// Finds the table with this name, or reports that there is none.
    pub(super) fn find<'a, 'v>(
        &self,
        kind: TableKind,
        tables: &'a [ConfigTable<'v>],
        name: &Spanned<String>,
    ) -> Option<&'a ConfigTable<'v>> {
        let found = tables.iter().find(|table| table.name() == name.get_ref());
        if found.is_none() {
            let hint = instead_of(name.get_ref(), tables.iter().map(ConfigTable::name));
            let (kind, quoted) = (kind.key(), quoted(name.get_ref()));
            let message = format!("there is no {kind} {quoted}{hint}");
            self.report.error(name.span(), message);
        }
        found
    }
}

/// A name or a key as a part of the name of a variable.
pub(super) fn spelt(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}
