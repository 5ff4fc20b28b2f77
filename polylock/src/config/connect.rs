//! Opens the backends of a configuration, and compares their capabilities with the requirements.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use lock_core::{DistributedLock, Error, ErrorKind, Result};

use super::Config;
use super::class::ConfiguredLocks;
use super::locks::{Locks, Open};
use super::requirement::Requirement;
use super::settings::{BackendSettings, ClassSettings};
use super::suggest::list;

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
                let locks = ConfiguredLocks::new(locks, backend.lock_settings.clone(), None);
                backends.insert(backend.name().to_owned(), locks);
            }
            Err(error) => wrong.push(unopened(backend, error)),
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
        let locks = ConfiguredLocks::new(locks, class.lock_settings.clone(), Some(name));
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
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        match outputs.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// Something that went wrong, and what caused it.
struct Wrong {
    kind: ErrorKind,
    message: String,
    cause: Option<Error>,
}

fn unopened(backend: &BackendSettings, error: Error) -> Wrong {
    Wrong {
        kind: error.kind(),
        message: format!("the backend {:?} cannot be opened", backend.name()),
        cause: Some(error),
    }
}

/// The requirements of a class that its backend does not meet, and the backends that do.
fn unmet(
    class: &ClassSettings,
    backends: &BTreeMap<String, ConfiguredLocks>,
    closed: &[String],
) -> Option<Wrong> {
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
    Some(Wrong {
        kind: ErrorKind::Unsupported,
        message,
        cause: None,
    })
}

fn list_of(names: &[String]) -> String {
    list(names.iter().map(String::as_str))
}

/// One error for all, with the kind of the first.
fn merged(mut wrong: Vec<Wrong>) -> Option<Error> {
    let kind = wrong.first()?.kind;
    if let [_] = wrong.as_slice() {
        let Wrong { message, cause, .. } = wrong.remove(0);
        let error = Error::new(kind, message);
        return Some(match cause {
            Some(cause) => error.with_source(cause),
            None => error,
        });
    }
    let messages = wrong.iter().map(|wrong| match &wrong.cause {
        Some(cause) => format!("{}: {cause}", wrong.message),
        None => wrong.message.clone(),
    });
    let messages: Vec<_> = messages.collect();
    Some(Error::new(kind, messages.join("; ")))
}
