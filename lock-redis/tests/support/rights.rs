//! What a user of the server needs, as `docs/backends/redis.md` lists it.

use std::fs;
use std::path::Path;

/// The rules of a user with this password whose locks begin with `prefix`. It may list locks, and its
/// client may check the server.
pub(crate) fn user(password: &str, prefix: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/backends/redis.md");
    let page = fs::read_to_string(page).expect("a text");
    let page = page.replace(r"\|", "|");
    let block = page.split("ACL SETUSER locks ").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let also = |purpose: &str| {
        let is_row = |line: &&str| line.starts_with("| `+") && line.contains(purpose);
        let row = page.lines().find(is_row).expect("a row");
        row.split('`').nth(1).expect("rights")
    };
    let rules = [
        block.expect("a list"),
        also("`lockctl list`"),
        also("the checks at the start"),
    ];
    let (namespace, _) = prefix.split_once(':').unwrap_or_default();
    let rule = |rule: &str| match rule {
        ">password" => format!(">{password}"),
        keys if keys.starts_with('~') => keys
            .replace("{lock}:", &format!("{{{namespace}}}:"))
            .replace(":lock:tokens", &format!(":{namespace}:tokens"))
            .replace("lock:*", prefix),
        rule => rule.to_owned(),
    };
    let rules = rules.into_iter().flat_map(str::split_whitespace).map(rule);
    rules.collect::<Vec<_>>().join(" ")
}
