//! Those who share a lock, as the text that its row has of them.

use std::time::Duration;

use lock_core::engine::LeaseId;
use serde::{Deserialize, Serialize};

use super::codec::{BOOT, micros, moment, whole_micros};
use crate::table::{Broken, Holder, Row};

/// Writes the rows of all slots but the first; `None` if nothing is in them.
pub(super) fn write<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let seats: Vec<_> = rows.filter_map(Seat::of).collect();
    if seats.is_empty() {
        return None;
    }
    Some(serde_json::to_string(&seats).expect("BUG: numbers and text are JSON"))
}

/// Reads them; `None` if polylock has not written that.
pub(super) fn read(text: &[u8]) -> Option<Vec<Row>> {
    let seats: Vec<Seat> = serde_json::from_slice(text).ok()?;
    let rows: Option<Vec<_>> = seats.into_iter().map(Seat::row).collect();
    // One each, or one holder would hide another.
    rows.filter(|rows| rows.is_sorted_by(|a, b| a.slot < b.slot))
}

#[derive(Deserialize, Serialize)]
struct Seat {
    slot: u32,
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<Held>,
    /// Whose it was until an administrator took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broken: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Held {
    id: String,
    token: u64,
    permits: u32,
    expires: u64,
    ttl: u64,
    beat: u64,
    label: String,
    since: u64,
}

impl Seat {
    fn of(row: &Row) -> Option<Self> {
        let held = row.holder.as_ref().map(|holder| Held {
            id: holder.id.to_hex(),
            token: holder.token,
            permits: holder.permits,
            expires: micros(holder.expires),
            ttl: whole_micros(holder.ttl),
            beat: holder.beat,
            label: holder.label.clone(),
            since: holder.since,
        });
        let broken = row.broken.as_ref().map(|broken| broken.id.to_hex());
        (held.is_some() || broken.is_some()).then_some(Self {
            slot: row.slot,
            at: row.changed_at,
            held,
            broken,
        })
    }

    fn row(self) -> Option<Row> {
        let mut row = Row::new(self.slot);
        if self.slot == 0 {
            return None;
        }
        row.changed_at = self.at;
        if let Some(held) = self.held {
            row.holder = Some(held.holder()?);
        }
        if let Some(id) = self.broken {
            row.broken = Some(Broken {
                id: LeaseId::from_hex(&id)?,
                reason: String::new(),
            });
        }
        Some(row)
    }
}

impl Held {
    fn holder(self) -> Option<Holder> {
        Some(Holder {
            id: LeaseId::from_hex(&self.id)?,
            token: self.token,
            permits: self.permits,
            boot: BOOT,
            shift: Some(0),
            expires: moment(self.expires),
            end: None,
            ttl: Some(Duration::from_micros(self.ttl)).filter(|ttl| !ttl.is_zero())?,
            beat: self.beat,
            label: self.label,
            since: self.since,
        })
    }
}
