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
        return Err(Error::config(format!("the URL is empty, {FORMS}")));
    }
    if text.contains(char::is_control) {
        return Err(Error::config("a URL must not contain control characters"));
    }
    let Some((scheme, rest)) = split_scheme(text) else {
        return Err(Error::config(format!("there is no scheme; {FORMS}")));
    };
    let scheme = scheme.to_ascii_lowercase();
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
        Some((username, password)) => (username, Some(decode(password)?.into())),
        None => (userinfo, None),
    };
    Ok(LockUrl {
        has_authority: rest.starts_with("//"),
        username: Some(decode(username)?).filter(|name| !name.is_empty()),
        password,
        hosts: parse_list(hosts, &scheme)?,
        path: decode(path)?,
        params: params::parse(query)?,
        taken: Vec::new(),
        namespace: String::new(),
        scheme,
    })
}

/// The scheme as it is written, and what follows its colon.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    is_scheme(scheme).then_some((scheme, rest))
}

/// Whether it is written as a scheme: a letter, then letters, digits, `+`, `-` and `.`.
pub(crate) fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// The first host and port of a text that begins with them, if nothing in it can be a password. The host
/// may be meant as a scheme, as in `memory:1`.
pub(crate) fn leading_endpoint(text: &str) -> Option<(&str, u16)> {
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

/// What a URL looks like.
const FORMS: &str = "write SCHEME://HOST:PORT, or SCHEME:PATH for a file";
