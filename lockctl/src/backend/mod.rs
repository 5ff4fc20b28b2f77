//! Which lock service is used, and under which namespace.

mod file;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use polylock::config::{LockSettings, has_namespace, with_namespace};
use polylock::layers::Observer;
use polylock::{AcquireRequest, DistributedLock, LockUrl};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use crate::args::GlobalArgs;
use crate::exit::Exit;
use crate::output::{CommandFailure, Console, Escaped, escaped, path_text, quoted};

use self::file::FromFile;

pub(crate) use self::file::{Env, failure, loader};

/// The chosen lock service.
pub(crate) struct BackendUrl {
    /// Goes to the library alone.
    text: SecretString,
    url: LockUrl,
    /// The namespace that was asked for, empty if none was.
    pub(crate) namespace: String,
    /// Whether the next call of `lockctl` uses it by default.
    is_default: bool,
    /// Whether the command line has the URL.
    is_option: bool,
    /// What the configuration says of ttl, wait and holds.
    pub(crate) lock_settings: LockSettings,
    /// Where it stands, if it is one of a configuration file.
    file: Option<FromFile>,
}

impl BackendUrl {
    /// Takes `--backend`, else what the configuration file says, else `LOCK_URL`, else a file of
    /// this user; `env` looks up variables.
    pub(crate) fn choose(args: &GlobalArgs, env: impl Env) -> Result<Self, CommandFailure> {
        let is_ambient = args.url().map(OsStr::new) == env("LOCK_URL").as_deref();
        let is_option = args.backend.is_some() && (args.is_backend_option || !is_ambient);
        check_options(args, is_option)?;
        let named = args.url().filter(|url| !url.is_empty());
        file::check(args, !is_option)?;
        let (text, lock_settings, file) = match file::path(args) {
            Some(path) if !is_option => {
                let (url, lock_settings, file) = FromFile::choose(args, path, env)?;
                (url, lock_settings, Some(file))
            }
            _ => {
                let (lock_settings, ambient) = file::ambient(args, env.clone())?;
                let text = match named {
                    Some(url) => url.to_owned(),
                    None => {
                        check_default(&env)?;
                        default_url(&state_dir(&env)?)?
                    }
                };
                let option = args.namespace.as_deref();
                let text = placed(text, option, ambient.as_deref(), is_option);
                (text, lock_settings, None)
            }
        };
        let url = polylock::compiled_in().parse_url(&text)?;
        let namespace = url.params().string("namespace").map(str::to_owned);
        Ok(Self {
            text: text.into(),
            url,
            namespace: namespace.unwrap_or_default(),
            // The next call has the same variables, and reads a file if there is one.
            is_default: is_ambient && file::path(args).is_none(),
            is_option,
            lock_settings,
            file,
        })
    }

    /// Connects to a service that other processes reach; `observer` receives the events of the
    /// locks. If that takes a while, `console` names the service.
    pub(crate) async fn connect(
        &self,
        observer: Option<Arc<dyn Observer>>,
        console: &Console,
    ) -> Result<Arc<dyn DistributedLock>, CommandFailure> {
        check_scheme(self.url.scheme(), self.is_option)?;
        let old = self.file.as_ref().and_then(|file| file.old_url.as_ref());
        check_password_files(&self.url)?;
        old.map_or(Ok(()), |old| check_password_files(old.url()))?;
        let connecting = async {
            match &self.file {
                Some(file) => file.connect(observer).await,
                None => {
                    let registry = polylock::compiled_in();
                    let registry = match observer {
                        Some(observer) => registry.with_observer(observer),
                        None => registry,
                    };
                    let connected = registry.connect(self.text()).await;
                    connected.map_err(CommandFailure::from)
                }
            }
        };
        let mut connecting = pin!(connecting);
        let connected = match timeout(QUIET_CONNECT, connecting.as_mut()).await {
            Ok(connected) => connected,
            Err(_) => {
                console.note(format_args!("connecting to {}", self.url));
                connecting.await
            }
        };
        connected.map_err(|failure| match failure.exit() {
            Exit::Unavailable => {
                let programs = self.programs().into_iter();
                programs.fold(failure, |failure, program| {
                    let hidden = hidden_part(&program);
                    failure.with_hint(format!("`{program} doctor` looks for the cause{hidden}"))
                })
            }
            _ => failure,
        })
    }

    /// The table that has the locks.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn schema(&self) -> Result<polylock::sql::Schema, CommandFailure> {
        let url = polylock::compiled_in().backend_url(self.text())?;
        Ok(polylock::sql::Schema::of(&url)?)
    }

    /// The URL with its password, for the library alone.
    pub(crate) fn text(&self) -> &str {
        self.text.expose_secret()
    }

    /// The URLs of all backends that a lock is acquired on, each with its password.
    pub(crate) fn texts(&self) -> Vec<String> {
        let old = self.file.as_ref().and_then(|file| file.old_url.as_ref());
        let old = old.map(|url| url.expose().to_owned());
        [self.text().to_owned()].into_iter().chain(old).collect()
    }

    /// The request with the name of the class that was asked for.
    pub(crate) fn in_class(&self, request: AcquireRequest) -> AcquireRequest {
        let class = self.file.as_ref().and_then(|file| file.class.as_deref());
        match class {
            Some(class) => request.with_class(class),
            None => request,
        }
    }

    /// Whether each lock is acquired on two backends.
    pub(crate) fn migrates(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.migrates)
    }

    /// Refuses what only one backend can answer where each lock is on two.
    pub(crate) fn check_is_one(&self) -> Result<(), CommandFailure> {
        if !self.migrates() {
            return Ok(());
        }
        let message =
            "each lock is on two backends (`migrate-from`), and this command works with one";
        let hint = "ask each by its own URL, as in lockctl --backend URL list";
        Err(CommandFailure::new(Exit::Config, message).with_hint(hint))
    }

    /// How to call `lockctl` for each backend that a lock is acquired on, without secrets.
    pub(crate) fn programs(&self) -> Vec<String> {
        let by_url = |url: &LockUrl| format!("lockctl --backend {}", quoted(&url.to_string()));
        match (&self.file, self.namespace.as_str()) {
            (Some(file), _) => match &file.old_url {
                Some(old) => [old.url(), &self.url].map(by_url).to_vec(),
                None => vec![format!("lockctl{}", file.options)],
            },
            (None, "") if self.is_default => vec!["lockctl".to_owned()],
            (None, namespace) if self.is_default => {
                vec![format!("lockctl --namespace {}", quoted(namespace))]
            }
            (None, _) => vec![by_url(&self.url)],
        }
    }

    /// Each backend that a lock is acquired on: what goes before the keys on its server, and a number that
    /// is the same for the same locks, without anything secret in it.
    pub(crate) fn stores(&self) -> Vec<(String, u64)> {
        let old = self.file.as_ref().and_then(|file| file.old_url.as_ref());
        let old = old.map(|old| (old.expose(), old.url()));
        let all = [(self.text(), &self.url)].into_iter().chain(old);
        all.map(|(text, url)| (stored_namespace(text, url), store_id(url)))
            .collect()
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendUrl({})", self.url)
    }
}

/// A connection that takes longer is worth a word.
const QUIET_CONNECT: Duration = Duration::from_secs(2);

/// What goes before the keys on the server: the namespace that was asked for, or that of the backend.
fn stored_namespace(text: &str, url: &LockUrl) -> String {
    let backend = polylock::compiled_in().backend_url(text);
    match backend {
        Ok(backend) => backend.namespace().to_owned(),
        Err(_) => {
            let namespace = url.params().string("namespace").map(str::to_owned);
            namespace.unwrap_or_default()
        }
    }
}

/// A number that is the same for the same locks, without anything secret in it.
fn store_id(url: &LockUrl) -> u64 {
    let (kind, port) = kind_and_port(url.scheme());
    let place = match url.expect_file() {
        Ok(file) => canonical(file).display().to_string(),
        Err(_) => {
            let hosts = url.hosts().iter();
            let mut hosts: Vec<_> = hosts
                .map(|host| format!("{}:{}", host.name.to_lowercase(), host.port_or(port)))
                .collect();
            hosts.sort();
            let path = match (kind, url.path().trim_matches('/')) {
                ("redis" | "redis-cluster" | "redlock", "") => "0",
                ("etcd" | "zk", "") => "locks",
                ("postgres", "") => url.username().unwrap_or_default(),
                ("redis-sentinel", path) => path.strip_suffix("/0").unwrap_or(path),
                (_, path) => path,
            };
            format!("{}/{path}", hosts.join(","))
        }
    };
    // Locks in another table or mode are other locks.
    let mut params = url.params();
    let mode = if kind == "sqlite" { "lease" } else { "row" };
    let names = [
        ("database", "0"),
        ("mode", mode),
        ("schema", "public"),
        ("table", "polylock_locks"),
    ];
    let values = names.map(|(name, default)| params.string(name).unwrap_or(default));
    fnv1a(format!("{kind}:{place}?{}", values.join("&")).as_bytes())
}

/// The end of a hint whose URL is incomplete: it hides the password, and all parameters from the first possible secret
/// on.
pub(crate) fn hidden_part(program: &str) -> &'static str {
    match [":***@", "=***"]
        .iter()
        .any(|hidden| program.contains(hidden))
    {
        true => "; *** hides a part of the URL, write it in full",
        false => "",
    }
}

/// Refuses an option that is empty, as an unset variable of a shell leaves it: the next backend in
/// line is not the one that was meant.
fn check_options(args: &GlobalArgs, is_backend_option: bool) -> Result<(), CommandFailure> {
    let is_backend_empty = args.url().is_some_and(str::is_empty);
    let is_config_empty = args.config.as_deref() == Some("".as_ref());
    let empty = match () {
        () if is_backend_option && is_backend_empty => "--backend",
        () if args.is_config_option && is_config_empty => "--config",
        () => return Ok(()),
    };
    let message = format!("{empty} is empty, so lockctl does not know which backend to use");
    Err(CommandFailure::new(Exit::Usage, message).with_hint(format!(
        "check the variable that {empty} is given; without the option a default is used"
    )))
}

/// Refuses the default file where a variable was to name something else.
///
/// To other programs an empty variable is as good as none. Here it would turn a lock of many hosts
/// into one of this user on this host, without a word.
fn check_default(env: impl Fn(&str) -> Option<OsString>) -> Result<(), CommandFailure> {
    let is_empty = |name: &&str| env(name).is_some_and(|value| value.is_empty());
    if let Some(empty) = ["LOCK_URL", "LOCK_CONFIG"].into_iter().find(is_empty) {
        let message =
            format!("{empty} is set and empty, so lockctl does not know which backend to use");
        let hint = format!("give {empty} a value; {UNSET}");
        return Err(CommandFailure::new(Exit::Config, message).with_hint(hint));
    }
    let is_url = |name: &String| {
        let backend = name.strip_prefix("LOCK_BACKEND_");
        backend.is_some_and(|backend| backend.ends_with("_URL"))
    };
    let all = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names = all
        .filter(is_url)
        .chain(["LOCK_DEFAULT_BACKEND".to_owned()]);
    match names.find(|name| env(name).is_some_and(|value| !value.is_empty())) {
        Some(name) => {
            let name = Escaped(&name);
            let message = format!("{name} is for a configuration file, and none is read");
            let hint = format!("give --config FILE, or set LOCK_CONFIG or LOCK_URL; {UNSET}");
            Err(CommandFailure::new(Exit::Config, message).with_hint(hint))
        }
        None => Ok(()),
    }
}

/// The end of a hint that has named a variable.
const UNSET: &str = "unset it to lock in a SQLite file of this user on this host";

/// Refuses a store that ends with this process.
fn check_scheme(scheme: &str, is_option: bool) -> Result<(), CommandFailure> {
    if scheme != "memory" {
        return Ok(());
    }
    let exit = match is_option {
        true => Exit::Usage,
        false => Exit::Config,
    };
    let message = "memory: is a store of one process, and a lock in it excludes no other process";
    Err(CommandFailure::new(exit, message).with_hint(
        "name a server, or a file as in sqlite:PATH: by --backend, by LOCK_URL, or by --default-backend \
         of a configuration file",
    ))
}

/// Refuses a URL whose password is not there at the start. The backend reads it for each connection and calls that
/// unavailable, as the servers are that are away for a while.
fn check_password_files(url: &LockUrl) -> Result<(), CommandFailure> {
    let mut params = url.params();
    for name in ["password-file", "sentinel-password-file"] {
        let Some(path) = params.string(name).map(Path::new) else {
            continue;
        };
        if let Err(e) = check_password_file(path) {
            let message = format!("the {name} {} cannot be read", escaped(&path_text(path)));
            return Err(CommandFailure::new(Exit::Config, message).with_cause(&e));
        }
    }
    Ok(())
}

/// Fails where the backend finds no password, as in an empty file.
fn check_password_file(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        // A pipe can be read only once, by the backend.
        return Ok(());
    }
    match fs::read_to_string(path)?.trim_end_matches(['\r', '\n']) {
        "" => Err(io::Error::other("it is empty")),
        _ => Ok(()),
    }
}

/// `$XDG_STATE_HOME/polylock`, else `$HOME/.local/state/polylock`.
fn state_dir(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CommandFailure> {
    // A relative path in these variables is to be ignored, says the XDG specification.
    let absolute = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("state")));
    base.map(|base| base.join("polylock")).ok_or_else(|| {
        CommandFailure::new(
            Exit::Config,
            "there is no backend, and no home for the default one",
        )
        .with_hint("give --backend URL, or set LOCK_URL, XDG_STATE_HOME or HOME")
    })
}

/// The file of this user, whose directory is made.
fn default_url(dir: &Path) -> Result<String, CommandFailure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| {
        let message = format!("cannot make the directory {}", dir.display());
        CommandFailure::new(Exit::Unavailable, message)
            .with_cause(&e)
            .with_hint("give --backend URL, or set LOCK_URL")
    })?;
    let file = dir.join("locks.db");
    sqlite_url(&file, || {
        let message = format!(
            "the path of the default backend is not UTF-8: {}",
            file.display()
        );
        CommandFailure::new(Exit::Config, message).with_hint("give --backend URL, or set LOCK_URL")
    })
}

/// The URL of a SQLite file, whose path must be UTF-8.
pub(crate) fn sqlite_url(
    file: &Path,
    not_utf8: impl FnOnce() -> CommandFailure,
) -> Result<String, CommandFailure> {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'#').add(b'%').add(b'?').add(b'@');
    let path = utf8_percent_encode(file.to_str().ok_or_else(not_utf8)?, ENCODED);
    Ok(format!("sqlite:{path}"))
}

/// A URL that an argument names, in the namespace that the options or the environment say, as the
/// URL of `--backend` is.
pub(crate) fn in_namespace(
    args: &GlobalArgs,
    env: impl Env,
    url: String,
) -> Result<String, CommandFailure> {
    let (_, ambient) = file::ambient(args, env)?;
    let option = args.namespace.as_deref();
    Ok(placed(url, option, ambient.as_deref(), true))
}

/// As for `Loader::with_url`: what a flag says goes before what a variable says, also in a URL.
fn placed(url: String, option: Option<&str>, ambient: Option<&str>, is_option: bool) -> String {
    match (option, ambient) {
        (Some(namespace), _) => with_namespace(&url, namespace),
        (None, Some(namespace)) if !is_option || !has_namespace(&url) => {
            with_namespace(&url, namespace)
        }
        (None, _) => url,
    }
}

/// Whether a text begins as the URL of a lock service does, also of one whose feature is off.
pub(crate) fn is_url(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else {
        return false;
    };
    let scheme = scheme.to_ascii_lowercase();
    let registry = polylock::compiled_in();
    registry.schemes().any(|known| known == scheme) || kind_and_port(&scheme).1 > 0
}

/// What schemes of one kind of server have in common, and its default port: aliases, and with or without TLS.
fn kind_and_port(scheme: &str) -> (&str, u16) {
    match scheme {
        "etcd" | "etcds" => ("etcd", 2379),
        "mariadb" | "mysql" => ("mysql", 3306),
        "postgres" | "postgresql" => ("postgres", 5432),
        "redis" | "rediss" => ("redis", 6379),
        "redis-cluster" | "redlock" => (scheme, 6379),
        "redis-sentinel" => (scheme, 26379),
        "zk" | "zookeeper" => ("zk", 2181),
        _ => (scheme, 0),
    }
}

/// The path without links and dots; the file itself need not exist.
fn canonical(file: &Path) -> PathBuf {
    let resolved = || {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new(".")).canonicalize().ok()?;
        Some(dir.join(file.file_name()?))
    };
    file.canonicalize()
        .ok()
        .or_else(resolved)
        .unwrap_or_else(|| file.to_owned())
}

/// FNV-1a: the same in every version of every build, unlike the hashes of the standard library.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn choose(args: &[&str], vars: &[(&str, &str)]) -> Result<BackendUrl, CommandFailure> {
        let line = ["lockctl"].iter().chain(args).chain(&["list"]);
        let vars: Vec<_> = vars
            .iter()
            .map(|(k, v)| (k.to_string(), OsString::from(v)))
            .collect();
        let env = move |name: &str| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        BackendUrl::choose(&Cli::parse_from(line).global, env)
    }

    #[test]
    fn the_default_is_a_file_in_the_state_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().join("a b?#%@");
        let vars = [
            ("XDG_STATE_HOME", "relative"),
            ("HOME", home.to_str().unwrap()),
        ];
        let backend = choose(&[], &vars).unwrap();
        let dir = home.join(".local/state/polylock");
        assert_eq!(backend.url.expect_file().unwrap(), dir.join("locks.db"));
        let mode = std::os::unix::fs::PermissionsExt::mode(&dir.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_default_path_that_is_not_utf8_is_a_config_error() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join(OsStr::from_bytes(b"\xff"));
        let failure = default_url(&dir).unwrap_err();
        assert_eq!(failure.exit(), Exit::Config);
        let message = failure.message();
        assert!(
            message.starts_with("the path of the default backend is not UTF-8: "),
            "{message}"
        );
    }

    #[test]
    fn a_namespace_of_the_environment_counts_without_a_file() {
        let namespace = |args: &[&str], url: &str, ambient: &str| {
            let vars = [("LOCK_URL", url), ("LOCK_KEY_NAMESPACE", ambient)];
            let args = [&["--backend", url][..], args].concat();
            choose(&args, &vars).unwrap().namespace
        };
        assert_eq!(namespace(&[], "memory:", "shop"), "shop");
        assert_eq!(namespace(&[], "memory:?namespace=url", "a b"), "a b");
        assert_eq!(namespace(&[], "memory:?namespace=url", ""), "url");
        assert_eq!(
            namespace(&["--namespace", "mine"], "memory:", "shop"),
            "mine"
        );
        // A wrong one that is not used does no harm.
        assert_eq!(
            namespace(&["--namespace", "mine"], "memory:", "a:b"),
            "mine"
        );

        let vars = [("LOCK_KEY_NAMESPACE", "shop")];
        let option = |url: &str| choose(&["--backend", url], &vars).unwrap().namespace;
        assert_eq!(option("memory:"), "shop");
        assert_eq!(option("memory:?namespace=url"), "url");
        let wrong = choose(&["--backend", "memory:"], &[("LOCK_KEY_NAMESPACE", "a:b")]);
        assert_eq!(wrong.unwrap_err().exit(), Exit::Config);
    }

    #[test]
    fn the_same_file_is_the_same_service_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let id = |path: &str| {
            let url = format!("sqlite:{}/{path}", dir.path().display());
            store_id(&choose(&["--backend", &url], &[]).unwrap().url)
        };
        assert_eq!(id("x.db"), id("./x.db"));
        assert_eq!(id("x.db"), id("x.db?mode=lease"));
        assert_ne!(id("x.db"), id("y.db"));
    }

    #[test]
    fn the_same_locks_have_one_id_and_others_another() {
        let id = |url: &str| store_id(&choose(&["--backend", url], &[]).unwrap().url);
        for (one, other) in [
            ("postgres://u@h/d", "postgresql://v@h:5432/d?schema=public"),
            (
                "postgres://u@h/d?mode=row",
                "postgres://u@h/d?table=polylock_locks",
            ),
            ("mysql://u@h/d", "mariadb://u@h:3306/d"),
            ("zk://a,b", "zookeeper://b:2181,a:2181/locks"),
            ("redis://c", "redis://C:6379/0"),
            ("redis-sentinel://s/m", "redis-sentinel://s:26379/m/0"),
            ("postgres://d@h", "postgres://u@h/d"),
        ] {
            assert_eq!(id(one), id(other), "{one} {other}");
        }
        for (one, other) in [
            ("postgres://u@h/d?schema=a", "postgres://u@h/d?schema=b"),
            (
                "postgres://u@h/d?mode=lease",
                "postgres://u@h/d?mode=advisory",
            ),
            ("postgres://u@h/d", "postgres://u@h/d?mode=lease"),
            ("postgres://a@h", "postgres://b@h"),
            ("redis://c/0", "redis://c/1"),
            ("redis-sentinel://s/m", "redis-sentinel://s/m/1"),
            ("redis://c", "redis-sentinel://c:6379/0"),
        ] {
            assert_ne!(id(one), id(other), "{one} {other}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_namespace_of_the_backend_is_the_one_without_another() {
        let stored = |url: &str| {
            choose(&["--backend", url], &[])
                .unwrap()
                .stores()
                .remove(0)
                .0
        };
        assert_eq!(stored("redis://c"), stored("redis://c?namespace=lock"));
        assert_eq!(stored("redis://c?namespace="), "");
    }

    #[test]
    fn hints_call_the_same_service_without_its_password() {
        let programs = |args: &[&str]| choose(args, &[("HOME", "/tmp/never")]).unwrap().programs();
        let args = [
            "--backend",
            "redis://app:s3ntinel@cache",
            "--namespace",
            "a b",
        ];
        assert_eq!(
            programs(&args),
            ["lockctl --backend 'redis://app:***@cache?namespace=a%20b'"]
        );
        assert_eq!(
            programs(&["--backend", "sqlite:x.db"]),
            ["lockctl --backend sqlite:x.db"]
        );
        let url = "redis://app:s3ntinel@cache";
        let backend = choose(&["--backend", url], &[("LOCK_URL", url)]).unwrap();
        assert_eq!(backend.programs(), ["lockctl"]);
        assert!(!format!("{backend:?}").contains("s3ntinel"));
    }
}
