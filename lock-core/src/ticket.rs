use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;

use crate::engine::LeaseId;
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::label::escape;
use crate::mode::MAX_TTL;
use crate::token::FencingToken;

/// A held lock on its way from one process to another.
///
/// [`LockGuard::into_ticket`](crate::LockGuard::into_ticket) makes one and stops renewing the lease. Another
/// process, or the same one later, adopts it with
/// [`DistributedLockExt::adopt`](crate::DistributedLockExt::adopt) and gets a guard as if it had acquired
/// the lock. The lock is never free in between. If the ticket is not adopted in time, the lease expires.
///
/// # The text form
///
/// One line of `name=value` pairs joined by `&`, without spaces: `Display` writes it, `FromStr` reads it,
/// and the feature `serde` serializes it as this text. It holds no password, but **the id in it is the right
/// to the lock**: any reader of a ticket can adopt it, and release the lock. Keep it out of logs; `Debug`
/// shows a few digits of the id.
///
/// # Examples
///
/// Two clients stand for two processes:
///
/// ```
/// use polylock_core::Ticket;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let (web, worker) = { let web = Memory::new(); let worker = web.client(); (web, worker) };
/// let guard = web.lock("orders/42").await?;
/// let token = guard.fencing_token();
/// let message = guard.into_ticket()?.to_string(); // goes into the queue of jobs
/// assert!(web.try_lock("orders/42").await?.is_none());
///
/// let ticket: Ticket = message.parse()?;
/// let guard = worker.adopt(&ticket).await?;
/// assert!(guard.fencing_token() > token); // so that a late write of the first process can be refused
/// guard.release().await?;
/// assert!(web.try_lock("orders/42").await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "the lock has no holder until the ticket is adopted"]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    pub(crate) backend: Box<str>,
    pub(crate) key: LockKey,
    pub(crate) lease: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) token: Option<FencingToken>,
    pub(crate) min_hold: Duration,
    /// By the wall clock.
    pub(crate) valid_until: SystemTime,
    /// When the lease ends on the server at the latest, by the wall clock.
    pub(crate) ends: SystemTime,
}

impl Ticket {
    /// The same in whole milliseconds, as in the text form. Rounding never promises time beyond the lease.
    pub(crate) fn rounded(self) -> Self {
        let min_hold = self.min_hold + Duration::from_nanos(999_999);
        Self {
            ttl: whole_millis(self.ttl),
            min_hold: whole_millis(min_hold),
            valid_until: in_millis(self.valid_until),
            ends: in_millis(self.ends),
            ..self
        }
    }

    /// Name of the backend that the lock is on, such as `"redis"`.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The locked key, without a namespace. The adopting process uses the same namespace.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The acquisition. It is a capability: anyone who knows it can release the lock.
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        self.lease
    }

    /// The token of the holder that made the ticket, for the record. The adopting holder gets a larger one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The ttl of the lock. The adopting process uses it too, unless it requests another.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The rest of the [`min_hold`](crate::AcquireRequest::with_min_hold) when the ticket was made.
    #[must_use]
    pub fn min_hold(&self) -> Duration {
        self.min_hold
    }

    /// The time until which the ticket is valid, by the wall clock of the machine that made it.
    ///
    /// It equals the guard's [`valid_until`](crate::LockGuard::valid_until), without the end of its max hold: a
    /// tenth of the lease before its end on the server. For people and logs, since clocks differ: the server
    /// decides whether a ticket can be adopted.
    #[must_use]
    pub fn valid_until(&self) -> SystemTime {
        self.valid_until
    }

    /// Max time that the lease may still last, by the wall clock of this machine.
    pub(crate) fn longest_left(&self) -> Duration {
        let left = self.ends.duration_since(SystemTime::now());
        let left = left.unwrap_or_default().min(MAX_TTL);
        left.max(self.ttl)
    }
}

fn whole_millis(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000))
}

fn in_millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    SystemTime::UNIX_EPOCH + whole_millis(since.unwrap_or_default().min(LAST_MOMENT))
}

/// The end of the year 9999. Later times have no text form.
const LAST_MOMENT: Duration = Duration::from_millis(253_402_300_799_999);

/// The text form.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, key) = (escape(&self.backend), escape(self.key.as_str()));
        let (lease, ttl) = (self.lease.to_hex(), self.ttl.as_millis());
        let [until, ends] = [self.valid_until, self.ends].map(humantime::format_rfc3339_millis);
        write!(
            f,
            "ticket={FORM}&backend={backend}&key={key}&lease={lease}&ttl={ttl}ms&until={until}&ends={ends}"
        )?;
        if let Some(token) = self.token {
            write!(f, "&token={token}")?;
        }
        if !self.min_hold.is_zero() {
            write!(f, "&min-hold={}ms", self.min_hold.as_millis())?;
        }
        Ok(())
    }
}

/// The text form that is written and read.
const FORM: &str = "1";

/// Reads the text form, with white space around it. Names that it does not know are skipped.
impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fields = TicketFields(text.trim());
        if fields.text("ticket")? != FORM {
            return Err(malformed("it is of another version"));
        }
        let key = LockKey::new(fields.decoded("key")?);
        let ttl = fields.millis("ttl")?;
        let token = fields.find("token").map(str::parse).transpose();
        Ok(Self {
            backend: fields.decoded("backend")?.into(),
            key: key.map_err(|error| malformed("its key is no lock key").with_source(error))?,
            lease: LeaseId::from_hex(fields.text("lease")?)
                .ok_or_else(|| malformed("its lease is no id"))?,
            ttl: ttl.ok_or_else(|| malformed("it has no ttl"))?,
            token: token
                .map_err(|_| malformed("its token is no number"))?
                .map(FencingToken::new),
            min_hold: fields.millis("min-hold")?.unwrap_or_default(),
            valid_until: fields.time("until")?,
            ends: fields.time("ends")?,
        })
    }
}

/// The pairs of the text form.
#[derive(Clone, Copy)]
struct TicketFields<'a>(&'a str);

impl<'a> TicketFields<'a> {
    fn find(self, name: &str) -> Option<&'a str> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    fn text(self, name: &str) -> Result<&'a str> {
        self.find(name)
            .ok_or_else(|| malformed(format!("it has no {name}")))
    }

    fn decoded(self, name: &str) -> Result<String> {
        let decoded = percent_decode_str(self.text(name)?).decode_utf8();
        let decoded = decoded.map_err(|_| malformed(format!("its {name} is not UTF-8")))?;
        Ok(decoded.into_owned())
    }

    fn time(self, name: &str) -> Result<SystemTime> {
        let time = humantime::parse_rfc3339(self.text(name)?);
        time.map_err(|_| malformed(format!("its {name} is no time")))
    }

    /// A length of time that a lease may have.
    fn millis(self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.find(name) else {
            return Ok(None);
        };
        let millis = text
            .strip_suffix("ms")
            .and_then(|millis| millis.parse().ok());
        let length = millis.map(Duration::from_millis);
        match length.filter(|length| *length <= MAX_TTL) {
            Some(length) => Ok(Some(length)),
            None => Err(malformed(format!("its {name} is no length of a lease"))),
        }
    }
}

/// Omits the text, which may be a ticket with one wrong character.
fn malformed(reason: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("not a ticket: {reason}"))
}

#[cfg(feature = "serde")]
mod as_text {
    use serde::de::{Deserialize, Deserializer, Error as _};
    use serde::ser::{Serialize, Serializer};

    use super::Ticket;

    /// The text form.
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl Serialize for Ticket {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl<'de> Deserialize<'de> for Ticket {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(D::Error::custom)
        }
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticket(backend: &str, key: &str, millis: [u64; 4], token: Option<u64>) -> Ticket {
        let [ttl, min_hold, until, ends] = millis.map(Duration::from_millis);
        Ticket {
            backend: backend.into(),
            key: LockKey::new(key).expect("is a key"),
            lease: LeaseId::from_bytes([7; 16]),
            ttl,
            token: token.map(FencingToken::new),
            min_hold,
            valid_until: SystemTime::UNIX_EPOCH + until,
            ends: SystemTime::UNIX_EPOCH + ends,
        }
    }

    const TEXT: &str = "ticket=1&backend=redis&key=orders/42%20%26&lease=07070707070707070707070707070707\
        &ttl=30000ms&until=2026-11-25T10:00:00.123Z&ends=2026-11-25T10:00:03.123Z&token=17&min-hold=1ms";

    #[test]
    fn is_one_line_of_text() {
        let millis = [30_000, 1, 1_795_600_800_123, 1_795_600_803_123];
        let ticket = ticket("redis", "orders/42 &", millis, Some(17));
        assert_eq!(ticket.to_string(), TEXT);
        assert_eq!(format!("\n {TEXT} \n").parse::<Ticket>().unwrap(), ticket);
        let with_unknown_names = format!("shoe=44&{TEXT}&x");
        assert_eq!(with_unknown_names.parse::<Ticket>().unwrap(), ticket);
        assert!(!format!("{ticket:?}").contains("070707"), "{ticket:?}");
    }

    #[test]
    fn promises_no_time_that_is_not_left() {
        let ticket = Ticket {
            ttl: Duration::from_micros(1_999),
            min_hold: Duration::from_micros(1_001),
            valid_until: SystemTime::UNIX_EPOCH + Duration::from_micros(5_999),
            ..ticket("memory", "k", [0; 4], None)
        };
        let ticket = ticket.rounded();
        assert_eq!(ticket.ttl(), Duration::from_millis(1));
        assert_eq!(ticket.min_hold(), Duration::from_millis(2));
        let until = SystemTime::UNIX_EPOCH + Duration::from_millis(5);
        assert_eq!(ticket.valid_until(), until);
    }

    #[test]
    fn says_what_is_wrong_with_a_text() {
        // A part of the text, what is there in its place, and what is wrong then.
        let table = [
            "ticket=1 | ticket=2 | it is of another version",
            "backend | back-end | it has no backend",
            "orders/42 | %FF | its key is not UTF-8",
            "orders/42%20%26 | | its key is no lock key",
            "lease=07 | lease=7 | its lease is no id",
            "ttl=30000ms | ttl=30000 | its ttl is no length of a lease",
            "ttl=30000ms | ttl=86400001ms | its ttl is no length of a lease",
            "&ttl=30000ms | | it has no ttl",
            "until=2026-11-25 | until=2026-13-25 | its until is no time",
            "ends=2026-11-25 | ends=2026-13-25 | its ends is no time",
            "token=17 | token=-1 | its token is no number",
            "min-hold=1ms | min-hold=ms | its min-hold is no length of a lease",
        ];
        for line in table {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let error = TEXT.replace(columns[0], columns[1]).parse::<Ticket>();
            let error = error.unwrap_err();
            assert_eq!(error.message(), format!("not a ticket: {}", columns[2]));
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn is_serialized_as_its_text() {
        let ticket: Ticket = TEXT.parse().unwrap();
        let json = serde_json::to_string(&ticket).unwrap();
        assert_eq!(json, format!("\"{TEXT}\""));
        assert_eq!(serde_json::from_str::<Ticket>(&json).unwrap(), ticket);
        assert!(serde_json::from_str::<Ticket>("\"k\"").is_err());
    }

    proptest! {
        #[test]
        fn every_ticket_survives_its_text(
            backend in "\\PC{1,20}",
            key in "\\PC{1,60}",
            millis in [
                0..=86_400_000_u64,
                0..=86_400_000_u64,
                0..=253_402_300_799_999_u64,
                0..=253_402_300_799_999_u64,
            ],
            token in proptest::option::of(any::<u64>()),
        ) {
            let ticket = ticket(&backend, &key, millis, token);
            let text = ticket.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{}", text);
            prop_assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            drop(text.parse::<Ticket>());
        }

        /// A ticket with one character changed or missing.
        #[test]
        fn no_change_of_a_text_panics(at in 0..TEXT.len(), change in "[ -~\u{e9}]?") {
            let mut text = TEXT.to_owned();
            text.replace_range(at..=at, &change);
            if let Ok(ticket) = text.parse::<Ticket>() {
                prop_assert_eq!(ticket.to_string().parse::<Ticket>().unwrap(), ticket);
            }
        }
    }
}
