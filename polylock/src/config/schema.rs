//! The JSON schema of the file, for editors.

use serde_json::Value;

use super::file::File;

/// The JSON schema of a configuration file, for editors that complete and check it.
#[must_use]
pub fn schema() -> Value {
    schemars::schema_for!(File).to_value()
}
