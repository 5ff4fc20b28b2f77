//! From the text to a [`Document`]: every key and every value is looked at.

use std::borrow::Cow;

use lock_core::LockUrl;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{BackendTable, ClassTable, Document, Parameter, UrlKey};
use super::keys;
use super::place::{At, Found, Span};
use super::report::Report;
use super::requirement::Requirement;
use super::terms::Terms;
use super::value;
use super::words::{instead_of, is_harmless, is_path, quoted, shown};

/// Reads the text, and reports what is wrong with it; `None` if it is no TOML.
pub(super) fn read<'t>(text: &'t str, report: &mut Report<'t>) -> Option<Document> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let end = text.len()..text.len();
        let at = At::Span(error.span().unwrap_or(end));
        report.mistake(&at, error.message());
    }
    if !errors.is_empty() {
        return None;
    }
    let mut values = Vec::new();
    find_values(table.get_ref(), &mut values);
    report.lines.understand(values);
    Some(Reader { report }.document(table.get_ref()))
}

/// All values that are no tables, inner ones included.
fn find_values(table: &DeTable<'_>, found: &mut Vec<Span>) {
    for value in table.values() {
        match value.get_ref() {
            DeValue::Table(table) => find_values(table, found),
            DeValue::Array(array) => {
                for value in array.iter() {
                    match value.get_ref() {
                        DeValue::Table(table) => find_values(table, found),
                        _ => found.push(value.span()),
                    }
                }
            }
            _ => found.push(value.span()),
        }
    }
}

type Key<'d> = Spanned<Cow<'d, str>>;
type Value<'d> = Spanned<DeValue<'d>>;

struct Reader<'r, 't> {
    report: &'r mut Report<'t>,
}

impl Reader<'_, '_> {
    fn document(&mut self, table: &DeTable<'_>) -> Document {
        let mut document = Document::default();
        for (key, value) in in_order(table) {
            match key.get_ref().as_ref() {
                "backend" => {
                    let are_tables = self.each_table("backend", value, |reader, name, table| {
                        let backend = reader.backend(name, table);
                        document.backends.push(backend);
                    });
                    document.are_backends_wrong = !are_tables;
                }
                "default" => document.default = self.plain(value),
                "lock" => {
                    self.each_table("lock", value, |reader, name, table| {
                        let class = reader.class(name, table);
                        document.classes.push(class);
                    });
                }
                "namespace" => document.namespace = self.plain(value),
                _ => self.unknown(key, keys::FILE, ""),
            }
        }
        document
    }

    fn backend(&mut self, name: Found<String>, table: &DeTable<'_>) -> BackendTable {
        let mut urls = Vec::new();
        let mut backend = BackendTable {
            name,
            url: None,
            is_url_wrong: false,
            options: Vec::new(),
            migrate_from: None,
            terms: Terms::default(),
        };
        for (key, value) in in_order(table) {
            let url_key = match key.get_ref().as_ref() {
                "migrate-from" => {
                    backend.migrate_from = self.plain(value);
                    continue;
                }
                "options" => {
                    backend.options = self.options(value);
                    continue;
                }
                "url" => UrlKey::Url,
                "url-env" => UrlKey::Env,
                "url-file" => UrlKey::File,
                _ => {
                    if !self.term(&mut backend.terms, key, value) {
                        let table = format!(" of [backend.{}]", shown(&backend.name.value));
                        self.unknown(key, keys::BACKEND, &table);
                    }
                    continue;
                }
            };
            let text = match url_key {
                UrlKey::Env => self.plain(value),
                UrlKey::File => self.path(value),
                UrlKey::Url => self.string(value),
            };
            urls.push((url_key, key.span(), text));
        }
        self.one_url(&mut backend, urls);
        backend
    }

    fn one_url(
        &mut self,
        backend: &mut BackendTable,
        urls: Vec<(UrlKey, Span, Option<Found<String>>)>,
    ) {
        let many = urls.len() > 1;
        for (url_key, span, text) in urls {
            if many {
                let one = "a backend has one of url, url-env and url-file";
                self.report.mistake(&At::Span(span), one);
            }
            backend.is_url_wrong |= text.is_none();
            let url = text.map(|text| (url_key, text));
            backend.url = backend.url.take().or(url);
        }
    }

    fn options(&mut self, value: &Value<'_>) -> Vec<Parameter> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value, "a table of parameters of the URL");
            return Vec::new();
        };
        let entries = in_order(table).into_iter();
        let options = entries.filter_map(|(key, value)| {
            let text = match value.get_ref() {
                DeValue::Boolean(true) => "on".to_owned(),
                DeValue::Boolean(false) => "off".to_owned(),
                DeValue::Integer(number) if number.radix() == 10 => {
                    if LockUrl::shows(key.get_ref()) {
                        self.report.lines.show(&value.span());
                    }
                    number.as_str().to_owned()
                }
                DeValue::String(text) => text.to_string(),
                _ => {
                    self.wrong_type(value, "a text, a number or true or false");
                    return None;
                }
            };
            let name = Found::in_file(key.get_ref().to_string(), key.span());
            Some(Parameter { name, value: text })
        });
        options.collect()
    }

    fn class(&mut self, name: Found<String>, table: &DeTable<'_>) -> ClassTable {
        let mut class = ClassTable {
            name,
            backend: None,
            require: Vec::new(),
            terms: Terms::default(),
        };
        for (key, value) in in_order(table) {
            match key.get_ref().as_ref() {
                "backend" => class.backend = self.plain(value),
                "require" => class.require = self.requirements(value),
                _ => {
                    if !self.term(&mut class.terms, key, value) {
                        let table = format!(" of [lock.{}]", shown(&class.name.value));
                        self.unknown(key, keys::CLASS, &table);
                    }
                }
            }
        }
        class
    }

    fn requirements(&mut self, value: &Value<'_>) -> Vec<Found<Requirement>> {
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type(value, "a list, as in require = [\"fencing\"]");
            return Vec::new();
        };
        let mut requirements = Vec::new();
        for value in array.iter() {
            let Some(name) = self.plain(value) else {
                continue;
            };
            match Requirement::of_name(&name.value) {
                Some(requirement) => requirements.push(Found::new(requirement, name.at)),
                None => {
                    let (text, hint) = (&name.value, instead_of(&name.value, Requirement::names()));
                    let message = format!("nothing that can be required: {}{hint}", quoted(text));
                    self.report.mistake(&name.at, message);
                }
            }
        }
        requirements
    }

    /// Reads a key that backends and classes have in common; false if it is none.
    fn term(&mut self, terms: &mut Terms, key: &Key<'_>, value: &Value<'_>) -> bool {
        match key.get_ref().as_ref() {
            "max-hold" => terms.max_hold = self.parsed(value, value::max_hold),
            "min-hold" => terms.min_hold = self.parsed(value, value::duration),
            "ttl" => terms.ttl = self.parsed(value, value::duration),
            "wait" => terms.wait = self.parsed(value, value::wait),
            _ => return false,
        }
        true
    }

    fn parsed<T>(
        &mut self,
        value: &Value<'_>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Found<T>> {
        if let DeValue::Integer(number) = value.get_ref() {
            self.report.lines.show(&value.span());
            let message = format!("a duration has a unit, write \"{}s\"", number.as_str());
            self.report.mistake(&At::Span(value.span()), message);
            return None;
        }
        let text = self.plain(value)?;
        match parse(&text.value) {
            Ok(value) => Some(Found::new(value, text.at)),
            Err(wrong) => {
                self.report.mistake(&text.at, wrong);
                None
            }
        }
    }

    /// Reads a text that is shown, unless it looks like a URL in the wrong place.
    fn plain(&mut self, value: &Value<'_>) -> Option<Found<String>> {
        let text = self.string(value)?;
        if is_harmless(&text.value) {
            self.report.lines.show(&value.span());
        }
        Some(text)
    }

    fn path(&mut self, value: &Value<'_>) -> Option<Found<String>> {
        let path = self.string(value)?;
        if is_path(&path.value) {
            self.report.lines.show(&value.span());
        }
        Some(path)
    }

    fn string(&mut self, value: &Value<'_>) -> Option<Found<String>> {
        match value.get_ref() {
            DeValue::String(text) => Some(Found::in_file(text.to_string(), value.span())),
            _ => {
                self.wrong_type(value, "a text in quotes");
                None
            }
        }
    }

    /// Reads the tables `[kind.NAME]`; false if something else is among them.
    fn each_table(
        &mut self,
        kind: &str,
        value: &Value<'_>,
        mut read: impl FnMut(&mut Self, Found<String>, &DeTable<'_>),
    ) -> bool {
        let DeValue::Table(tables) = value.get_ref() else {
            self.wrong_type(value, &format!("tables [{kind}.NAME]"));
            return false;
        };
        let mut are_tables = true;
        for (key, value) in in_order(tables) {
            let name = Found::in_file(key.get_ref().to_string(), key.span());
            if let Err(wrong) = value::name(&name.value) {
                self.report.mistake(&name.at, wrong);
            }
            let DeValue::Table(table) = value.get_ref() else {
                let message = format!("each {kind} has a table of its own, [{kind}.NAME]");
                self.report.mistake(&name.at, message);
                are_tables = false;
                continue;
            };
            read(self, name, table);
        }
        are_tables
    }

    fn wrong_type(&mut self, value: &Value<'_>, expected: &str) {
        let message = format!("this must be {expected}");
        self.report.mistake(&At::Span(value.span()), message);
    }

    fn unknown(&mut self, key: &Key<'_>, known: &[&str], table: &str) {
        let name = key.get_ref();
        let hint = match keys::advice(name) {
            Some(advice) => format!("; {advice}"),
            None => instead_of(name, known.iter().copied()),
        };
        let message = format!("unknown key {}{table}{hint}", quoted(name));
        self.report.mistake(&At::Span(key.span()), message);
    }
}

/// The entries as they follow each other in the file.
fn in_order<'d, 't>(table: &'d DeTable<'t>) -> Vec<(&'d Key<'t>, &'d Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}
