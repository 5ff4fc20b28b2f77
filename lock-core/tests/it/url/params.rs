use std::time::Duration;

use polylock_core::{ErrorKind, Params, Result};

use super::parse;

#[test]
fn parameters_have_types() {
    let url = parse("x:?d=1m 30s&on=on&off=false&n=16&word=row&text=a%26b+c&empty=");
    let mut params = url.params();
    assert_eq!(params.duration("d").unwrap(), Some(Duration::from_secs(90)));
    assert_eq!(params.bool("on").unwrap(), Some(true));
    assert_eq!(params.bool("off").unwrap(), Some(false));
    assert_eq!(params.integer("n", 0_u8..=16).unwrap(), Some(16));
    assert_eq!(
        params.one_of("word", &["lease", "row"]).unwrap(),
        Some("row")
    );
    assert_eq!(params.string("text"), Some("a&b+c"));
    assert_eq!(params.string("empty"), Some(""));
    assert_eq!(params.string("missing"), None);
    assert_eq!(params.duration("missing-as-well").unwrap(), None);
    params.finish().unwrap();
}

#[test]
fn a_wrong_parameter_says_what_it_must_be() {
    let wrong = |text: &str| {
        let url = parse(&format!("x:?p={text}"));
        move |read: &dyn Fn(&mut Params<'_>) -> Result<()>| {
            let error = read(&mut url.params()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            error.message().to_owned()
        }
    };
    let duration = |text| wrong(text)(&|params| params.duration("p").map(drop));
    assert_eq!(
        duration("30"),
        r#"parameter "p" is "30" and must be a duration with a unit, write for example p=30s"#
    );
    let expected = "and must be a duration such as 500ms, 30s or 5m";
    assert_eq!(
        duration("soon"),
        format!(r#"parameter "p" is "soon" {expected}"#)
    );
    assert_eq!(
        duration("inf"),
        format!(r#"parameter "p" is "inf" {expected}"#)
    );
    assert_eq!(duration(""), format!(r#"parameter "p" is "" {expected}"#));
    assert!(duration("99999999999999999999y").ends_with(expected));
    assert_eq!(
        wrong("yes")(&|params| params.bool("p").map(drop)),
        r#"parameter "p" is "yes" and must be on or off"#
    );
    for number in ["17", "-1", "x", "1.5", ""] {
        let message = wrong(number)(&|params| params.integer("p", 1..=16).map(drop));
        assert!(
            message.ends_with("must be a whole number from 1 to 16"),
            "{message}"
        );
    }
    assert_eq!(
        wrong("leese")(&|params| params.one_of("p", &["row", "lease"]).map(drop)),
        r#"parameter "p" is "leese" and must be one of lease, row, did you mean "lease"?"#
    );
}

#[test]
fn an_unknown_parameter_names_the_nearest_and_all_that_are_known() {
    let url = parse("x:?tll=1s");
    let mut params = url.params();
    assert_eq!(params.duration("ttl").unwrap(), None);
    assert_eq!(params.string("mode"), None);
    assert_eq!(
        params.finish().unwrap_err().message(),
        r#"unknown parameter "tll", did you mean "ttl"? (known: mode, ttl)"#
    );
    assert_eq!(
        url.params().finish().unwrap_err().message(),
        r#"unknown parameter "tll" (known: none)"#
    );
}
