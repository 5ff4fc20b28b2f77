//! The function that a locked function expands to.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    AttrStyle, Attribute, Error, FnArg, Ident, ItemFn, Pat, PatType, Result, ReturnType, Token,
    Type, parse_quote,
};

use crate::options::Options;

/// The function under its lock; where that is not possible, the error and the function without a lock, so
/// that its callers compile.
pub(crate) fn expand(options: TokenStream, function: &TokenStream) -> TokenStream {
    let mut parsed = match syn::parse2::<ItemFn>(function.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#error #function);
        }
    };
    match locked(options, &parsed) {
        Ok(locked) => locked,
        Err(error) => {
            let error = error.to_compile_error();
            let (parameters, guards) = without_guard(&parsed);
            parsed.sig.inputs = parameters;
            for PatType { pat, ty, .. } in guards {
                let guard = parse_quote!(let #pat: #ty = ::core::unreachable!(););
                parsed.block.stmts.insert(0, guard);
                parsed.attrs.push(parse_quote!(#[allow(unreachable_code)]));
            }
            quote!(#error #parsed)
        }
    }
}

fn locked(options: TokenStream, function: &ItemFn) -> Result<TokenStream> {
    let Options {
        request,
        key,
        locks,
        ..
    } = Options::parse(options)?;
    let returned = check(function)?;
    let (parameters, guards) = without_guard(function);
    let guard_parameter = guard_parameter(&guards)?;
    let locks = match locks {
        Some(locks) => quote!(#locks),
        None => parameter_named_locks(&parameters)?,
    };

    // Names of its own, which the body does not see.
    let own = Span::mixed_site();
    let (guard, work, output) = (ident("guard"), ident("work"), ident("output"));
    let guard_parameter = guard_parameter.map(|PatType { pat, ty, .. }| {
        let value = quote_spanned!(ty.span().resolved_at(own)=> &#guard);
        quote_spanned!(own=> let #pat: #ty = #value;)
    });
    // An error that cannot be converted is one of the return type.
    let question_mark = quote_spanned!(returned.span().resolved_at(own)=> ?);
    let body = body(function, returned);

    let ItemFn {
        attrs, vis, sig, ..
    } = function;
    let is_outer = |attribute: &&Attribute| matches!(attribute.style, AttrStyle::Outer);
    let (outer, inner): (Vec<_>, Vec<_>) = attrs.iter().partition(is_outer);
    let mut sig = sig.clone();
    sig.inputs = parameters;
    Ok(quote_spanned! {own=>
        #(#outer)*
        #vis #sig {
            #(#inner)*
            let #guard = {
                #[allow(unused_imports)]
                use ::polylock::DistributedLockExt as _;
                (#locks).request(#key) #request.acquire().await #question_mark
            };
            #guard_parameter
            let #work = async move { #body };
            let #output = #guard.run(#work).await #question_mark;
            // What became of the release is seen by observers, and it is repeated if need be.
            ::core::mem::drop(#guard.release().await);
            #output
        }
    })
}

/// The return type of a function that can be locked.
fn check(function: &ItemFn) -> Result<&Type> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message = "a locked function is async; of a method in `#[async_trait]`, lock an async function \
                       that it calls";
        return Err(Error::new(signature.fn_token.span(), message));
    }
    match &signature.output {
        ReturnType::Type(_, returned) => Ok(returned),
        ReturnType::Default => {
            let message =
                "a locked function returns a `Result` whose error is made from `polylock::Error`";
            Err(Error::new(signature.ident.span(), message))
        }
    }
}

/// The parameters that callers pass, and those that are marked `#[guard]`.
fn without_guard(function: &ItemFn) -> (Punctuated<FnArg, Token![,]>, Vec<PatType>) {
    let mut guards = Vec::new();
    let passed = function
        .sig
        .inputs
        .iter()
        .filter(|parameter| match parameter {
            FnArg::Typed(parameter) if is_guard(parameter) => {
                guards.push(parameter.clone());
                false
            }
            _ => true,
        });
    (passed.cloned().collect(), guards)
}

fn is_guard(parameter: &PatType) -> bool {
    let mut attributes = parameter.attrs.iter();
    attributes.any(|attribute| attribute.path().is_ident("guard"))
}

fn guard_parameter(guards: &[PatType]) -> Result<Option<&PatType>> {
    match guards {
        [] => Ok(None),
        [guard] => Ok(Some(guard)),
        [_, second, ..] => {
            let message = "a locked function has one guard";
            Err(Error::new(second.pat.span(), message))
        }
    }
}

fn parameter_named_locks(parameters: &Punctuated<FnArg, Token![,]>) -> Result<TokenStream> {
    let patterns = parameters.iter().filter_map(|parameter| match parameter {
        FnArg::Typed(parameter) => Some(&*parameter.pat),
        FnArg::Receiver(_) => None,
    });
    let found = patterns
        .into_iter()
        .find_map(|pattern| bound(pattern, "locks"));
    let message = "no parameter is named `locks`: say where they are, such as `locks = self.locks`";
    match found {
        Some(locks) => Ok(quote!(#locks)),
        None => Err(Error::new(Span::call_site(), message)),
    }
}

/// The variable of this name, if the pattern binds one. A field of this name is none.
fn bound<'a>(pattern: &'a Pat, name: &str) -> Option<&'a Ident> {
    let among = |patterns: &'a Punctuated<Pat, Token![,]>| {
        let mut patterns = patterns.iter();
        patterns.find_map(|pattern| bound(pattern, name))
    };
    match pattern {
        Pat::Ident(variable) if variable.ident == name => Some(&variable.ident),
        Pat::Ident(variable) => {
            let (_, inner) = variable.subpat.as_ref()?;
            bound(inner, name)
        }
        Pat::Or(or) => or.cases.iter().find_map(|case| bound(case, name)),
        Pat::Paren(inner) => bound(&inner.pat, name),
        Pat::Reference(inner) => bound(&inner.pat, name),
        Pat::Slice(slice) => among(&slice.elems),
        Pat::Struct(all) => {
            let mut fields = all.fields.iter();
            fields.find_map(|field| bound(&field.pat, name))
        }
        Pat::Tuple(tuple) => among(&tuple.elems),
        Pat::TupleStruct(tuple) => among(&tuple.elems),
        _ => None,
    }
}

/// The body of the function as that of an async block, whose type the compiler would have to guess.
fn body(function: &ItemFn, returned: &Type) -> TokenStream {
    let block = &function.block;
    if find(returned.to_token_stream(), "impl").is_some() {
        return quote!(#block);
    }
    let output = ident("output");
    quote_spanned! {Span::mixed_site()=>
        #[allow(unreachable_code)]
        if let ::core::option::Option::Some(#output) = ::core::option::Option::None::<#returned> {
            return #output;
        }
        let #output: #returned = #block;
        #[allow(unreachable_code)]
        #output
    }
}

/// An identifier of this name in a type.
fn find(tokens: TokenStream, name: &str) -> Option<Ident> {
    tokens.into_iter().find_map(|tree| match tree {
        TokenTree::Group(group) => find(group.stream(), name),
        TokenTree::Ident(ident) if ident == name => Some(ident),
        _ => None,
    })
}

fn ident(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
