//! The options in the parentheses of the attribute.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{Error, Expr, ExprLit, Lit, Result};

/// How the lock is requested, as expressions of the expanded function.
#[derive(Default)]
pub(crate) struct Options {
    /// Everything behind `.request(key)`.
    pub(crate) request: TokenStream,
    pub(crate) key: TokenStream,
    /// `None` for the parameter of that name.
    pub(crate) locks: Option<Expr>,
    seen: Vec<String>,
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        syn::meta::parser(|meta| options.read(&meta)).parse2(tokens)?;
        if options.key.is_empty() {
            let message = "a locked function has a key, such as `key = \"orders/{id}\"`";
            return Err(Error::new(Span::call_site(), message));
        }
        Ok(options)
    }

    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string);
        let name = name.unwrap_or_default();
        if self.seen.contains(&name) {
            return Err(meta.error(format!("`{name}` is given twice")));
        }
        match &*name {
            "key" => self.key = key(meta.value()?.parse()?)?,
            "locks" => self.locks = Some(meta.value()?.parse()?),
            "max_hold" => {
                let max_hold = max_hold(&meta.value()?.parse()?)?;
                self.request.extend(quote!(.max_hold(#max_hold)));
            }
            "shared" => self.request.extend(quote!(.shared())),
            "ttl" => {
                let ttl = ttl(&meta.value()?.parse()?)?;
                self.request.extend(quote!(.ttl(#ttl)));
            }
            "wait" => {
                let wait = wait(&meta.value()?.parse()?)?;
                self.request.extend(quote!(.wait(#wait)));
            }
            _ => {
                let known = "unknown option; there are `key`, `locks`, `max_hold`, `shared`, `ttl` and `wait`";
                return Err(meta.error(known));
            }
        }
        self.seen.push(name);
        Ok(())
    }
}

/// Text with the arguments of `format!`, or any expression.
fn key(key: Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit {
        lit: Lit::Str(text),
        ..
    }) = key
    else {
        return Ok(quote!(#key));
    };
    let name = text.value();
    if name.is_empty() || name.chars().any(char::is_control) {
        let message = "a lock key is not empty and has no control characters";
        return Err(Error::new(text.span(), message));
    }
    match name.contains(['{', '}']) {
        true => Ok(quote!(::std::format!(#text))),
        false if name.len() <= MAX_KEY_LEN => Ok(quote!(#text)),
        false => {
            let message = format!("a lock key has at most {MAX_KEY_LEN} bytes");
            Err(Error::new(text.span(), message))
        }
    }
}

/// That of `polylock::LockKey`.
const MAX_KEY_LEN: usize = 256;

fn ttl(value: &Lit) -> Result<TokenStream> {
    let ttl = duration(value).and_then(|ttl| match (MIN_TTL..=MAX_TTL).contains(&ttl) {
        true => Ok(ttl),
        false => Err(format!("a ttl is between 500ms and 24h, not {ttl:?}")),
    });
    let ttl = ttl.map_err(|wrong| Error::new(value.span(), wrong))?;
    Ok(tokens(ttl))
}

/// Those of `polylock::AcquireRequest`. A backend may ask for more.
const MIN_TTL: Duration = Duration::from_millis(500);
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

fn wait(value: &Lit) -> Result<TokenStream> {
    let wrong = |message| Err(Error::new(value.span(), message));
    match (&*text(value), duration(value)) {
        ("forever", _) => Ok(quote!(::polylock::Wait::Forever)),
        ("never", _) => Ok(quote!(::polylock::Wait::Never)),
        (_, Ok(Duration::ZERO)) => wrong("write \"never\" for a wait of zero".to_owned()),
        (_, Ok(limit)) => {
            let limit = tokens(limit);
            Ok(quote!(::polylock::Wait::AtMost(#limit)))
        }
        (_, Err(message)) => wrong(format!("{message}, or \"never\" or \"forever\"")),
    }
}

fn max_hold(value: &Lit) -> Result<TokenStream> {
    let wrong = |message| Err(Error::new(value.span(), message));
    match (&*text(value), duration(value)) {
        ("forever", _) => Ok(quote!(::core::option::Option::None)),
        (_, Ok(Duration::ZERO)) => wrong("a max hold is longer than zero".to_owned()),
        (_, Ok(limit)) => Ok(tokens(limit)),
        (_, Err(message)) => wrong(format!("{message}, or \"forever\"")),
    }
}

/// A duration as a configuration file has it.
fn duration(value: &Lit) -> std::result::Result<Duration, String> {
    let text = text(value);
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("a duration has a unit, write \"{text}s\""));
    }
    humantime::parse_duration(&text).map_err(|_| {
        format!("{text:?} is not a duration, write for example \"500ms\", \"30s\" or \"5m\"")
    })
}

fn text(value: &Lit) -> String {
    match value {
        Lit::Str(text) => text.value().trim().to_owned(),
        other => other.to_token_stream().to_string(),
    }
}

fn tokens(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}
