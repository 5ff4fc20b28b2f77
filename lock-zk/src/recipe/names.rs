//! The names of contenders, here and in the clients of other languages.

use std::num::NonZeroU32;

use polylock_core::Mode;
use polylock_core::engine::{LeaseId, Queued};

use super::sequence::Sequence;
use crate::config::Compat;

/// A contender as its name shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ZkContender {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) sequence: Sequence,
}

impl Queued for ZkContender {
    fn name(&self) -> &str {
        &self.name
    }

    fn mode(&self) -> Mode {
        self.mode
    }
}

/// The name of a contender without its number, which finds a node whose creation had no reply.
///
/// - Curator: `_c_<uuid>-lock-`, `_c_<uuid>-__WRIT__` and `_c_<uuid>-__READ__`.
/// - kazoo: `<32 hex>__lock__` and `<32 hex>__rlock__`.
/// - permits, ours alone: `_c_<uuid>-__PERM__<limit>-`.
pub(crate) fn stem(compat: Compat, mode: Mode, id: LeaseId) -> String {
    let hex = id.to_hex();
    let curator = |kind: &str| {
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        format!("_c_{}-{kind}", parts.join("-"))
    };
    match (mode, compat) {
        (Mode::Permit { limit }, _) => curator(&format!("{PERMIT}{limit}-")),
        (Mode::Shared, Compat::Kazoo) => format!("{hex}{KAZOO_SHARED}"),
        (Mode::Shared, _) => curator(SHARED),
        (_, Compat::Kazoo) => format!("{hex}{KAZOO_EXCLUSIVE}"),
        (_, Compat::CuratorReadWrite) => curator(WRITER),
        (_, Compat::Curator) => curator(&EXCLUSIVE[1..]),
    }
}

impl ZkContender {
    /// The same contender as a shared one, at the same place in line; `None` if it cannot become one.
    pub(crate) fn downgraded(&self) -> Option<Self> {
        let markers = [
            (EXCLUSIVE, "-__READ__"),
            (WRITER, SHARED),
            (KAZOO_EXCLUSIVE, KAZOO_SHARED),
        ];
        let name = markers.into_iter().find_map(|(exclusive, shared)| {
            let (stem, number) = self.name.rsplit_once(exclusive)?;
            Sequence::parse(number)?;
            Some(format!("{stem}{shared}{number}"))
        });
        Self::parse(&name?)
    }

    /// Parses the names of polylock, of Curator, of kazoo and of the .NET library `DistributedLock`. Other
    /// nodes of a directory are ignored.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mode_and_number = |marker: &str, mode| {
            let (_, number) = name.rsplit_once(marker)?;
            Some((mode, Sequence::parse(number)?))
        };
        let (mode, sequence) = mode_and_number(EXCLUSIVE, Mode::Exclusive)
            .or_else(|| mode_and_number(WRITER, Mode::Exclusive))
            .or_else(|| mode_and_number(SHARED, Mode::Shared))
            .or_else(|| mode_and_number(KAZOO_EXCLUSIVE, Mode::Exclusive))
            .or_else(|| mode_and_number(KAZOO_SHARED, Mode::Shared))
            .or_else(|| {
                let (_, rest) = name.rsplit_once(PERMIT)?;
                let (limit, number) = rest.split_once('-')?;
                let limit: NonZeroU32 = limit.parse().ok()?;
                Some((Mode::Permit { limit }, Sequence::parse(number)?))
            })
            .or_else(|| {
                let number = name.strip_prefix(DOT_NET)?;
                Some((Mode::Exclusive, Sequence::parse(number)?))
            })?;
        Some(Self {
            name: name.to_owned(),
            mode,
            sequence,
        })
    }
}

const EXCLUSIVE: &str = "-lock-";
const WRITER: &str = "__WRIT__";
const SHARED: &str = "__READ__";
const PERMIT: &str = "__PERM__";
const KAZOO_EXCLUSIVE: &str = "__lock__";
const KAZOO_SHARED: &str = "__rlock__";
const DOT_NET: &str = "lock-";

#[cfg(test)]
mod tests {
    use lock_testkit::locks::permits;
    use polylock_core::engine::SeededEntropy;

    use super::*;

    fn parsed(name: &str) -> Option<(Mode, i64)> {
        ZkContender::parse(name).map(|found| (found.mode, found.sequence.0))
    }

    #[test]
    fn understands_its_own_names_and_those_of_others() {
        use Mode::{Exclusive, Shared};
        let uuid = "_c_0b8d7b1e-9c1e-4a8e-8d0f-3f6d0f0f4a11";
        let hex = "0b8d7b1e9c1e4a8e8d0f3f6d0f0f4a11";
        let cases = [
            (format!("{uuid}-lock-0000000007"), Exclusive, 7),
            (format!("{uuid}-__WRIT__0000000008"), Exclusive, 8),
            (format!("{uuid}-__READ__0000000009"), Shared, 9),
            (format!("{uuid}-__PERM__3-0000000010"), permits(3), 10),
            (format!("{hex}__lock__0000000011"), Exclusive, 11),
            (format!("{hex}__rlock__0000000012"), Shared, 12),
            ("lock-0000000013".to_owned(), Exclusive, 13),
            (
                format!("{uuid}-lock--2147483648"),
                Exclusive,
                -2_147_483_648,
            ),
            (format!("{uuid}-lock--000000001"), Exclusive, -1),
            (format!("{uuid}-__PERM__3--000000001"), permits(3), -1),
            (format!("{uuid}-lock-0000004294967296"), Exclusive, 1 << 32),
        ];
        for (name, mode, number) in cases {
            assert_eq!(parsed(&name), Some((mode, number)), "{name}");
        }
    }

    #[test]
    fn whatever_else_is_there_takes_no_part() {
        for name in [
            "",
            "junk",
            "0000000000",
            "lock-",
            "lock-1",
            "-lock-00000000x1",
            "_c_x-lock-",
            "_c_x-lock-12345",
            "_c_x-lock-00000000x1",
            "_c_x-lock-+000000001",
            "_c_x-lease-0000000001",
            "_c_x-__PERM__0-0000000001",
            "_c_x-__PERM__0000000001",
            "write-lock-x",
            "leases",
        ] {
            assert_eq!(parsed(name), None, "{name}");
        }
    }

    #[test]
    fn a_stem_and_a_number_make_a_name() {
        let id = LeaseId::random(&SeededEntropy::new(7));
        for compat in [Compat::Curator, Compat::CuratorReadWrite, Compat::Kazoo] {
            for mode in [Mode::Exclusive, Mode::Shared, permits(12)] {
                let name = format!("{}0000000042", stem(compat, mode, id));
                assert_eq!(parsed(&name), Some((mode, 42)), "{name}");
            }
        }
        let hex = id.to_hex();
        assert_eq!(
            stem(Compat::Kazoo, Mode::Exclusive, id),
            format!("{hex}__lock__")
        );
        let curator = stem(Compat::Curator, Mode::Exclusive, id);
        assert_eq!(curator.len(), "_c_".len() + 36 + "-lock-".len());
        assert_eq!(curator.replace('-', ""), format!("_c_{hex}lock"));
    }

    #[test]
    fn a_downgraded_contender_keeps_its_place() {
        let id = LeaseId::random(&SeededEntropy::new(7));
        for compat in [Compat::Curator, Compat::CuratorReadWrite, Compat::Kazoo] {
            for number in [7, -1, i64::from(i32::MIN)] {
                let name = |mode| format!("{}{number:010}", stem(compat, mode, id));
                let own = ZkContender::parse(&name(Mode::Exclusive)).unwrap();
                let shared = own.downgraded().unwrap();
                assert_eq!(shared.name, name(Mode::Shared));
                assert_eq!(parsed(&shared.name), Some((Mode::Shared, number)));
                assert_eq!(shared.downgraded(), None);
                let other = ZkContender::parse(&name(permits(3))).unwrap();
                assert_eq!(other.downgraded(), None);
            }
        }
        let foreign = ZkContender::parse("lock-0000000013").unwrap();
        assert_eq!(foreign.downgraded(), None);
    }
}
