//! Files: their names in messages, relative paths, and permissions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::loader;

#[test]
fn a_file_is_named_in_its_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lock.toml");
    fs::write(&file, "backend.main.url = 'memory:'\n\u{e9} = 1\n").unwrap();
    let errors = loader(&[]).load(&file).unwrap_err();
    let expected = format!("{}:2:1: ", file.display());
    assert!(errors.to_string().starts_with(&expected), "{errors}");

    let missing = directory.path().join("missing.toml");
    let errors = loader(&[]).load(&missing).unwrap_err();
    let expected = format!(
        "{}: No such file or directory (os error 2)",
        missing.display()
    );
    assert_eq!(errors.to_string(), expected);

    fs::write(&file, b"\xff").unwrap();
    let errors = loader(&[]).load(&file).unwrap_err();
    assert!(
        errors.to_string().ends_with("this is not UTF-8"),
        "{errors}"
    );
}

#[test]
fn a_url_file_is_relative_to_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lock.toml");
    fs::write(&file, "[backend.main]\nurl-file = 'secret/url'\n").unwrap();
    fs::create_dir(directory.path().join("secret")).unwrap();
    fs::write(directory.path().join("secret/url"), "memory:shared\n").unwrap();
    let config = loader(&[]).load(&file).unwrap();
    let url = config.backends()[0].url.as_ref();
    assert_eq!(url.unwrap().expose(), "memory:shared");
}

#[test]
fn a_password_that_everybody_can_read_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lock.toml");
    let other = directory.path().join("url");
    fs::write(&other, "redis://app:s3ntinel@cache").unwrap();
    let in_place = "[backend.main]\nurl = 'redis://app:s3ntinel@cache'\n";
    let in_options =
        "[backend.main]\nurl = 'redis+unix:/run/redis'\noptions.password = 's3ntinel'\n";
    let apart = "[backend.main]\nurl-file = 'url'\n";
    let without = "[backend.main]\nurl = 'redis://cache'\n";
    let password_file = |path: &Path| {
        let path = path.display();
        format!("[backend.main]\nurl = 'redis://app@cache?password-file={path}'\n")
    };
    let (readable, unreadable) = (password_file(&other), password_file(&file));
    let of_sentinels = readable
        .replace("app@cache", "cache/main")
        .replace("redis:", "redis-sentinel:")
        .replace("password-file", "sentinel-password-file");
    let table = [
        (in_place, 0o644, vec![2]),
        (in_place, 0o640, vec![]),
        (in_options, 0o644, vec![2]),
        (without, 0o644, vec![]),
        (apart, 0o600, vec![2]),
        (&*readable, 0o600, vec![2]),
        (&*unreadable, 0o600, vec![]),
        (&*of_sentinels, 0o600, vec![2]),
    ];
    for (text, mode, lines) in table {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        let config = loader(&[]).load(&file).unwrap();
        let warnings = config.warnings();
        let places = warnings.iter().filter_map(|warning| warning.position);
        let found: Vec<_> = places.map(|(line, _)| line).collect();
        assert_eq!(found, lines, "{text} {mode:o} {warnings:?}");
        let told = format!("{warnings:?}");
        assert!(
            lines.is_empty() || told.contains("everyone can read"),
            "{told}"
        );
        assert!(!told.contains("s3ntinel"), "{told}");
    }
}
