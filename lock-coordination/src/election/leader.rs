//! The leader, as followers see it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use polylock_core::admin::{HolderInfo, LockAdmin, Record};
use polylock_core::{DistributedLock, ErrorKind, FencingToken, Label, LockKey, Result};
use tokio::time::sleep;

use crate::requirements::admin;

/// The leader of an election, as the server knows it.
///
/// The example of [`Election`](crate::Election) asks for it.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leader {
    /// The label of the leader.
    pub label: Label,
    /// Since when it leads, where the server knows that, by the clock of the machine that recorded it.
    pub since: Option<SystemTime>,
    /// Its fencing token; `None` while the server does not know it.
    pub token: Option<FencingToken>,
    /// What it has [proclaimed](crate::Term::proclaim) in this term, if anything.
    pub address: Option<Vec<u8>>,
}

impl Leader {
    /// Makes the leader from the holder of an election's lock and the record beside it, for tools that
    /// show locks. It has no address if the record is not of this term, or not of a leader.
    #[must_use]
    pub fn of(holder: HolderInfo, record: Option<&Record>) -> Self {
        let own = record.and_then(|record| own_address(record, &holder));
        let told = record.filter(|_| own.is_some()).map(|record| record.token);
        Self {
            label: without_term(holder.label),
            since: holder.since,
            token: holder.token.or(told),
            address: own.map(<[u8]>::to_vec),
        }
    }
}

/// A leader with its label as the server has it, which has the id of the term.
#[derive(Debug)]
pub(super) struct ObservedLeader {
    pub(super) leader: Leader,
    term_label: Label,
}

impl ObservedLeader {
    fn of(holder: HolderInfo, record: Option<&Record>) -> Self {
        let term_label = holder.label.clone();
        Self {
            leader: Leader::of(holder, record),
            term_label,
        }
    }

    /// Whether followers have nothing to do. A server may learn the token and the time a moment after the
    /// election.
    fn is_same(&self, other: &Self) -> bool {
        let same_token = match (self.leader.token, other.leader.token) {
            (Some(token), Some(other)) => token == other,
            _ => true,
        };
        let same_term = same_token && self.term_label == other.term_label;
        same_term && self.leader.address == other.leader.address
    }
}

/// Asks the server.
pub(super) async fn look(
    locks: &dyn DistributedLock,
    key: &LockKey,
) -> Result<Option<ObservedLeader>> {
    let admin = admin(locks)?;
    let Some(mut holder) = first_holder(admin, key).await? else {
        return Ok(None);
    };
    let record = match admin.record(key).await {
        // Without records, no leader has proclaimed an address.
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        record => record?,
    };
    // A later leader was elected after the first request, and has proclaimed an address by the second.
    let is_later = |record: &Record| holder.token.is_some_and(|token| record.token > token);
    if record.as_ref().is_some_and(is_later) {
        let Some(later) = first_holder(admin, key).await? else {
            return Ok(None);
        };
        holder = later;
    }
    Ok(Some(ObservedLeader::of(holder, record.as_ref())))
}

async fn first_holder(admin: &dyn LockAdmin, key: &LockKey) -> Result<Option<HolderInfo>> {
    let held = admin.inspect(key).await?;
    Ok(held.and_then(|info| info.holders.into_iter().next()))
}

/// The label of a term: an id, so that the server tells it from other terms of the same candidate, and the
/// note of the candidate.
pub(super) fn with_term(label: &Label, id: u64) -> Label {
    let note = format!("{TERM}{id:016x} {}", label.note());
    label.clone().with_note(note)
}

/// The label as the candidate has it.
fn without_term(label: Label) -> Label {
    let note = label.note().strip_prefix(TERM);
    let is_id = |id: &str| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    match note.and_then(|note| note.split_once(' ')) {
        Some((id, note)) if is_id(id) => {
            let note = note.to_owned();
            label.with_note(note)
        }
        _ => label,
    }
}

const TERM: &str = "term-";

/// An address with who proclaims it, as it is stored: `host=..&pid=..&address=` and the bytes.
pub(super) fn encode(label: &Label, address: &[u8]) -> Vec<u8> {
    [label.encode().as_bytes(), ADDRESS, address].concat()
}

/// The address in a record, if the record is that of the holder and not of an earlier one.
///
/// A server may not know the token of the holder, such as ZooKeeper for a holder that has waited. It knows
/// the label, which is unique to the term.
fn own_address<'a>(record: &'a Record, holder: &HolderInfo) -> Option<&'a [u8]> {
    let bytes = &record.bytes;
    let at = bytes
        .windows(ADDRESS.len())
        .position(|part| part == ADDRESS)?;
    let label = str::from_utf8(&bytes[..at]).ok()?;
    let is_own = match holder.token {
        Some(token) => record.token == token,
        None => Label::decode(label) == holder.label,
    };
    is_own.then_some(&bytes[at + ADDRESS.len()..])
}

/// A label contains neither character unescaped.
const ADDRESS: &[u8] = b"&address=";

/// Polls the leader, and yields changes.
pub(super) struct Observation {
    locks: Arc<dyn DistributedLock>,
    key: LockKey,
    next: Pin<Box<dyn Future<Output = Option<ObservedLeader>> + Send>>,
}

impl Observation {
    pub(super) fn new(locks: Arc<dyn DistributedLock>, key: LockKey) -> Self {
        let next = Box::pin(change(Arc::clone(&locks), key.clone(), None));
        Self { locks, key, next }
    }
}

impl Stream for Observation {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let seen = ready!(self.next.as_mut().poll(cx));
        let leader = seen.as_ref().map(|seen| seen.leader.clone());
        let (locks, key) = (Arc::clone(&self.locks), self.key.clone());
        self.next = Box::pin(change(locks, key, Some(seen)));
        Poll::Ready(Some(leader))
    }
}

/// Waits until the leader differs from `seen`. Returns the first reply if `seen` is `None`.
async fn change(
    locks: Arc<dyn DistributedLock>,
    key: LockKey,
    mut seen: Option<Option<ObservedLeader>>,
) -> Option<ObservedLeader> {
    let mut fails = false;
    if seen.is_some() {
        sleep(INTERVAL).await;
    }
    loop {
        match look(&*locks, &key).await {
            Ok(leader) if !seen.as_ref().is_some_and(|seen| is_same(seen, &leader)) => {
                return leader;
            }
            Ok(leader) => {
                fails = false;
                // A term without an id in its label differs from the next one by its token.
                let token = leader.as_ref().and_then(|seen| seen.leader.token);
                if token.is_some() {
                    seen = Some(leader);
                }
            }
            Err(error) => {
                if !fails {
                    tracing::warn!(election = key.as_str(), %error, "cannot see who leads");
                }
                fails = true;
            }
        }
        sleep(INTERVAL).await;
    }
}

fn is_same(seen: &Option<ObservedLeader>, leader: &Option<ObservedLeader>) -> bool {
    match (seen, leader) {
        (Some(seen), Some(leader)) => seen.is_same(leader),
        (None, None) => true,
        _ => false,
    }
}

/// Time between two polls. No backend notifies of a new holder.
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Election;

    fn holder(note: &str, token: Option<u64>) -> HolderInfo {
        let mut holder = HolderInfo::new(Label::of_this_process().with_note(note));
        holder.token = token.map(FencingToken::new);
        holder
    }

    #[test]
    fn an_address_counts_only_in_the_term_of_its_leader() {
        let label = Label::of_this_process().with_note("a&address=b");
        let record = Record::new(FencingToken::new(7), encode(&label, b"\xffx&address=y"));
        // The token by the server, whose label, and whether the address is that of the holder.
        let table = [
            (Some(7), "a&address=b", true),
            (Some(8), "a&address=b", false),
            (Some(6), "a&address=b", false),
            (None, "a&address=b", true),
            (None, "another", false),
        ];
        for (token, note, is_own) in table {
            let leader = Leader::of(holder(note, token), Some(&record));
            let expected = is_own.then(|| b"\xffx&address=y".to_vec());
            assert_eq!(leader.address, expected, "{token:?} {note}");
        }
        let told = Leader::of(holder("a&address=b", None), Some(&record));
        assert_eq!(told.token, Some(FencingToken::new(7)));

        // Another term of the same candidate, whose token the server does not know yet.
        let terms = [1, 2].map(|id| with_term(&Label::of_this_process().with_note("a"), id));
        let record = Record::new(FencingToken::new(7), encode(&terms[0], b"x"));
        for (term, address) in terms.into_iter().zip([Some(b"x".to_vec()), None]) {
            let leader = Leader::of(HolderInfo::new(term), Some(&record));
            assert_eq!(leader.token.is_some(), address.is_some());
            assert_eq!((leader.label.note(), leader.address), ("a", address));
        }
        for foreign in [&b"done up to page 7"[..], b"\xff&address=x"] {
            let record = Record::new(FencingToken::new(7), foreign);
            let leader = Leader::of(holder("", None), Some(&record));
            assert_eq!(leader.address, None);
        }
    }

    #[test]
    fn the_longest_address_of_the_longest_label_is_stored() {
        let label = Label::of_this_process().with_note("&".repeat(Label::MAX_NOTE_LEN));
        let address = [b'a'; Election::MAX_ADDRESS_LEN];
        let record = Record::new(FencingToken::new(1), encode(&label, &address));
        record.check().unwrap();
    }

    #[test]
    fn a_note_that_begins_like_a_term_stays_whole() {
        for note in ["term-limits of users", "term-", "term-0123456789abcdef"] {
            assert_eq!(Leader::of(holder(note, None), None).label.note(), note);
        }
    }

    #[test]
    fn what_the_server_learns_later_is_no_change() {
        let seen = |note: &str, token| ObservedLeader::of(holder(note, token), None);
        let (fresh, known) = (seen("a", None), seen("a", Some(7)));
        assert!(fresh.is_same(&known) && known.is_same(&fresh));
        assert!(!known.is_same(&seen("a", Some(8))));
        assert!(!known.is_same(&seen("b", Some(7))));
    }
}
