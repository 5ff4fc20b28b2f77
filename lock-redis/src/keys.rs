//! The names of the keys that make one lock.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use lock_core::{Error, ErrorKind, LockKey, Result};

/// The four keys of one lock, which a cluster keeps in one slot.
///
/// The lock itself has the name that the user gave it, so that clients of other libraries meet it
/// there. The others are `{<key>}:fence`, `:queue` and `:notes`, or `<key>:fence` where the key has
/// a hash tag of its own; one that ends with a brace has a dot behind it, for the companions of `a`
/// are not those of `{a}`. A key that cannot stand in a tag has its companions under a number whose
/// slot is the same.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    key: LockKey,
    companions: Box<[u8]>,
}

/// Where a node of a quorum keeps how old clients know it to be.
///
/// No lock has this name, and none has it for a companion: it ends as a companion does, and so does
/// what is before that.
pub(crate) const AGE_KEY: &str = "{polylock:age}:notes:notes";

const SUFFIXES: [&[u8]; 3] = [b":fence", b":queue", b":notes"];
const SUFFIX_LEN: usize = 6;

impl Keys {
    pub(crate) fn of(key: &LockKey) -> Self {
        let name = key.as_bytes();
        let (head, tail): (&[u8], &[u8]) = match tag(name) {
            Some(_) if ends_with_brace(name) => (b"", b"."),
            Some(_) => (b"", b""),
            None => (b"{", b"}"),
        };
        let number;
        let head = if tag(name).is_none() && name.contains(&b'}') {
            number = [b"{", twin(slot(name)).to_string().as_bytes(), b"}:{"].concat();
            &number[..]
        } else {
            head
        };
        let len = head.len() + name.len() + tail.len() + SUFFIX_LEN;
        let mut companions = Vec::with_capacity(3 * len);
        for suffix in SUFFIXES {
            for part in [head, name, tail, suffix] {
                companions.extend_from_slice(part);
            }
        }
        Self {
            key: key.clone(),
            companions: companions.into_boxed_slice(),
        }
    }

    /// The same for a lock that is to be taken.
    ///
    /// # Errors
    ///
    /// `InvalidKey` if a companion of another lock could have this name.
    pub(crate) fn checked(key: &LockKey) -> Result<Self> {
        let name = key.as_bytes();
        if tag(name).is_some() && SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            let message = "a key with a hash tag must not end with :fence, :queue or :notes";
            return Err(Error::new(ErrorKind::InvalidKey, message).with_key(key));
        }
        Ok(Self::of(key))
    }

    /// Whether this is the name of a companion.
    pub(crate) fn is_companion(key: &LockKey) -> bool {
        Self::checked(key).is_err()
    }

    pub(crate) fn lock(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) fn name(&self) -> &LockKey {
        &self.key
    }

    /// The lock and its counter.
    pub(crate) fn first_two(&self) -> [&[u8]; 2] {
        let [lock, fence, ..] = self.all();
        [lock, fence]
    }

    /// As the scripts expect them.
    pub(crate) fn all(&self) -> [&[u8]; 4] {
        let len = self.companions.len() / 3;
        let (fence, rest) = self.companions.split_at(len);
        let (queue, notes) = rest.split_at(len);
        [self.lock(), fence, queue, notes]
    }
}

/// Whether a brace is the last character but for dots, so that a dot more makes another name.
fn ends_with_brace(name: &[u8]) -> bool {
    name.iter().rfind(|byte| **byte != b'.') == Some(&b'}')
}

/// What is between the first opening brace and the first closing one after it, unless it is empty.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')?;
    let inside = &name[open + 1..];
    let close = inside.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &inside[..close])
}

/// The slot of a key in a cluster.
pub(crate) fn slot(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % 16_384
}

/// The least number that lies in this slot as a key.
fn twin(wanted: u16) -> u32 {
    // The search takes 16 000 tries.
    static FOUND: LazyLock<Mutex<HashMap<u16, u32>>> = LazyLock::new(Mutex::default);
    let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = found().get(&wanted) {
        return *known;
    }
    let mut text = String::new();
    let lies_there = |number: &u32| {
        text.clear();
        write!(text, "{number}").is_ok() && slot(text.as_bytes()) == wanted
    };
    let number = (0..)
        .find(lies_there)
        .expect("BUG: every slot has a number");
    found().insert(wanted, number);
    number
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

    fn keys(name: &str) -> Vec<String> {
        let key = LockKey::new(name).unwrap();
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        Keys::of(&key).all().map(text).to_vec()
    }

    #[test]
    fn the_lock_has_the_name_that_the_user_gave_it() {
        let expected = [
            "shop:a",
            "{shop:a}:fence",
            "{shop:a}:queue",
            "{shop:a}:notes",
        ];
        assert_eq!(keys("shop:a"), expected);
        let expected = ["{t}a", "{t}a:fence", "{t}a:queue", "{t}a:notes"];
        assert_eq!(keys("{t}a"), expected);
    }

    #[test]
    fn the_keys_of_one_lock_lie_in_one_slot() {
        for name in [
            "a", "{a}b", "a{b}c", "a{b", "a}b", "{}a", "a{}b", "}{", "{{a}}", "}", "{", "a}b{c}",
            "a}b{", "{}{a}", "ü}",
        ] {
            let slots: Vec<_> = keys(name).iter().map(|k| slot(k.as_bytes())).collect();
            assert!(slots.iter().all(|s| *s == slots[0]), "{name}: {slots:?}");
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
            "{a}:queue",
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
        assert!(Keys::is_companion(&LockKey::new(AGE_KEY).unwrap()));
        // A companion is the name of its lock with something around it and a suffix behind it.
        for (start, _) in AGE_KEY.char_indices() {
            for (end, _) in AGE_KEY.char_indices().filter(|(end, _)| *end > start) {
                let name = LockKey::new(&AGE_KEY[start..end]).unwrap();
                if let Ok(keys) = Keys::checked(&name) {
                    let all = keys.all();
                    assert!(!all.contains(&AGE_KEY.as_bytes()), "{name}: {all:?}");
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
