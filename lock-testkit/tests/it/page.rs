//! The page about the suite names all that a backend may lack.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).expect("it is in the repository")
}

#[test]
fn every_need_is_in_the_table_of_the_page() {
    let source = read("lock-conformance/src/cases/need.rs");
    let (_, variants) = source.split_once("pub enum Need {").unwrap();
    let (variants, _) = variants.split_once('}').unwrap();
    let variants = variants.lines().filter_map(|line| line.strip_suffix(','));
    let needs: BTreeSet<_> = variants.map(str::trim).collect();
    assert!(needs.contains("Admin"), "{needs:?}");
    let page = read("docs/test-your-backend.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(named, needs);
}
