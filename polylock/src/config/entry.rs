//! Reads a file with serde so that one wrong value does not hide the next: an entry that cannot be
//! read is reported, and reading goes on.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

#[cfg(feature = "config-schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{Error as NoValue, MapAccessDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer,
    MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use toml::Spanned;
use toml::de::DeTable;

use super::error::Report;
use super::file::{File, advice};
use super::origin::{At, Found};
use super::suggest::{instead_of, quoted, shown};
use super::value;

thread_local! {
    /// What was wrong in the file that this thread reads: serde passes nothing to `Deserialize`.
    static ERRORS: RefCell<Vec<(At, String)>> = const { RefCell::new(Vec::new()) };
}

fn error(at: At, message: String) {
    ERRORS.with_borrow_mut(|errors| errors.push((at, message)));
}

/// Reads the text, and reports its errors; `None` if it is not TOML.
pub(super) fn read(text: &str, report: &mut Report<'_>) -> Option<File> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = At::Span(error.span().unwrap_or(text.len()..text.len()));
        report.error(&at, error.message());
    }
    if !errors.is_empty() {
        return None;
    }
    ERRORS.take();
    let visitor = AttemptVisitor::<Checked<File>>(PhantomData);
    let read = toml::Deserializer::from(table).deserialize_map(visitor);
    let file = match read {
        Ok(Ok(checked)) => Some(checked.known("")),
        Ok(Err(message)) => {
            error(At::File, message);
            None
        }
        // Its own message may repeat a value.
        Err(wrong) => {
            let at = wrong.span().map_or(At::File, At::Span);
            error(at, "this value has the wrong type".to_owned());
            None
        }
    };
    for (at, message) in ERRORS.take() {
        report.error(&at, message);
    }
    file
}

/// The value of a key.
#[derive(Clone, Default)]
pub(super) enum Entry<T> {
    #[default]
    Missing,
    Found(Found<T>),
    /// Its error is reported.
    Wrong,
}

impl<T: Clone> Entry<T> {
    pub(super) fn found(&self) -> Option<Found<T>> {
        match self {
            Self::Found(found) => Some(found.clone()),
            _ => None,
        }
    }
}

impl<T> Entry<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found.value),
            _ => None,
        }
    }
}

impl<'de, T: Value> Deserialize<'de> for Entry<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<Attempt<T>>::deserialize(deserializer)?;
        let span = read.span();
        Ok(match read.into_inner().0 {
            Ok(value) => Self::Found(Found::in_file(value, span)),
            Err(message) => {
                error(At::Span(span), message);
                Self::Wrong
            }
        })
    }
}

/// Something that stands behind a key. Each function reads one kind of TOML value; the others are
/// refused.
pub(super) trait Value: Sized {
    const EXPECTED: &'static str = "a text in quotes";

    fn from_text(_text: &str) -> Result<Self, String> {
        refused::<Self>()
    }

    fn from_integer(_number: i64) -> Result<Self, String> {
        refused::<Self>()
    }

    fn from_bool(_value: bool) -> Result<Self, String> {
        refused::<Self>()
    }

    fn from_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Result<Self, String>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(refused::<Self>())
    }

    fn from_table<'de, A: MapAccess<'de>>(mut table: A) -> Result<Result<Self, String>, A::Error> {
        while table.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(refused::<Self>())
    }

    #[cfg(feature = "config-schema")]
    fn schema(_generator: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

fn refused<T: Value>() -> Result<T, String> {
    Err(format!("this must be {}", T::EXPECTED))
}

#[cfg(feature = "config-schema")]
impl<T: Value> JsonSchema for Entry<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

/// A value, or what is wrong with it.
struct Attempt<T>(Result<T, String>);

impl<'de, T: Value> Deserialize<'de> for Attempt<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(AttemptVisitor(PhantomData))
            .map(Self)
    }
}

struct AttemptVisitor<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for AttemptVisitor<T> {
    type Value = Result<T, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(T::from_bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(T::from_integer(number))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(refused())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(refused())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(T::from_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        T::from_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
        T::from_table(table)
    }
}

/// A struct whose fields are the keys of a table.
pub(super) trait Table: DeserializeOwned + TableSchema {
    /// The first part of its header, as in `[KIND.NAME]`.
    const KIND: &'static str;
    /// The headers.
    const HEADERS: &'static str;
}

#[cfg(feature = "config-schema")]
pub(super) use schemars::JsonSchema as TableSchema;

#[cfg(not(feature = "config-schema"))]
pub(super) trait TableSchema {}

#[cfg(not(feature = "config-schema"))]
impl<T> TableSchema for T {}

/// The tables `[KIND.NAME]`.
pub(super) struct Tables<T> {
    /// In the order of the file.
    pub(super) all: Vec<Named<T>>,
    /// Whether one of them is not a table, which is reported.
    pub(super) is_incomplete: bool,
}

pub(super) struct Named<T> {
    pub(super) name: Found<String>,
    pub(super) table: T,
}

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            is_incomplete: false,
        }
    }
}

impl<T: Table> Value for Tables<T> {
    const EXPECTED: &'static str = T::HEADERS;

    fn from_table<'de, A: MapAccess<'de>>(mut tables: A) -> Result<Result<Self, String>, A::Error> {
        let mut found = Self::default();
        while let Some(name) = tables.next_key::<Spanned<String>>()? {
            let span = name.span();
            let name = Found::in_file(name.into_inner(), span.clone());
            if let Err(wrong) = value::name(&name.value) {
                error(name.at.clone(), wrong);
            }
            match tables.next_value::<Attempt<Checked<T>>>()?.0 {
                Ok(checked) => {
                    let place = format!(" of [{}.{}]", T::KIND, shown(&name.value));
                    let table = checked.known(&place);
                    found.all.push(Named { name, table });
                }
                Err(_) => {
                    let kind = T::KIND;
                    let message = format!("each {kind} has a table of its own, [{kind}.NAME]");
                    error(name.at, message);
                    found.is_incomplete = true;
                }
            }
        }
        found.all.sort_by_key(|named| named.name.at.start());
        Ok(Ok(found))
    }

    #[cfg(feature = "config-schema")]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        <std::collections::BTreeMap<String, T>>::json_schema(generator)
    }
}

/// A table and its unknown keys.
struct Checked<T> {
    table: T,
    unknown: Vec<Found<String>>,
}

impl<T: Table> Checked<T> {
    /// Reports the unknown keys.
    fn known(self, place: &str) -> T {
        for Found { value: key, at } in self.unknown {
            let hint = match advice(&key) {
                Some(advice) => format!("; {advice}"),
                None => instead_of(&key, keys_of::<T>().iter().copied()),
            };
            error(at, format!("unknown key {}{place}{hint}", quoted(&key)));
        }
        self.table
    }
}

impl<T: Table> Value for Checked<T> {
    const EXPECTED: &'static str = "a table";

    fn from_table<'de, A: MapAccess<'de>>(table: A) -> Result<Result<Self, String>, A::Error> {
        let mut unknown = Vec::new();
        let keys = KnownKeys {
            table,
            known: keys_of::<T>(),
            unknown: &mut unknown,
        };
        let table = T::deserialize(MapAccessDeserializer::new(keys))?;
        Ok(Ok(Self { table, unknown }))
    }
}

/// A table without the keys that its struct does not have.
struct KnownKeys<'u, A> {
    table: A,
    known: &'static [&'static str],
    unknown: &'u mut Vec<Found<String>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for KnownKeys<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.table.next_key::<Spanned<String>>()? {
            if self.known.contains(&key.get_ref().as_str()) {
                let key: StringDeserializer<A::Error> = key.into_inner().into_deserializer();
                return seed.deserialize(key).map(Some);
            }
            let span = key.span();
            self.unknown.push(Found::in_file(key.into_inner(), span));
            self.table.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.table.next_value_seed(seed)
    }
}

/// The names of the fields of a struct, as serde knows them.
pub(super) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // There is nothing to read: it ends as soon as the fields are known.
    let _ended = T::deserialize(Fields(&mut fields)).is_err();
    fields
}

struct Fields<'f>(&'f mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        Err(NoValue::custom("the fields are known"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
