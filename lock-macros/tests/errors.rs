//! What the compiler says of a function that cannot be locked, and where.

#[test]
fn mistakes_are_explained_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
