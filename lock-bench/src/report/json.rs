//! The report as JSON, of the schema [`SCHEMA`].

use serde::Deserialize;
use serde_json::Value;

use super::{Report, SCHEMA};

/// Why a text is not a report of this schema.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is JSON, but not that of a report.
    #[error("not a report of a benchmark: it has no \"schema\"")]
    NoReport,
    /// It has the schema, but something in it is wrong.
    #[error("not a whole report of the schema {SCHEMA}")]
    NotWhole(#[source] serde_json::Error),
    /// It is not JSON.
    #[error("not JSON")]
    NotJson(#[source] serde_json::Error),
    /// It was written by a version with another schema.
    #[error("the schema is {found:?}; this version reads {SCHEMA} alone")]
    OtherSchema {
        /// What the text says it is.
        found: String,
    },
}

impl Report {
    /// Reads what [`to_json`](Self::to_json) wrote, and leaves out what this version does not know.
    ///
    /// # Errors
    ///
    /// If it is not JSON, has another schema or lacks a part.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        let value: Value = serde_json::from_str(text).map_err(ReadError::NotJson)?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => Self::deserialize(value).map_err(ReadError::NotWhole),
            Some(other) => Err(ReadError::OtherSchema {
                found: other.chars().take(40).collect(),
            }),
            None => Err(ReadError::NoReport),
        }
    }

    /// The report as JSON, with the [`Figures`](super::Figures) of each series added to it, so that
    /// a reader need not decode histograms.
    ///
    /// # Panics
    ///
    /// Never: all keys are text.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("BUG: a report is JSON");
        for (at, series) in self.series.iter().enumerate() {
            let figures = serde_json::to_value(self.figures(series));
            value["series"][at]["figures"] = figures.expect("BUG: figures are JSON");
        }
        value
    }
}
