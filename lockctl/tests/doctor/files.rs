//! SQLite: a file.

#![cfg(feature = "sqlite")]

use std::fs;

use crate::common::Place;
use crate::support::examine;

#[test]
fn a_file_gets_a_clean_bill_and_nothing_stays_in_it() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.file("locks.db").display());
    let bill = examine(&url);
    bill.assert_clean();
    assert_eq!(bill.finding("expiry")["verdict"], "good");
    let listed = place.json(&["--backend", &url, "list"]);
    assert_eq!(
        listed["locks"].as_array().map(Vec::len),
        Some(0),
        "{listed}"
    );
}

#[test]
fn a_directory_that_is_not_there_and_a_file_that_is_no_database_are_found() {
    let place = Place::new();
    let noise = "no database at all, and long enough to be read as a header ".repeat(20);
    fs::write(place.file("noise"), noise).unwrap();
    for file in ["missing/locks.db", "noise"] {
        let url = format!("sqlite:{}", place.file(file).display());
        let bill = examine(&url);
        assert_eq!(bill.code, 1, "{file}: {:#}", bill.value);
        let faults = bill.faults();
        assert!(
            faults.iter().any(|(_, verdict)| *verdict == "error"),
            "{:#}",
            bill.value
        );
    }
}
