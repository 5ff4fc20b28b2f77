//! Locks at the server that the options of an application name.

use async_trait::async_trait;
use polylock_core::{Credentials, DistributedLockExt as _, ErrorKind, LockUrl, Login};
use polylock_sql::{SqlConfig, SqlLock, SqlMode};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::server::support::{
    Kind, Mode, Site, assert_free, assert_taken, everywhere, leases, take,
};

/// A configuration of the same locks as those of the site.
fn config(site: &Site, options: &str) -> SqlConfig {
    let config = match site.kind() {
        Kind::MariaDb => {
            let options: MySqlConnectOptions = options.parse().expect("a URL");
            SqlConfig::from_mysql_options(&options)
        }
        Kind::Postgres => {
            let options: PgConnectOptions = options.parse().expect("a URL");
            SqlConfig::from_postgres_options(&options)
        }
    };
    let config = config.with_mode(match site.mode {
        Mode::Advisory => SqlMode::Advisory,
        Mode::Lease => SqlMode::Lease,
        Mode::Row => SqlMode::Row,
    });
    config.with_table(&site.table).expect("it is a name")
}

async fn options_of_the_application_lead_to_the_same_locks(site: Site) {
    let config = config(&site, &site.plain_url());
    let locks = SqlLock::connect(config).await.expect("it gets in");
    let guard = take(&locks, "job").await;
    assert_taken(&site, "job").await;
    guard.release().await.expect("it is held");
    assert_free(&site, "job").await;
}

everywhere!(options_of_the_application_lead_to_the_same_locks);

/// The password of the server's user, which the options have not.
#[derive(Debug)]
struct Password(String);

#[async_trait]
impl Credentials for Password {
    async fn login(&self) -> polylock_core::Result<Login> {
        Ok(Login::new().with_password(&self.0))
    }
}

async fn a_login_takes_the_place_of_that_of_the_options(site: Site) {
    let plain = site.plain_url();
    let url = LockUrl::parse(&plain).expect("a URL");
    let password = url.password().expect("there is one").to_owned();
    let wrong = plain.replacen(&format!(":{password}@"), ":wr0ng@", 1);
    assert_ne!(wrong, plain);

    let refused = SqlLock::connect(config(&site, &wrong)).await;
    let error = refused.expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let right = config(&site, &wrong).with_credentials(Password(password));
    assert!(!format!("{right:?}").contains("wr0ng"), "{right:?}");
    let locks = SqlLock::connect(right).await.expect("it gets in");
    assert!(locks.try_lock("job").await.expect("it answers").is_some());
}

leases!(a_login_takes_the_place_of_that_of_the_options);

async fn tls_is_for_the_options_to_say(site: Site) {
    let refused = SqlLock::connect(config(&site, &site.plain_url()).with_tls()).await;
    let error = refused.expect_err("it is said twice");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
}

leases!(tls_is_for_the_options_to_say);
