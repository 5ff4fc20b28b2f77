//! The tables of a configuration file. These structs and [`LockSettings`] are the only list of its
//! keys: the reader, the variables, the JSON schema and the messages about unknown keys come from
//! them.

use std::collections::BTreeMap;

#[cfg(feature = "config-schema")]
use schemars::JsonSchema;
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use toml::Spanned;
use toml::de::{DeTable, Error};

#[cfg(feature = "config-schema")]
use super::schemas;
use super::settings::LockSettings;
use super::value::{Parameter, Scalar};

/// Backends and classes of locks for polylock.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "config-schema",
    derive(JsonSchema),
    schemars(deny_unknown_fields, rename = "polylock")
)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "its tables and values are read one by one")]
pub(super) struct File {
    /// The backends by name.
    backend: Option<BTreeMap<String, BackendTable>>,
    /// The classes of locks by name.
    class: Option<BTreeMap<String, ClassTable>>,
    /// The backend of requests that name none. Default: the only one, apart from those that are
    /// migrated from; or the one named "default".
    default: Option<String>,
    /// Goes before every key of URLs that name no namespace.
    namespace: Option<String>,
}

/// A lock service. It has one of url, url-env and url-file.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "config-schema",
    derive(JsonSchema),
    schemars(deny_unknown_fields, rename = "Backend", transform = schemas::add_keys_of::<LockSettings>)
)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "strings are read one by one, with their places")]
pub(super) struct BackendTable {
    /// The backend that each lock is acquired on as well, while a fleet migrates from there.
    migrate_from: Option<String>,
    /// Parameters of the URL.
    #[cfg_attr(feature = "config-schema", schemars(schema_with = "schemas::options"))]
    #[serde(default)]
    pub(super) options: BTreeMap<Spanned<String>, Parameter>,
    /// Where the service is, such as redis://cache.
    url: Option<String>,
    /// The environment variable that has the URL.
    url_env: Option<String>,
    /// The file that has the URL; relative to the directory of this one.
    url_file: Option<String>,
}

/// A class of locks.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "config-schema",
    derive(JsonSchema),
    schemars(deny_unknown_fields, rename = "Class", transform = schemas::add_keys_of::<LockSettings>)
)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "strings are read one by one, with their places")]
pub(super) struct ClassTable {
    /// The backend that has the locks. Default: the default one.
    backend: Option<String>,
    /// What the backend must have.
    #[cfg_attr(feature = "config-schema", schemars(schema_with = "schemas::require"))]
    #[serde(default)]
    pub(super) require: Vec<Spanned<Scalar>>,
}

/// What a table is.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum TableKind {
    Backend,
    Class,
    File,
}

impl TableKind {
    /// The key of its tables, as in `[KEY.NAME]`.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Class => "class",
            Self::File => "",
        }
    }

    /// The keys of a table.
    pub(super) fn keys(self) -> Vec<&'static str> {
        match self {
            Self::Backend => [keys_of::<BackendTable>(), keys_of::<LockSettings>()].concat(),
            Self::Class => [keys_of::<ClassTable>(), keys_of::<LockSettings>()].concat(),
            Self::File => keys_of::<File>().to_vec(),
        }
    }

    /// Checks the types of the values of a table.
    pub(super) fn check(self, values: DeTable<'_>) -> Result<(), Error> {
        match self {
            Self::Backend => check::<BackendTable>(values.clone())?,
            Self::Class => check::<ClassTable>(values.clone())?,
            Self::File => return check::<File>(values),
        }
        check::<LockSettings>(values)
    }
}

/// Checks whether a table has the types of a struct.
pub(super) fn check<'t, T: Deserialize<'t>>(values: DeTable<'t>) -> Result<(), Error> {
    T::deserialize(toml::Deserializer::from(Spanned::new(0..0, values))).map(drop)
}

/// The names of the fields of a struct, as serde knows them.
pub(super) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // There is nothing to read: it ends as soon as the fields are known.
    let _ended = T::deserialize(FieldNames(&mut fields)).is_err();
    fields
}

struct FieldNames<'f>(&'f mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
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

/// The hint for a key that people look for and that does not exist.
pub(super) fn advice(key: &str) -> Option<&'static str> {
    Some(match key.to_ascii_lowercase().replace('_', "-").as_str() {
        "renew" | "renew-every" | "renew-interval" | "renewal" | "renewal-interval" => {
            "a lease is renewed every third of its ttl, which cannot be changed; set the ttl"
        }
        "driver" | "kind" | "scheme" | "type" => "the scheme of the url selects the backend",
        "etcd" | "mysql" | "postgres" | "redis" | "sql" | "sqlite" | "zk" | "zookeeper" => {
            "parameters of a backend belong in its table \"options\""
        }
        "host" | "password" | "port" | "user" | "username" => "it is part of the url",
        "classes" | "lock" | "locks" => "a class of locks is a table [class.NAME]",
        "backends" | "profile" | "profiles" => "a backend is a table [backend.NAME]",
        _ => return None,
    })
}

/// The JSON schema of a configuration file, for editors that complete and check it.
#[cfg(feature = "config-schema")]
#[must_use]
pub fn schema() -> serde_json::Value {
    use schemars::SchemaGenerator;
    use schemars::transform::{RecursiveTransform, Transform as _};

    let mut schema = SchemaGenerator::default().into_root_schema_for::<File>();
    RecursiveTransform(schemas::remove_null).transform(&mut schema);
    schema.to_value()
}
