//! Every case is in the table of the macro, so that none is written and never run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_case_is_in_the_table() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut cases = BTreeSet::new();
    for entry in fs::read_dir(source.join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
        {
            let name = line.split('(').next().unwrap();
            cases.insert(format!("{group}::{name}"));
        }
    }
    assert!(cases.len() > 120, "{} cases are found", cases.len());
    assert_eq!(
        listed(&fs::read_to_string(source.join("macros.rs")).unwrap()),
        cases
    );
}

/// The cases of the table, `GROUP::CASE`.
fn listed(macros: &str) -> BTreeSet<String> {
    let mut group = "";
    let mut cases = BTreeSet::new();
    for line in macros.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("$crate::__conformance_group! { $skip ") {
            group = rest.trim_end_matches(" {");
        } else if line.ends_with("];") && !group.is_empty() {
            let name = line.split(' ').next().expect("a line has a first word");
            cases.insert(format!("{group}::{name}"));
        }
    }
    cases
}
