//! Reads the tables of a file value by value, so that one error does not hide the next.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::error::{ByteSpan, ConfigReport, Origin};
use super::file::{TableKind, advice, check};
use super::value::{self, Parameter, instead_of, quoted, shown};

/// The tables of a file.
pub(super) struct Document<'t> {
    pub(super) top: ConfigTable<'t>,
    /// In the order of the file.
    pub(super) backends: Vec<ConfigTable<'t>>,
    pub(super) classes: Vec<ConfigTable<'t>>,
}

/// Reads the text, and reports its errors; `None` if it is not TOML.
pub(super) fn read<'t>(text: &'t str, report: &'t ConfigReport<'t>) -> Option<Document<'t>> {
    let (top, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let end = text.len()..text.len();
        report.error(error.span().unwrap_or(end), error.message());
    }
    if !errors.is_empty() {
        return None;
    }
    let mut top = top.into_inner();
    let (backends, is_incomplete) = tables(TableKind::Backend, &mut top, report);
    let (classes, _) = tables(TableKind::Class, &mut top, report);
    let name = Spanned::new(report.span(Origin::Default), String::new());
    let mut top = ConfigTable::new(TableKind::File, name, top, report);
    if is_incomplete && top.text("default").is_none() {
        // The backend that is missing may be the default one.
        top.reject("default");
    }
    Some(Document {
        top,
        backends,
        classes,
    })
}

/// Takes the tables `[KIND.NAME]` out of the file, and says whether some are missing.
fn tables<'t>(
    kind: TableKind,
    top: &mut DeTable<'t>,
    report: &'t ConfigReport<'t>,
) -> (Vec<ConfigTable<'t>>, bool) {
    let Some(value) = top.remove(kind.key()) else {
        return (Vec::new(), false);
    };
    let (kind_name, span) = (kind.key(), value.span());
    let DeValue::Table(named) = value.into_inner() else {
        report.error(span, format!("this must be tables [{kind_name}.NAME]"));
        return (Vec::new(), true);
    };
    let (mut tables, mut is_incomplete) = (Vec::new(), false);
    for (name, value) in named {
        let name = Spanned::new(name.span(), name.into_inner().into_owned());
        if let Err(wrong) = value::name(name.get_ref()) {
            report.error(name.span(), wrong);
        }
        if let DeValue::Table(values) = value.into_inner() {
            tables.push(ConfigTable::new(kind, name, values, report));
        } else {
            let message = format!("each {kind_name} has a table of its own, [{kind_name}.NAME]");
            report.error(name.span(), message);
            is_incomplete = true;
        }
    }
    tables.sort_by_key(|table| table.name.span().start);
    (tables, is_incomplete)
}

/// A table whose keys are known and whose values have the right types: those of the file, and what
/// overrides them.
pub(super) struct ConfigTable<'t> {
    pub(super) name: Spanned<String>,
    kind: TableKind,
    values: DeTable<'t>,
    /// The keys whose values are wrong, which is reported.
    wrong: Vec<String>,
    /// The keys whose values come from another table.
    inherited: Vec<&'static str>,
    report: &'t ConfigReport<'t>,
}

impl<'t> ConfigTable<'t> {
    pub(super) fn new(
        kind: TableKind,
        name: Spanned<String>,
        mut values: DeTable<'t>,
        report: &'t ConfigReport<'t>,
    ) -> Self {
        let place = match kind {
            TableKind::File => String::new(),
            _ => format!(" of [{}.{}]", kind.key(), shown(name.get_ref())),
        };
        let known = kind.keys();
        for (key, value) in std::mem::take(&mut values) {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                values.insert(key, value);
                continue;
            }
            let hint = match advice(name) {
                Some(advice) => format!("; {advice}"),
                None => instead_of(name, known.iter().copied()),
            };
            let message = format!("unknown key {}{place}{hint}", quoted(name));
            report.error(key.span(), message);
        }
        if let Some(DeValue::Table(options)) = values.get_mut("options").map(Spanned::get_mut) {
            retain_right(options, check::<BTreeMap<String, Parameter>>, report);
        }
        let wrong = retain_right(&mut values, |one| kind.check(one), report);
        Self {
            name,
            kind,
            values,
            wrong,
            inherited: Vec::new(),
            report,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// The place of a key, as in `backend.main.ttl`.
    pub(super) fn path(&self, key: &str) -> String {
        match self.kind {
            TableKind::File => key.to_owned(),
            kind => format!("{}.{}.{key}", kind.key(), self.name()),
        }
    }

    /// Sets a value in place of that of the file, or reports what is wrong with it.
    pub(super) fn set(&mut self, key: &'static str, value: Spanned<String>) {
        let span = value.span();
        let value = DeValue::String(value.into_inner().into());
        let key = Spanned::new(span.clone(), key.into());
        let mut one = DeTable::from_iter([(key, Spanned::new(span, value))]);
        retain_right(&mut one, |one| self.kind.check(one), self.report);
        self.values.extend(one);
    }

    /// Takes the values that are missing here from another table.
    pub(super) fn inherit(&mut self, keys: &[&'static str], from: &Self) {
        for key in keys {
            if let Some((name, value)) = from.values.get_key_value(*key)
                && !self.values.contains_key(name)
            {
                self.values.insert(name.clone(), value.clone());
                self.inherited.push(*key);
            }
        }
    }

    /// Drops a value whose error is reported.
    pub(super) fn reject(&mut self, key: &str) {
        self.values.remove(key);
        self.wrong.push(key.to_owned());
    }

    /// The values as a struct with some of the keys of the table.
    pub(super) fn read<T: Deserialize<'t>>(&self) -> T {
        let values = Spanned::new(0..0, self.values.clone());
        T::deserialize(toml::Deserializer::from(values)).expect("BUG: each value has been checked")
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Option<Spanned<String>> {
        let value = self.values.get(key)?;
        let text = value.get_ref().as_str()?;
        Some(Spanned::new(value.span(), text.to_owned()))
    }

    /// Whether the string of a key is this one.
    pub(super) fn says(&self, key: &str, text: &str) -> bool {
        self.text(key).is_some_and(|found| found.get_ref() == text)
    }

    pub(super) fn span(&self, key: &str) -> Option<ByteSpan> {
        self.values.get(key).map(Spanned::span)
    }

    /// The same without the values of another table.
    pub(super) fn own_span(&self, key: &str) -> Option<ByteSpan> {
        let is_inherited = self.inherited.contains(&key);
        self.span(key).filter(|_| !is_inherited)
    }

    /// Whether the value is wrong, which is reported.
    pub(super) fn is_wrong(&self, key: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong == key)
    }
}

/// Removes the entries whose values are wrong, reports them, and gives their keys.
fn retain_right<'t>(
    values: &mut DeTable<'t>,
    check: impl Fn(DeTable<'t>) -> Result<(), Error>,
    report: &ConfigReport<'_>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let all = std::mem::take(values).into_iter();
    let right = all.filter(|(key, value)| {
        let one = DeTable::from_iter([(key.clone(), value.clone())]);
        let Err(error) = check(one) else { return true };
        let span = error.span().unwrap_or_else(|| value.span());
        report.error(span, without_value(error.message()));
        wrong.push(key.get_ref().to_string());
        false
    });
    *values = right.collect();
    wrong
}

/// What serde says of a value of the wrong type, without the value, which may be a password.
fn without_value(message: &str) -> String {
    if !message.starts_with("invalid ") {
        return message.to_owned();
    }
    let expected = message.rsplit_once(", expected ");
    match expected.map_or("another type", |(_, expected)| expected) {
        "a map" => "this must be a table".to_owned(),
        "any value" => "this number is too large".to_owned(),
        "a sequence" => "this must be an array, as in [\"fencing\"]".to_owned(),
        expected => format!("this must be {expected}"),
    }
}
