//! SQLite: a file.

use super::support::examine;
use crate::common::Place;

#[test]
fn a_file_gets_a_clean_bill_and_nothing_stays_in_it() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.file("locks.db").display());
    let bill = examine(&url);
    bill.assert_clean();
    bill.assert_status("expiry", "ok");
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
    place.write("noise", &noise);
    for file in ["missing/locks.db", "noise"] {
        let bill = examine(&format!("sqlite:{}", place.file(file).display()));
        assert_eq!(bill.ended.code, 1, "{file}: {bill}");
        let has_error = bill.faults().iter().any(|(_, status)| *status == "error");
        assert!(has_error, "{file} is no error: {bill}");
    }
}
