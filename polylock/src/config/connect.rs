//! Opens the backends of a configuration, and holds their capabilities against what is demanded.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use lock_core::{DistributedLock, Error, ErrorKind, Result};

use super::Config;
use super::class::ConfiguredLocks;
use super::locks::{Locks, Open};
use super::requirement::Requirement;
use super::settings::{BackendSettings, ClassSettings};
use super::words::list;

/// Opens what is used, all at the same time.
pub(super) async fn connect(config: &Config) -> Result<Locks> {
    let used: Vec<_> = config
        .backends()
        .filter(|backend| backend.is_opened)
        .collect();
    let opening = used.iter().map(|backend| open(config, backend));
    let opened = together(opening.collect()).await;
    let mut backends = BTreeMap::new();
    let mut wrong = Vec::new();
    for (backend, opened) in used.iter().zip(opened) {
        match opened {
            Ok(locks) => {
                let locks = ConfiguredLocks::new(locks, backend.terms.clone(), None);
                backends.insert(backend.name().to_owned(), locks);
            }
            Err(error) => wrong.push(named(backend, error)),
        }
    }
    let closed = config.backends().filter(|backend| !backend.is_opened);
    let closed: Vec<_> = closed.map(|backend| backend.name().to_owned()).collect();
    let mut classes = BTreeMap::new();
    for class in config.classes().filter(|class| class.is_opened) {
        let Some(backend) = backends.get(class.backend()) else {
            continue;
        };
        wrong.extend(unmet(class, &backends, &closed));
        let name: Arc<str> = class.name().into();
        let locks = Arc::clone(backend.locks());
        let locks = ConfiguredLocks::new(locks, class.terms.clone(), Some(name));
        classes.insert(class.name().to_owned(), locks);
    }
    if let Some(error) = merged(wrong) {
        return Err(error);
    }
    Ok(Locks::new(Open {
        default: config.default_backend().map(str::to_owned),
        backends,
        closed,
        classes,
    }))
}

async fn open(config: &Config, backend: &BackendSettings) -> Result<Arc<dyn DistributedLock>> {
    let url = backend
        .url()
        .ok_or_else(|| Error::new(ErrorKind::InvalidConfig, "there is no URL"))?;
    let Some(from) = backend.migrate_from() else {
        return config.registry.connect(url.expose()).await;
    };
    let old = config.backends().find(|old| old.name() == from);
    let old = old.and_then(BackendSettings::url).ok_or_else(|| {
        let message = format!("the backend {from:?} has no URL");
        Error::new(ErrorKind::InvalidConfig, message)
    })?;
    let (old, new) = (old.expose(), url.expose());
    config.registry.connect_migrating(old, new).await
}

/// Runs all of the futures, and gives their outputs in their order.
async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<(Pin<Box<F>>, Option<F::Output>)> = futures
        .into_iter()
        .map(|future| (Box::pin(future), None))
        .collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    running
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

fn named(backend: &BackendSettings, error: Error) -> Error {
    let message = format!("the backend {:?} cannot be opened: {error}", backend.name());
    let kind = error.kind();
    match std::error::Error::source(&error) {
        Some(_) => Error::new(kind, message).with_source(Below(error)),
        None => Error::new(kind, message),
    }
}

/// An error whose message is told already, for the sake of its causes.
#[derive(Debug)]
struct Below(Error);

impl std::fmt::Display for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Below {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

/// What a class demands and its backend does not have, and who has it.
fn unmet(
    class: &ClassSettings,
    backends: &BTreeMap<String, ConfiguredLocks>,
    closed: &[String],
) -> Option<Error> {
    let meets = |locks: &ConfiguredLocks, requirement: Requirement| {
        requirement.is_met_by(&locks.capabilities())
    };
    let has = &backends[class.backend()];
    let lacking: Vec<_> = class
        .require()
        .filter(|demand| !meets(has, *demand))
        .collect();
    if lacking.is_empty() {
        return None;
    }
    let suits = |locks: &ConfiguredLocks| class.require().all(|demand| meets(locks, demand));
    let others = backends.iter().filter(|(_, locks)| suits(locks));
    let others = others.map(|(name, _)| name.as_str());
    let closed = match closed.is_empty() {
        true => String::new(),
        false => format!("; not asked, because nobody uses them: {}", list_of(closed)),
    };
    let message = format!(
        "the class {:?} requires {}, which {} of its backend {:?} does not have (backends that have \
         all it requires: {}{closed})",
        class.name(),
        list(lacking.iter().map(|demand| demand.name())),
        has.capabilities().backend,
        class.backend(),
        list(others),
    );
    Some(Error::new(ErrorKind::Unsupported, message))
}

fn list_of(names: &[String]) -> String {
    list(names.iter().map(String::as_str))
}

/// One error for all.
fn merged(mut errors: Vec<Error>) -> Option<Error> {
    if errors.len() < 2 {
        return errors.pop();
    }
    let messages: Vec<_> = errors.iter().map(Error::message).collect();
    let message = messages.join("; ");
    Some(Error::new(errors[0].kind(), message))
}
