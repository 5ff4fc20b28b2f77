use zookeeper_client::Connector;

use crate::config::{Auth, Login};
use crate::error::Failure;

/// Has the session log in, each time that it connects.
pub(crate) fn log_in(connector: Connector, login: &Login) -> Result<Connector, Failure> {
    match login.auth {
        Auth::Digest => {
            let identity = format!("{}:{}", login.username, login.password);
            Ok(connector.with_auth("digest", identity.as_bytes()))
        }
        Auth::Sasl => sasl(connector, login),
    }
}

#[cfg(feature = "sasl")]
#[expect(clippy::unnecessary_wraps, reason = "it fails without the feature")]
fn sasl(connector: Connector, login: &Login) -> Result<Connector, Failure> {
    use zookeeper_client::SaslOptions;

    let (username, password) = (login.username.clone(), login.password.clone());
    Ok(connector.with_sasl(SaslOptions::digest_md5(username, password)))
}

#[cfg(not(feature = "sasl"))]
fn sasl(_: Connector, _: &Login) -> Result<Connector, Failure> {
    let message = "this program is built without the feature \"sasl\" of lock-zk";
    Err(crate::error::Cause::Config(message.to_owned()).into())
}
