//! MySQL in the place of MariaDB: `LOCK_TESTKIT_MYSQLD` names its server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use super::process::Account;
use super::template::DATA;
use crate::command::run;

pub(super) fn server() -> Option<PathBuf> {
    env::var_os("LOCK_TESTKIT_MYSQLD").map(PathBuf::from)
}

/// Makes the data of a server in an empty directory of the account's.
pub(super) fn make_data(server: &Path, account: &Account, draft: &Path) -> io::Result<()> {
    let statements = draft.join("statements.sql");
    fs::write(&statements, STATEMENTS)?;
    let mut install: Command = account.command(server, draft);
    install.args(["--no-defaults", "--initialize-insecure"]);
    install.arg(format!("--datadir={}", draft.join(DATA).display()));
    install.arg(format!("--init-file={}", statements.display()));
    run(install.args(ARGUMENTS), "").map(drop)
}

/// What MariaDB is by default, or does not know.
pub(super) const ARGUMENTS: [&str; 3] = [
    "--innodb_redo_log_capacity=8M",
    "--mysqlx=OFF",
    "--skip-log-bin",
];

/// One a line.
pub(super) const STATEMENTS: &str = r"
ALTER USER root@localhost IDENTIFIED BY 'root';
CREATE USER root@127.0.0.1 IDENTIFIED BY 'root';
GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;
CREATE DATABASE test;
CREATE USER test@'%' IDENTIFIED BY 'test';
GRANT ALL ON test.* TO test@'%';
GRANT ALL ON `test\_%`.* TO test@'%';
";
