use super::host::parse_list;
use super::percent::decode;
use super::{LockUrl, params};
use crate::error::{Error, Result};

/// Takes a URL apart.
///
/// No message quotes the text: where an unescaped `/`, `?`, `#` or `@` stands in a password, parts
/// of it look like a port, a path or a parameter.
pub(super) fn parse(text: &str) -> Result<LockUrl> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::config(
            "the URL is empty, write for example sqlite:locks.db",
        ));
    }
    if text.contains(char::is_control) {
        return Err(Error::config("a URL must not contain control characters"));
    }
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    // Refused rather than guessed at: behind them may stand the rest of a password.
    if text.contains('#') {
        return Err(Error::config(
            "a # in a URL is written %23, also in a password",
        ));
    }
    if path.contains('@') || query.contains('@') || authority.matches('@').count() > 1 {
        return Err(Error::config(
            "an @ stands once, as in SCHEME://USER:PASSWORD@HOST, and is written %40 elsewhere; \
             / and ? in a password are written %2F and %3F",
        ));
    }
    let (userinfo, hosts) = authority.split_once('@').unwrap_or(("", authority));
    let (username, password) = match userinfo.split_once(':') {
        Some((username, password)) => (username, Some(decode(password)?)),
        None => (userinfo, None),
    };
    let hosts = parse_list(hosts, &scheme).map_err(|error| match is_file_like(&scheme) {
        true => Error::config(format!(
            "two slashes make a host of what follows, and a file has none; write {scheme}:PATH"
        )),
        false => error,
    })?;
    Ok(LockUrl {
        has_authority: rest.starts_with("//"),
        username: Some(decode(username)?).filter(|name| !name.is_empty()),
        password,
        hosts,
        path: decode(path)?,
        params: params::parse(query)?,
        taken: Vec::new(),
        namespace: String::new(),
        scheme,
    })
}

/// Splits off the scheme, and finds out whether it is rather a host.
fn split_scheme(text: &str) -> Result<(String, &str)> {
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    if !is_scheme(scheme) {
        return Err(without_scheme(text));
    }
    let scheme = scheme.to_ascii_lowercase();
    if !is_file_like(&scheme) && leading_port(rest).is_some() {
        return Err(without_scheme(text));
    }
    Ok((scheme, rest))
}

/// Whether it is written as a scheme: a letter, then letters, digits, `+`, `-` and `.`.
pub(crate) fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// Whether what follows the scheme is a name or a path, never a host.
fn is_file_like(scheme: &str) -> bool {
    ["file", "memory", "sqlite"].contains(&scheme)
}

fn without_scheme(text: &str) -> Error {
    let hint = match endpoint(text) {
        Some((host, port)) => format!("did you mean {}://{host}:{port}?", usual_scheme(port)),
        None => "write for example redis://HOST:6379, or sqlite:PATH for a file".to_owned(),
    };
    Error::config(format!("there is no scheme; {hint}"))
}

/// The first host and port of a text without a scheme, if nothing in it can be a password.
fn endpoint(text: &str) -> Option<(&str, u16)> {
    let colon = match text.starts_with('[') {
        true => text.find(']')? + 1,
        false => text.find(':')?,
    };
    let (host, rest) = text.split_at(colon);
    let is_host = !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b));
    let port = leading_port(rest.strip_prefix(':')?)?;
    (is_host && !text.contains('@')).then_some((host, port))
}

fn leading_port(text: &str) -> Option<u16> {
    let end = text.find(['/', ',', '?']).unwrap_or(text.len());
    let digits = &text[..end];
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The service that usually listens on this port.
fn usual_scheme(port: u16) -> &'static str {
    match port {
        2181 => "zk",
        3306 => "mysql",
        5432 => "postgres",
        26379 => "redis-sentinel",
        _ => "redis",
    }
}
