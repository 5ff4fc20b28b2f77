//! The backend from a configuration file.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use polylock::DistributedLock;
use polylock::config::{Config, ConfigErrors, Loader, LockSettings, Scope, SecretUrl};
use polylock::layers::Observer;

use crate::args::GlobalArgs;
use crate::exit::Exit;
use crate::output::{CommandFailure, escaped, path_text, quoted};

/// Looks up variables of the environment.
pub(crate) trait Env: Fn(&str) -> Option<OsString> + Clone + Send + Sync + 'static {}

impl<F: Fn(&str) -> Option<OsString> + Clone + Send + Sync + 'static> Env for F {}

/// A backend of a file.
#[derive(Debug)]
pub(super) struct FromFile {
    config: Config,
    pub(super) class: Option<String>,
    /// Whether each lock is acquired on another backend as well.
    pub(super) migrates: bool,
    /// The URL of that backend.
    pub(super) old_url: Option<SecretUrl>,
    /// The options that lead here, as they are written in a shell.
    pub(super) options: String,
}

impl FromFile {
    /// Loads the file, and takes the backend of `--class`, else the default one.
    pub(super) fn choose(
        args: &GlobalArgs,
        path: &Path,
        env: impl Env,
    ) -> Result<(String, LockSettings, Self), CommandFailure> {
        let is_ambient = env("LOCK_CONFIG").as_deref() == Some(path.as_os_str());
        let class = args.class.clone();
        let scope = class.clone().map_or(Scope::Default, Scope::Class);
        let config = loader(args, env).with_scope(scope).load(path);
        let config = config.map_err(|errors| failure(&errors))?;
        let mut classes = config.classes().iter();
        let of_class = classes.find(|known| Some(&known.name) == class.as_ref());
        let name = match of_class {
            Some(class) => Some(class.backend.as_str()),
            None => config.default_backend(),
        };
        let mut backends = config.backends().iter();
        let backend = backends.find(|known| Some(known.name.as_str()) == name);
        let Some((backend, Some(url))) = backend.map(|known| (known, &known.url)) else {
            let names = config.backends().iter().map(|known| known.name.as_str());
            let names: Vec<_> = names.collect();
            let message = format!("{} names no default backend", escaped(&path_text(path)));
            let hint = format!("give --default-backend NAME, one of {}", names.join(", "));
            return Err(CommandFailure::new(Exit::Config, message).with_hint(hint));
        };
        let lock_settings = of_class.map_or(backend.lock_settings, |class| class.lock_settings);
        let url = url.expose().to_owned();
        let options = options(args, Some(path).filter(|_| !is_ambient));
        let old = backend.migrate_from.as_deref();
        let mut backends = config.backends().iter();
        let old_url = backends.find(|known| Some(known.name.as_str()) == old);
        let file = Self {
            migrates: old.is_some(),
            old_url: old_url.and_then(|known| known.url.clone()),
            config,
            class,
            options,
        };
        Ok((url, lock_settings, file))
    }

    /// Connects, and refuses a backend that lacks what the class requires.
    pub(super) async fn connect(
        &self,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<dyn DistributedLock>, CommandFailure> {
        let mut config = self.config.clone();
        if let Some(observer) = observer {
            config = config.with_observer(observer);
        }
        let locks = config.connect().await?;
        let locks = match &self.class {
            Some(class) => locks.class(class)?.locks(),
            None => locks.default_backend()?.locks(),
        };
        Ok(Arc::clone(locks))
    }
}

/// What the command line and the environment say, for any file.
pub(crate) fn loader(args: &GlobalArgs, env: impl Env) -> Loader {
    let mut loader = Loader::new().with_environment(env);
    if let Some(name) = &args.default_backend {
        loader = loader.with_default_backend(name);
    }
    if let Some(namespace) = &args.namespace {
        loader = loader.with_namespace(namespace);
    }
    loader
}

/// The errors as the end of a command.
pub(crate) fn failure(errors: &ConfigErrors) -> CommandFailure {
    let mut message = escaped(&errors.summary());
    for line in errors.to_string().lines() {
        message += "\n  ";
        message += &escaped(line);
    }
    CommandFailure::new(Exit::Config, message)
}

/// The file that is asked for.
pub(super) fn path(args: &GlobalArgs) -> Option<&Path> {
    let path = args.config.as_deref();
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Refuses options that say something of a file that is not read.
pub(super) fn check(args: &GlobalArgs, reads_file: bool) -> Result<(), CommandFailure> {
    let option = match (&args.default_backend, &args.class) {
        // A URL wins over the name of a backend, and says nothing of a class.
        (Some(_), None) if reads_file => "--default-backend",
        (_, Some(_)) => "--class",
        _ => return Ok(()),
    };
    if reads_file && path(args).is_some() {
        return Ok(());
    }
    let message = format!("{option} names a part of a configuration file, and none is read");
    Err(CommandFailure::new(Exit::Usage, message).with_hint("give --config FILE, and no --backend"))
}

/// What the environment says of ttl, wait and holds, and its namespace, where there is no file.
pub(super) fn ambient(
    args: &GlobalArgs,
    env: impl Env,
) -> Result<(LockSettings, Option<String>), CommandFailure> {
    let reads_namespace = args.namespace.is_none();
    let without_url = move |name: &str| match name {
        "LOCK_DEFAULT_BACKEND" | "LOCK_URL" => None,
        "LOCK_KEY_NAMESPACE" if !reads_namespace => None,
        name if name.starts_with("LOCK_BACKEND_") => None,
        _ => env(name),
    };
    let loader = Loader::new().with_environment(without_url);
    let config = loader.with_url("memory:").without_file();
    // Each line names its variable, and there is no file to name.
    let config = config.map_err(|errors| {
        let lines: Vec<_> = errors
            .all()
            .iter()
            .map(|error| escaped(&error.to_string()))
            .collect();
        CommandFailure::new(Exit::Config, lines.join("\n  "))
    })?;
    let Some(backend) = config.backends().first() else {
        return Ok((LockSettings::default(), None));
    };
    let namespace = backend.url.as_ref().and_then(|url| {
        let mut params = url.url().params();
        params.string("namespace").map(str::to_owned)
    });
    Ok((backend.lock_settings, namespace))
}

fn options(args: &GlobalArgs, path: Option<&Path>) -> String {
    let path = path.map(|path| path.as_os_str().to_string_lossy().into_owned());
    let options = [
        ("config", path.as_ref()),
        ("default-backend", args.default_backend.as_ref()),
        ("class", args.class.as_ref()),
        ("namespace", args.namespace.as_ref()),
    ];
    options
        .iter()
        .filter_map(|(name, value)| Some(format!(" --{name} {}", quoted((*value)?))))
        .collect()
}
