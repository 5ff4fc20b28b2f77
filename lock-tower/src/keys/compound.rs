use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::join::join;
use super::{KeyError, KeyExtractor, Keys};

/// Names the lock by several parts, such as a tenant and an id, so that no tenant can take the locks
/// of another.
///
/// Parts are joined as by [`Keys::joined`]: different parts make different names. All of them are
/// asked. If one fails, so does the whole, with the error of the first that does; otherwise, if one
/// [skips](Keys::Skip), so does the whole. If one names [several](Keys::Many) locks, each is joined
/// with the other parts; if two of them do, that is [`KeyError::Misconfigured`].
///
/// # Examples
///
/// ```
/// use lock_tower::keys::{Compound, Header, QueryParam};
/// use lock_tower::{KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let seat = Compound::new(Header::new("x-tenant")?, QueryParam::new("seat"));
///
/// let request = http::Request::post("/book?seat=7").header("x-tenant", "acme/eu");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert_eq!(seat.keys(&parts)?, Keys::one("acme%2Feu/7"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Compound {
    parts: Vec<Arc<dyn KeyExtractor>>,
}

impl Compound {
    /// Joins two parts.
    #[must_use]
    pub fn new(first: impl KeyExtractor, second: impl KeyExtractor) -> Self {
        Self {
            parts: vec![Arc::new(first), Arc::new(second)],
        }
    }

    /// Adds a part at the end.
    #[must_use]
    pub fn with_part(mut self, part: impl KeyExtractor) -> Self {
        self.parts.push(Arc::new(part));
        self
    }
}

impl KeyExtractor for Compound {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        let named = self.parts.iter().map(|part| part.keys(parts));
        joined(&named.collect::<Result<Vec<_>, _>>()?)
    }
}

fn joined(parts: &[Keys]) -> Result<Keys, KeyError> {
    if parts.contains(&Keys::Skip) {
        return Ok(Keys::Skip);
    }
    let mut several = parts.iter().filter_map(|part| match part {
        Keys::Many(names) => Some(names),
        Keys::One(_) | Keys::Skip => None,
    });
    match (several.next(), several.next()) {
        (None, _) => Ok(Keys::One(join_with(parts, ""))),
        (Some(names), None) => Ok(Keys::Many(
            names.iter().map(|name| join_with(parts, name)).collect(),
        )),
        // Every one with every one: a short request could ask for a great many locks.
        (Some(_), Some(_)) => Err(KeyError::Misconfigured(
            "two parts of a compound key name several locks each".to_owned(),
        )),
    }
}

/// Joins the parts, with `name` for the one that names several locks.
fn join_with(parts: &[Keys], name: &str) -> String {
    join(parts.iter().map(|part| match part {
        Keys::One(name) => name,
        Keys::Many(_) | Keys::Skip => name,
    }))
}

impl fmt::Debug for Compound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compound")
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}
