use lock_core::Status;

use super::*;

fn good() -> Facts {
    Facts {
        path: PathBuf::from("/data/locks.db"),
        version: "3.50.0".to_owned(),
        file_system: Some(0xEF53),
        clock_shift: Some(0),
        has_own_boot_id: false,
        makes_directory: false,
        has_directory: true,
        directory_takes_files: true,
        has_file: true,
        file_takes_writes: true,
        inside: Some(Inside {
            is_database: true,
            synchronous: FULL,
            has_table: true,
            columns: COLUMNS.split(", ").map(str::to_owned).collect(),
            layout: Some(LAYOUT),
        }),
    }
}

fn inside(facts: &mut Facts) -> &mut Inside {
    facts.inside.get_or_insert_default()
}

fn not_there(facts: &mut Facts) {
    facts.has_file = false;
    facts.file_takes_writes = false;
    facts.inside = None;
}

#[test]
fn each_fault_is_found_by_itself() {
    use Status::{Error, Warning};
    type Change = fn(&mut Facts);
    let cases: [(Change, &str, Status, &str); 10] = [
        (
            |facts| facts.file_system = Some(0x6969),
            "filesystem",
            Error,
            "network",
        ),
        (
            |facts| facts.file_system = Some(TMPFS),
            "filesystem",
            Warning,
            "in memory",
        ),
        (
            |facts| facts.directory_takes_files = false,
            "rights",
            Error,
            "no files",
        ),
        (
            |facts| facts.file_takes_writes = false,
            "rights",
            Error,
            "read and write",
        ),
        (
            |facts| {
                not_there(facts);
                facts.has_directory = false;
            },
            "rights",
            Error,
            "create-dir=on",
        ),
        (
            |facts| inside(facts).synchronous = 1,
            "flush",
            Warning,
            "synchronous is 1",
        ),
        (
            |facts| inside(facts).layout = Some(7),
            "table",
            Error,
            "layout 7",
        ),
        (
            |facts| inside(facts).columns.truncate(12),
            "table",
            Error,
            "no columns broken_reason",
        ),
        (
            |facts| *inside(facts) = Inside::default(),
            "table",
            Error,
            "damaged",
        ),
        (
            |facts| facts.clock_shift = None,
            "clock",
            Warning,
            "one more ttl",
        ),
    ];
    for (change, check, status, says) in cases {
        let mut facts = good();
        change(&mut facts);
        let found = health_checks(&facts, "t");
        let faults: Vec<_> = found.iter().filter(|found| found.is_fault()).collect();
        let [fault] = faults[..] else {
            panic!("{says}: {found:?}");
        };
        assert_eq!((fault.id, fault.status), (check, status));
        assert!(fault.to_string().contains(says), "{fault}");
    }
}

#[test]
fn what_a_start_makes_is_no_fault() {
    let changes: [fn(&mut Facts); 5] = [
        |_| (),
        not_there,
        |facts| {
            not_there(facts);
            (facts.has_directory, facts.makes_directory) = (false, true);
        },
        |facts| (inside(facts).has_table, inside(facts).layout) = (false, None),
        |facts| inside(facts).layout = None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut facts = good();
        change(&mut facts);
        let found = health_checks(&facts, "t");
        let good = |found: &HealthCheck| found.status == Status::Ok;
        assert!(found.iter().all(good), "{number}: {found:?}");
    }
}

#[test]
fn a_file_that_locks_are_not_kept_in_is_not_opened() {
    assert!(may_open(&good()));
    let changes: [fn(&mut Facts); 3] = [
        not_there,
        |facts| facts.file_system = Some(0x6969),
        |facts| facts.directory_takes_files = false,
    ];
    for change in changes {
        let mut facts = good();
        change(&mut facts);
        assert!(!may_open(&facts), "{facts:?}");
        facts.inside = None;
        let found = health_checks(&facts, "t");
        let table = found.iter().find(|found| found.id == "table");
        assert!(table.is_some_and(|table| !table.is_fault()), "{found:?}");
    }
}

#[test]
fn containers_are_named_and_no_fault() {
    let cases = [
        (Some(0), false, "that of the kernel"),
        (Some(0), true, "boot id of its own"),
        (Some(86_400_000_000_000), true, "86400 s ahead"),
        (Some(-1_500_000_000), false, "1.5 s behind"),
    ];
    for (shift, own, says) in cases {
        let facts = Facts {
            clock_shift: shift,
            has_own_boot_id: own,
            ..good()
        };
        let found = health_checks(&facts, "t");
        let clock = found.iter().find(|found| found.id == "clock");
        let clock = clock.expect("it is looked at");
        assert!(!clock.is_fault() && clock.summary.contains(says), "{clock}");
    }
}
