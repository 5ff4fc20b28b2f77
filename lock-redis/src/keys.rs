//! The names of the keys that make one lock.

use std::borrow::Cow;
use std::sync::LazyLock;

use polylock_core::{Error, ErrorKind, LockKey, Result};

/// The four keys of one lock, which a cluster stores in one slot with its record.
///
/// The lock itself has the name given by the user, so that clients of other libraries find the same key.
/// Its queue, notes and record are its companions: `{<key>}:waiters`, `{<key>}:notes` and
/// `{<key>}:record`, or `<key>:waiters` if the key has a hash tag of its own. If such a key ends with a
/// brace, a dot is appended to it, so that the companions of `a` differ from those of `{a}`. A key that
/// cannot be a hash tag has its companions under a number in the same slot. [`TokenCounter`] says where tokens
/// are counted.
#[derive(Clone, Debug)]
pub(crate) struct RedisKeys {
    key: LockKey,
    tokens: Box<[u8]>,
    /// The queue and the notes.
    companions: Box<[u8]>,
    queue_len: usize,
}

/// The locks that share a token counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TokenCounter {
    /// Each lock has its own, `{<key>}:fence`: a node of a quorum.
    Lock,
    /// Those of a namespace, `{<namespace>}:tokens`.
    Namespace,
    /// Those of a namespace in one slot, `{<number>}:<namespace>:tokens`: a cluster.
    Slot,
}

/// Where a node of a quorum stores its age as known by clients.
///
/// No lock and no companion has this name: it ends like a companion, and so does its part before the
/// suffix.
pub(crate) const AGE_KEY: &str = "{polylock:age}:notes:notes";

const QUEUE: &[u8] = b":waiters";
const NOTES: &[u8] = b":notes";
const FENCE: &[u8] = b":fence";
const RECORD: &[u8] = b":record";
const TOKENS: &[u8] = b":tokens";

impl RedisKeys {
    pub(crate) fn of(key: &LockKey, counter: TokenCounter) -> Self {
        let name = key.as_bytes();
        let (head, tail) = around(name);
        let companion = |suffix| [&*head, name, tail, suffix];
        let tokens = match counter {
            TokenCounter::Lock => companion(FENCE).concat(),
            TokenCounter::Namespace => [b"{", namespace(name), b"}", TOKENS].concat(),
            TokenCounter::Slot => {
                let number = twin(slot(name)).to_string();
                [b"{", number.as_bytes(), b"}:", namespace(name), TOKENS].concat()
            }
        };
        let companions = [companion(QUEUE), companion(NOTES)];
        let queue_len = companion(QUEUE).iter().map(|part| part.len()).sum();
        Self {
            key: key.clone(),
            tokens: tokens.into_boxed_slice(),
            companions: companions.as_flattened().concat().into_boxed_slice(),
            queue_len,
        }
    }

    /// The keys of a lock that is to be acquired.
    ///
    /// # Errors
    ///
    /// `InvalidKey` if a companion of another lock, or a counter, could have this name.
    pub(crate) fn checked(key: &LockKey, counter: TokenCounter) -> Result<Self> {
        check(key)?;
        Ok(Self::of(key, counter))
    }

    /// Where the record of a lock is stored.
    ///
    /// # Errors
    ///
    /// As for [`checked`](Self::checked).
    pub(crate) fn record(key: &LockKey) -> Result<Vec<u8>> {
        check(key)?;
        Ok(companion(key, RECORD))
    }

    /// Where the notes of a lock are stored.
    pub(crate) fn notes(key: &LockKey) -> Vec<u8> {
        companion(key, NOTES)
    }

    /// Whether this may be the name of a companion or of a counter.
    pub(crate) fn is_companion(key: &LockKey) -> bool {
        let name = key.as_bytes();
        let mut ends = [FENCE, QUEUE, NOTES, RECORD].iter();
        let is_of_lock = ends.any(|end| name.ends_with(end));
        let is_counter = name.starts_with(b"{") && name.ends_with(TOKENS);
        is_of_lock && tag(name).is_some() || is_counter
    }

    pub(crate) fn lock(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) fn tokens(&self) -> &[u8] {
        &self.tokens
    }

    pub(crate) fn queue(&self) -> &[u8] {
        &self.companions[..self.queue_len]
    }

    pub(crate) fn name(&self) -> &LockKey {
        &self.key
    }

    /// As the scripts expect them.
    pub(crate) fn all(&self) -> [&[u8]; 4] {
        let (queue, notes) = self.companions.split_at(self.queue_len);
        [self.lock(), &self.tokens, queue, notes]
    }
}

fn check(key: &LockKey) -> Result<()> {
    if RedisKeys::is_companion(key) {
        let message =
            "a key with a hash tag must not end with :fence, :waiters, :notes, :record or :tokens";
        return Err(Error::new(ErrorKind::InvalidKey, message).with_key(key));
    }
    Ok(())
}

fn companion(key: &LockKey, suffix: &[u8]) -> Vec<u8> {
    let (head, tail) = around(key.as_bytes());
    [&*head, key.as_bytes(), tail, suffix].concat()
}

/// The text that companions have before and after the name of their lock.
fn around(name: &[u8]) -> (Cow<'static, [u8]>, &'static [u8]) {
    match tag(name) {
        Some(_) if ends_with_brace(name) => (b"".into(), b"."),
        Some(_) => (b"".into(), b""),
        None if name.contains(&b'}') => {
            let number = twin(slot(name)).to_string();
            ([b"{", number.as_bytes(), b"}:{"].concat().into(), b"}")
        }
        None => (b"{".into(), b"}"),
    }
}

/// The text before the first colon: the prefix that layers put before a key.
fn namespace(name: &[u8]) -> &[u8] {
    let colon = name.iter().position(|byte| *byte == b':');
    colon.map_or(b"", |colon| &name[..colon])
}

/// Whether the last character, apart from dots, is a brace, so that one more dot makes another name.
fn ends_with_brace(name: &[u8]) -> bool {
    name.iter().rfind(|byte| **byte != b'.') == Some(&b'}')
}

/// The text between the first opening brace and the next closing one, unless it is empty.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')?;
    let inside = &name[open + 1..];
    let close = inside.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &inside[..close])
}

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// The slot of a key in a cluster.
pub(crate) fn slot(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

/// The smallest number that, as a key, lies in this slot.
fn twin(wanted: u16) -> u32 {
    static OF_SLOTS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = vec![None; usize::from(SLOTS)];
        let mut left = numbers.len();
        for number in 0_u32.. {
            let place = &mut numbers[usize::from(slot(number.to_string().as_bytes()))];
            if place.is_none() {
                *place = Some(number);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        numbers.into_iter().flatten().collect()
    });
    OF_SLOTS[usize::from(wanted)]
}

/// CRC-16/XMODEM, by which Redis Cluster distributes its keys.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        CRC16[usize::from((crc >> 8) ^ u16::from(*byte))] ^ (crc << 8)
    })
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_by(name: &str, counter: TokenCounter) -> Vec<String> {
        let key = LockKey::new(name).unwrap();
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        let all = RedisKeys::of(&key, counter);
        let record = RedisKeys::record(&key).unwrap_or_default();
        let all = all.all().into_iter().chain([&*record]);
        all.filter(|name| !name.is_empty()).map(text).collect()
    }

    fn keys(name: &str) -> Vec<String> {
        keys_by(name, TokenCounter::Lock)
    }

    #[test]
    fn locks_of_a_namespace_share_a_counter() {
        for (name, counter, expected) in [
            ("shop:a", TokenCounter::Namespace, "{shop}:tokens"),
            ("shop:eu:a", TokenCounter::Namespace, "{shop}:tokens"),
            ("a", TokenCounter::Namespace, "{}:tokens"),
            ("shop:a", TokenCounter::Lock, "{shop:a}:fence"),
        ] {
            assert_eq!(keys_by(name, counter)[1], expected, "{name} {counter:?}");
        }
        let of_slot = keys_by("{t}a:b", TokenCounter::Slot);
        assert_eq!(
            of_slot[1],
            format!("{{{}}}:{{t}}a:tokens", twin(slot(b"t")))
        );
        for name in [
            "{shop}:tokens",
            "{}:tokens",
            "{5}:shop:tokens",
            "{a}b:waiters",
            "{a}b:record",
        ] {
            assert!(
                RedisKeys::is_companion(&LockKey::new(name).unwrap()),
                "{name}"
            );
        }
        for name in ["shop:tokens", "a:waiters", "a:record", "tokens"] {
            assert!(
                !RedisKeys::is_companion(&LockKey::new(name).unwrap()),
                "{name}"
            );
        }
    }

    #[test]
    fn the_lock_has_the_name_that_the_user_gave_it() {
        for (name, companion) in [("shop:a", "{shop:a}"), ("{t}a", "{t}a")] {
            let suffixes = [":fence", ":waiters", ":notes", ":record"];
            let companions = suffixes.map(|suffix| format!("{companion}{suffix}"));
            assert_eq!(keys(name)[0], name);
            assert_eq!(keys(name)[1..], companions);
        }
    }

    #[test]
    fn the_keys_of_one_lock_lie_in_one_slot() {
        for name in [
            "a", "{a}b", "a{b}c", "a{b", "a}b", "{}a", "a{}b", "}{", "{{a}}", "}", "{", "a}b{c}",
            "a}b{", "{}{a}", "ü}",
        ] {
            for counter in [TokenCounter::Lock, TokenCounter::Slot] {
                let keys = keys_by(name, counter);
                let slots: Vec<_> = keys.iter().map(|key| slot(key.as_bytes())).collect();
                assert!(slots.iter().all(|s| *s == slots[0]), "{name}: {slots:?}");
            }
        }
    }

    #[test]
    fn no_two_locks_share_a_key() {
        let names = [
            "a",
            "{a}",
            "{a}.",
            "{a}..",
            "a.",
            "{a}b",
            "{a}b.",
            "{a}:fence",
            "a:fence",
            "a}",
            "{a",
            "{}a",
            "{a}:waiters",
            "}",
            "{}",
            "{a}:a",
        ];
        let mut all: Vec<_> = names
            .iter()
            .flat_map(|name| keys(name)[1..].to_vec())
            .collect();
        all.sort();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn no_lock_has_the_key_of_the_ages() {
        assert!(RedisKeys::is_companion(&LockKey::new(AGE_KEY).unwrap()));
        // A companion is the name of its lock with something around it and a suffix behind it.
        for (start, _) in AGE_KEY.char_indices() {
            for (end, _) in AGE_KEY.char_indices().filter(|(end, _)| *end > start) {
                let name = LockKey::new(&AGE_KEY[start..end]).unwrap();
                if RedisKeys::checked(&name, TokenCounter::Lock).is_ok() {
                    let all = keys(name.as_str());
                    assert!(!all.iter().any(|key| key == AGE_KEY), "{name}: {all:?}");
                }
            }
        }
    }

    #[test]
    fn slots_are_those_of_the_server() {
        // From the cluster specification, and by CLUSTER KEYSLOT of a server.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % 16_384);
    }

    #[test]
    fn a_twin_is_the_same_whenever_it_is_asked_for() {
        for name in ["a}b", "}{", "0"] {
            let slot = slot(name.as_bytes());
            let first = twin(slot);
            assert_eq!(super::slot(first.to_string().as_bytes()), slot);
            assert_eq!(twin(slot), first);
        }
        assert_eq!(twin(slot(b"0")), 0);
    }
}
