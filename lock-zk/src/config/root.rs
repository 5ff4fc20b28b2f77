use lock_core::Result;

use super::wrong;

/// Checks a path that is to have the locks, and takes a slash off its end.
pub(super) fn root(path: &str) -> Result<String> {
    let names = match path.strip_prefix('/') {
        Some("") => return Ok("/".to_owned()),
        Some(names) => names.strip_suffix('/').unwrap_or(names),
        None => return Err(wrong(format!("the path {path:?} does not begin with /"))),
    };
    for name in names.split('/') {
        if matches!(name, "" | "." | "..") || name.chars().any(is_refused) {
            return Err(wrong(format!(
                "{path:?} is no path of ZooKeeper: there is a name in it that is empty, . or .., or has \
                 control characters"
            )));
        }
    }
    if names == "zookeeper" || names.starts_with("zookeeper/") {
        return Err(wrong(
            "/zookeeper belongs to ZooKeeper itself, name another path",
        ));
    }
    Ok(format!("/{names}"))
}

/// What ZooKeeper refuses in a name.
fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_an_absolute_path_of_plain_names() {
        for (path, read) in [
            ("/", "/"),
            ("/locks", "/locks"),
            ("/locks/", "/locks"),
            ("/a/zookeeper/ü b", "/a/zookeeper/ü b"),
            ("/zookeepers", "/zookeepers"),
        ] {
            assert_eq!(root(path).unwrap(), read);
        }
        for path in [
            "",
            "locks",
            "//",
            "/a//b",
            "/a/./b",
            "/a/..",
            "/a\n",
            "/\u{e000}",
        ] {
            assert!(root(path).is_err(), "{path:?}");
        }
        for path in ["/zookeeper", "/zookeeper/", "/zookeeper/quota"] {
            let error = root(path).unwrap_err();
            assert!(error.message().contains("belongs to ZooKeeper"), "{error}");
        }
    }
}
