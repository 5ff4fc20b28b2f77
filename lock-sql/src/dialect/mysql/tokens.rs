//! Fencing tokens from a counter beside the table: a sequence on MariaDB, a table with `AUTO_INCREMENT`
//! on MySQL, which has no sequences.
//!
//! Neither is part of a transaction: a number stays drawn when the insert is rolled back. Numbers not
//! yet written to the disk are lost in a crash, with every session. So each new session raises the
//! counter to the clock of the server before it acquires a lock. Below a million tokens a second, the
//! counter stays behind that clock. Neither `SETVAL` nor the insert of a smaller number lowers the
//! counter.

use super::NOW;
use crate::dialect::sequence;
use crate::session::statements::got;
use crate::wire::Flavor;

/// Raises the counter for a new session, as statements.
pub(crate) fn raise(table: &str, flavor: Flavor) -> String {
    let sequence = sequence(table);
    match flavor {
        // It takes a number and no expression.
        Flavor::MariaDb => {
            format!("EXECUTE IMMEDIATE CONCAT('SELECT SETVAL({sequence}, ', {NOW}, ')')")
        }
        Flavor::MySql => format!(
            "START TRANSACTION; INSERT IGNORE INTO {sequence} (id) VALUES ({NOW}); ROLLBACK"
        ),
    }
}

/// Draws a token inside of a transaction: statements that come before, and the token as an
/// expression.
pub(crate) fn draw(table: &str, flavor: Flavor) -> (String, String) {
    let sequence = sequence(table);
    match flavor {
        Flavor::MariaDb => (String::new(), format!("NEXTVAL({sequence})")),
        Flavor::MySql => (
            format!("INSERT INTO {sequence} () VALUES ();"),
            "CAST(LAST_INSERT_ID() AS SIGNED)".to_owned(),
        ),
    }
}

/// Draws the first and the last token of a block for hand-overs; the first is
/// [`ELSEWHERE`](got::ELSEWHERE) unless the statement runs `here`. Other keys may get some between them; this key gets
/// none before its lock is released. A transaction is open or begins with it.
pub(crate) fn draw_block(table: &str, count: u64, flavor: Flavor, here: &str) -> String {
    let (sequence, more) = (sequence(table), count - 1);
    let select = format!(
        "SELECT CAST(IF({here}, @polylock_token, {}) AS SIGNED), CAST(@polylock_last AS SIGNED)",
        got::ELSEWHERE
    );
    match flavor {
        Flavor::MariaDb => format!(
            "SET @polylock_token = NEXTVAL({sequence});
             SET @polylock_last = @polylock_token + {more};
             EXECUTE IMMEDIATE CONCAT('DO SETVAL({sequence}, ', @polylock_last, ')'); {select}"
        ),
        Flavor::MySql => format!(
            "INSERT INTO {sequence} () VALUES ();
             SET @polylock_token = LAST_INSERT_ID();
             SET @polylock_last = @polylock_token + {more};
             INSERT IGNORE INTO {sequence} (id) VALUES (@polylock_last); {select}"
        ),
    }
}

/// Runs statements that draw on MySQL, each with its semicolon, in a transaction that goes on: a row of the
/// counter that stays in it would be locked until its end.
pub(crate) fn in_savepoint(draw: &str) -> String {
    format!(
        "SAVEPOINT polylock_token; {draw} ROLLBACK TO SAVEPOINT polylock_token; \
         RELEASE SAVEPOINT polylock_token;"
    )
}

/// Raises the counter to the clock, and draws a token into `@polylock_token`, in the transaction of
/// the caller. Each server reads its own comments.
///
/// The rows are deleted and not rolled back: with repeatable reads, the default, a rollback leaves a lock on
/// the gap behind the last row, and no other transaction would draw a token before this one ends. Only a
/// client that has the same number, by the clock of the same microsecond, waits for a deleted row.
pub(crate) fn draw_in_transaction(table: &str) -> String {
    let sequence = sequence(table);
    format!(
        "SET @polylock_now = {NOW}; \
         /*M!100300 EXECUTE IMMEDIATE CONCAT('DO SETVAL({sequence}, ', @polylock_now, ')') */ \
         /*!80000 INSERT IGNORE INTO {sequence} (id) VALUES (@polylock_now) */; \
         /*M!100300 SET @polylock_token = NEXTVAL({sequence}) */ \
         /*!80000 INSERT INTO {sequence} () VALUES () */; \
         /*M!100300 DO 0 */ /*!80000 SET @polylock_token = LAST_INSERT_ID() */; \
         /*M!100300 DO 0 */ /*!80000 DELETE FROM {sequence} WHERE id = @polylock_now */; \
         /*M!100300 DO 0 */ /*!80000 DELETE FROM {sequence} WHERE id = @polylock_token */"
    )
}

pub(crate) fn create(table: &str) -> String {
    let sequence = sequence(table);
    format!(
        "CREATE /*M!100300 SEQUENCE */ /*!80000 TABLE */ IF NOT EXISTS {sequence} \
         /*!80000 (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY) */ ENGINE = InnoDB;"
    )
}
