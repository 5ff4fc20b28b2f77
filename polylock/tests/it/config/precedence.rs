//! A flag goes before the environment, that before the file, and that before the default.

use super::{loader, messages, parse, setting};

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

#[test]
fn each_level_goes_before_the_next() {
    let key = "backend.main.url";
    let config = loader(&[]).parse(FILE).unwrap();
    assert_eq!(setting(&config, key), "memory:file?namespace=shop (line 5)");
    let variables = [("LOCK_URL", "memory:env")];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(
        setting(&config, key),
        "memory:env?namespace=shop (env LOCK_URL)"
    );
    let variables = [
        ("LOCK_URL", "memory:env"),
        ("LOCK_BACKEND_MAIN_URL", "memory:own"),
    ];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(
        setting(&config, key),
        "memory:own?namespace=shop (env LOCK_BACKEND_MAIN_URL)"
    );
    let config = loader(&variables)
        .with_url("memory:flag")
        .parse(FILE)
        .unwrap();
    assert_eq!(setting(&config, key), "memory:flag?namespace=shop (flag)");

    assert_eq!(
        setting(&config, "backend.other-one.url"),
        "memory:other?namespace=shop (line 8)"
    );
    assert_eq!(setting(&config, "backend.main.wait"), "30s (default)");
    assert_eq!(setting(&config, "backend.main.max-hold"), "1h (default)");
}

#[test]
fn an_empty_variable_is_none() {
    let variables = [("LOCK_URL", ""), ("LOCK_TTL", ""), ("LOCK_PROFILE", "")];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(setting(&config, "backend.main.ttl"), "40s (line 6)");
    assert_eq!(setting(&config, "default"), "main (line 2)");
}

#[test]
fn a_class_has_what_it_says_and_else_what_its_backend_says() {
    let variables = [("LOCK_TTL", "1m"), ("LOCK_CLASS_SHIP_WAIT", "never")];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(setting(&config, "class.pay.ttl"), "50s (line 10)");
    assert_eq!(setting(&config, "class.ship.ttl"), "1m (env LOCK_TTL)");
    assert_eq!(
        setting(&config, "class.ship.wait"),
        "never (env LOCK_CLASS_SHIP_WAIT)"
    );
    assert_eq!(setting(&config, "class.ship.backend"), "main (default)");
    let variables = [
        ("LOCK_CLASS_PAY_TTL", "2m"),
        ("LOCK_CLASS_PAY_BACKEND", "other-one"),
        ("LOCK_BACKEND_OTHER_ONE_MAX_HOLD", "forever"),
    ];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(
        setting(&config, "class.pay.ttl"),
        "2m (env LOCK_CLASS_PAY_TTL)"
    );
    assert_eq!(
        setting(&config, "class.pay.backend"),
        "other-one (env LOCK_CLASS_PAY_BACKEND)"
    );
    assert_eq!(
        setting(&config, "class.pay.max-hold"),
        "forever (env LOCK_BACKEND_OTHER_ONE_MAX_HOLD)"
    );
}

#[test]
fn a_named_profile_is_not_redirected() {
    let variables = [("LOCK_URL", "memory:env"), ("LOCK_PROFILE", "other-one")];
    let config = loader(&variables).parse(FILE).unwrap();
    assert_eq!(setting(&config, "default"), "other-one (env LOCK_PROFILE)");
    assert_eq!(
        setting(&config, "backend.other-one.url"),
        "memory:other?namespace=shop (line 8)"
    );
    let config = loader(&variables).with_profile("main").parse(FILE).unwrap();
    assert_eq!(setting(&config, "default"), "main (flag)");
    assert_eq!(
        setting(&config, "backend.main.url"),
        "memory:file?namespace=shop (line 5)"
    );
}

#[test]
fn a_namespace_is_replaced_from_above_only() {
    let file = "namespace = 'shop'\n[backend.main]\nurl = 'memory:?namespace=own'\n";
    let url = |variables: &[(&str, &str)], flags: (Option<&str>, Option<&str>)| {
        let mut loader = loader(variables);
        if let Some(url) = flags.0 {
            loader = loader.with_url(url);
        }
        if let Some(namespace) = flags.1 {
            loader = loader.with_namespace(namespace);
        }
        let config = loader.parse(file).unwrap();
        let main = config.backends().next().unwrap();
        main.url().unwrap().expose().to_owned()
    };
    let env = [("LOCK_KEY_NAMESPACE", "env")];
    assert_eq!(url(&[], (None, None)), "memory:?namespace=own");
    assert_eq!(url(&env, (None, None)), "memory:?namespace=env");
    assert_eq!(url(&env, (None, Some("flag"))), "memory:?namespace=flag");
    assert_eq!(
        url(&env, (Some("memory:?namespace=u"), None)),
        "memory:?namespace=u"
    );
    assert_eq!(url(&env, (Some("memory:"), None)), "memory:?namespace=env");
    assert_eq!(
        url(&[("LOCK_URL", "memory:")], (None, None)),
        "memory:?namespace=shop"
    );
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
    let config = loader(&[("LOCK_URL", "memory:env")]).parse(&file).unwrap();
    assert_eq!(
        setting(&config, "backend.main.url"),
        "memory:env?max-waiters=5 (env LOCK_URL)"
    );
    assert_eq!(
        setting(&config, "backend.main.options.max-waiters"),
        "5 (line 3)"
    );
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
    let config = loader(&[("LOCK_URL", "memory:env")])
        .without_file()
        .unwrap();
    assert_eq!(
        setting(&config, "backend.default.url"),
        "memory:env (env LOCK_URL)"
    );
    let config = loader(&[])
        .with_fallback_url("memory:x")
        .without_file()
        .unwrap();
    assert_eq!(
        setting(&config, "backend.default.url"),
        "memory:x (default)"
    );
}

#[test]
fn a_backend_that_nobody_uses_needs_not_be_there() {
    use polylock::config::Scope;

    let file = "default = 'dev'\n[backend.dev]\nurl = 'memory:'\n[backend.prod]\n\
                url-env = 'CACHE_URL'\n[class.pay]\nbackend = 'prod'\n";
    let error = "5:11: the variable \"CACHE_URL\" is not set, or empty";
    assert_eq!(messages(&parse(file).unwrap_err()), [error]);
    let config = loader(&[]).with_scope(Scope::Default).parse(file).unwrap();
    let prod = config.backends().nth(1).unwrap();
    assert!(prod.url().is_none() && !prod.is_opened());
    assert_eq!(
        config.warnings()[0].message(),
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
