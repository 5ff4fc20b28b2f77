//! A flag goes before the environment, that before the file, and that before the default.

use polylock::config::{Loader, Scope};

use super::{loader, messages, parse};

const FILE: &str = "
default = 'main'
namespace = 'shop'
[backend.main]
url = 'memory:file'
ttl = '40s'
[backend.other-one]
url = 'memory:other'
[class.pay]
ttl = '50s'
[class.ship]
";

/// The settings of a file with these variables and flags, each as `KEY = VALUE (ORIGIN)`.
#[track_caller]
fn assert_settings(loader: &Loader, file: &str, expected: &[&str]) {
    let config = loader.parse(file).expect(file);
    let settings: Vec<_> = config.effective().iter().map(ToString::to_string).collect();
    for setting in expected {
        assert!(
            settings.iter().any(|found| found == setting),
            "no {setting} in {settings:#?}"
        );
    }
}

#[test]
fn each_level_goes_before_the_next() {
    let url = ("LOCK_URL", "memory:env");
    let own = ("LOCK_BACKEND_MAIN_URL", "memory:own");
    let untouched = [
        "backend.other-one.url = memory:other?namespace=shop (line 8)",
        "backend.main.wait = 30s (default)",
        "backend.main.max-hold = 1h (default)",
    ];
    for (loader, main) in [
        (loader(&[]), "memory:file?namespace=shop (line 5)"),
        (loader(&[url]), "memory:env?namespace=shop (env LOCK_URL)"),
        (
            loader(&[url, own]),
            "memory:own?namespace=shop (env LOCK_BACKEND_MAIN_URL)",
        ),
        (
            loader(&[url, own]).with_url("memory:flag"),
            "memory:flag?namespace=shop (flag)",
        ),
    ] {
        let main = format!("backend.main.url = {main}");
        assert_settings(&loader, FILE, &[&[main.as_str()], &untouched[..]].concat());
    }
}

#[test]
fn an_empty_variable_is_none() {
    let variables = [
        ("LOCK_URL", ""),
        ("LOCK_TTL", ""),
        ("LOCK_DEFAULT_BACKEND", ""),
    ];
    let expected = ["backend.main.ttl = 40s (line 6)", "default = main (line 2)"];
    assert_settings(&loader(&variables), FILE, &expected);
}

#[test]
fn a_class_has_what_it_says_and_else_what_its_backend_says() {
    let variables = [("LOCK_TTL", "1m"), ("LOCK_CLASS_SHIP_WAIT", "never")];
    let expected = [
        "class.pay.ttl = 50s (line 10)",
        "class.ship.ttl = 1m (env LOCK_TTL)",
        "class.ship.wait = never (env LOCK_CLASS_SHIP_WAIT)",
        "class.ship.backend = main (default)",
    ];
    assert_settings(&loader(&variables), FILE, &expected);
    let variables = [
        ("LOCK_CLASS_PAY_TTL", "2m"),
        ("LOCK_CLASS_PAY_BACKEND", "other-one"),
        ("LOCK_BACKEND_OTHER_ONE_MAX_HOLD", "forever"),
    ];
    let expected = [
        "class.pay.ttl = 2m (env LOCK_CLASS_PAY_TTL)",
        "class.pay.backend = other-one (env LOCK_CLASS_PAY_BACKEND)",
        "class.pay.max-hold = forever (env LOCK_BACKEND_OTHER_ONE_MAX_HOLD)",
    ];
    assert_settings(&loader(&variables), FILE, &expected);
}

#[test]
fn a_named_default_backend_is_not_redirected() {
    let by_variable = loader(&[
        ("LOCK_URL", "memory:env"),
        ("LOCK_DEFAULT_BACKEND", "other-one"),
    ]);
    let expected = [
        "default = other-one (env LOCK_DEFAULT_BACKEND)",
        "backend.other-one.url = memory:other?namespace=shop (line 8)",
    ];
    assert_settings(&by_variable, FILE, &expected);
    let expected = [
        "default = main (flag)",
        "backend.main.url = memory:file?namespace=shop (line 5)",
    ];
    assert_settings(&by_variable.with_default_backend("main"), FILE, &expected);
}

#[test]
fn a_namespace_is_replaced_from_above_only() {
    let file = "namespace = 'shop'\n[backend.main]\nurl = 'memory:?namespace=own'\n";
    let env = [("LOCK_KEY_NAMESPACE", "env")];
    for (loader, expected) in [
        (loader(&[]), "memory:?namespace=own"),
        (loader(&env), "memory:?namespace=env"),
        (
            loader(&env).with_namespace("flag"),
            "memory:?namespace=flag",
        ),
        (
            loader(&env).with_url("memory:?namespace=u"),
            "memory:?namespace=u",
        ),
        (loader(&env).with_url("memory:"), "memory:?namespace=env"),
        (loader(&[("LOCK_URL", "memory:")]), "memory:?namespace=shop"),
    ] {
        let config = loader.parse(file).unwrap();
        let url = config.backends()[0].url.as_ref();
        assert_eq!(url.unwrap().expose(), expected);
    }
    let file = "[backend.main]\nurl = 'memory:'\noptions.namespace = 'own'\n";
    let config = loader(&env).with_url("memory:y").parse(file).unwrap();
    let url = config.backends()[0].url.as_ref();
    assert_eq!(url.unwrap().expose(), "memory:y?namespace=env");
}

#[test]
fn options_of_the_file_stay_with_another_url() {
    let file = "[backend.main]\nurl = 'memory:'\noptions.max-waiters = 5\noptions.x = true\n";
    let errors = loader(&[("LOCK_URL", "memory:env")])
        .parse(file)
        .unwrap_err();
    let expected = "4:9: unknown parameter \"x\"";
    assert!(messages(&errors)[0].starts_with(expected), "{errors}");
    assert!(
        messages(&errors)[0].ends_with("(the URL is from env LOCK_URL)"),
        "{errors}"
    );
    let file = file.replace("options.x = true\n", "");
    let expected = [
        "backend.main.url = memory:env?max-waiters=5 (env LOCK_URL)",
        "backend.main.options.max-waiters = 5 (line 3)",
    ];
    assert_settings(&loader(&[("LOCK_URL", "memory:env")]), &file, &expected);
}

#[test]
fn without_a_default_the_only_backend_or_the_one_of_that_name_is_it() {
    let table = [
        ("backend.a.url = 'memory:'", Some("a")),
        ("backend.a.url = 'memory:'\nbackend.b.url = 'memory:'", None),
        (
            "backend.a.url = 'memory:'\nbackend.default.url = 'memory:'",
            Some("default"),
        ),
        (
            "backend.old.url = 'memory:'\n[backend.new]\nurl = 'memory:'\nmigrate-from = 'old'",
            Some("new"),
        ),
    ];
    for (text, default) in table {
        assert_eq!(parse(text).unwrap().default_backend(), default, "{text}");
    }
    let loader = loader(&[("LOCK_URL", "memory:env")]);
    assert!(loader.without_file().is_ok());
    let url = "backend.default.url = memory:env (env LOCK_URL)";
    assert_settings(&loader, "", &[url]);
}

#[test]
fn an_unused_backend_need_not_be_there() {
    let file = "default = 'dev'\n[backend.dev]\nurl = 'memory:'\n[backend.prod]\n\
                url-env = 'CACHE_URL'\n[class.pay]\nbackend = 'prod'\n";
    let error = "5:11: the variable \"CACHE_URL\" is not set, or empty";
    assert_eq!(messages(&parse(file).unwrap_err()), [error]);
    let config = loader(&[]).with_scope(Scope::Default).parse(file).unwrap();
    let prod = &config.backends()[1];
    assert!(prod.url.is_none() && !prod.is_opened);
    assert_eq!(
        config.warnings()[0].message,
        "the variable \"CACHE_URL\" is not set, or empty"
    );
    let pay = Scope::Class("pay".to_owned());
    assert_eq!(
        messages(&loader(&[]).with_scope(pay).parse(file).unwrap_err()),
        [error]
    );
    let scope = Scope::Class("pya".to_owned());
    let errors = loader(&[("CACHE_URL", "memory:")])
        .with_scope(scope)
        .parse(file);
    let expected = "flag: there is no class \"pya\", did you mean \"pay\"?";
    assert_eq!(messages(&errors.unwrap_err()), [expected]);
}
