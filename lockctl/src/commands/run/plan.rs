//! What the options of `run` amount to.

use polylock::{AcquireRequest, LockKey, Wait};

use super::RunArgs;
use crate::backend::BackendUrl;
use crate::child::Rules;
use crate::output::Failure;

/// What the options amount to.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) keys: Vec<LockKey>,
    /// The options for all of the keys; its key is the first of them.
    pub(super) request: AcquireRequest,
    pub(super) rules: Rules,
    pub(super) args: RunArgs,
}

impl Plan {
    pub(super) fn new(args: RunArgs, backend: &BackendUrl) -> Result<Self, Failure> {
        args.once.check(&args)?;
        let keys = args.keys.iter().map(|key| args.once.lock_key(key));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        // Without a configuration it waits for ever, and the life of the command is the limit.
        let request = AcquireRequest::new(keys[0].clone())
            .with_wait(Wait::Forever)
            .with_max_hold(None)
            .with_mode(args.mode.mode())
            .with_label(args.command.label());
        let mut request = backend.lock_settings().apply(request);
        let skipping = args.skip_if_held.then_some(Wait::Never);
        if let Some(wait) = args.wait.wanted().or(skipping) {
            request = request.with_wait(wait);
        }
        if let Some(ttl) = args.command.ttl {
            request = request.with_ttl(ttl);
        }
        if let Some(min_hold) = args.min_hold {
            request = request.with_min_hold(min_hold);
        }
        let request = backend.in_class(request);
        request.validate()?;
        let rules = Rules {
            max_run: args.max_run,
            on_lost: args.on_lost,
            ..args.command.rules(request.ttl())?
        };
        Ok(Self {
            keys,
            request,
            rules,
            args,
        })
    }
}
