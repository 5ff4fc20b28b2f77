//! What MariaDB 10.11 and its clients say to each other, cut at every byte.

use super::super::protocol::{Parsed, Protocol, ReplyFate, Said};
use super::MySql;

#[test]
fn a_login_passes_packet_by_packet() {
    let wire = MySql::default();
    answers(
        &wire,
        &packet(0, b"\n5.5.5-10.11.19-MariaDB\0\x03\0\0\0d5x}"),
    );
    asks(&wire, &packet(1, &can(MARIADB, CACHED)), &["LOGIN"]);
    answers(&wire, &packet(2, b"\xfemysql_native_password\0salt"));
    asks(&wire, &packet(3, b"scrambled"), &["LOGIN"]);
    answers(&wire, &packet(4, b"\0\0\0\x02@\0\0\0"));
    asks(&wire, &packet(0, b"\x0e"), &["PING"]);
    answers(&wire, &packet(1, b"\0\0\0\x02\0\0\0"));
    asks(&wire, &packet(0, b"\x01"), &["QUIT"]);
}

#[test]
fn what_is_encrypted_passes_as_bytes() {
    let wire = MySql::default();
    answers(
        &wire,
        &packet(0, b"\n5.5.5-10.11.19-MariaDB\0\x03\0\0\0d5x}"),
    );
    asks(&wire, &packet(1, &can(OTHER | TLS, 0)[..32]), &["LOGIN"]);
    assert!(matches!(
        wire.request(b"\x16\x03\x01\x02\0\x01\0"),
        Parsed::Foreign
    ));
    assert!(matches!(
        wire.reply(b"\x16\x03\x03\0z\x02\0"),
        Parsed::Foreign
    ));
}

#[test]
fn statements_without_rows_and_errors_end_at_once() {
    let wire = begun(MARIADB, CACHED);
    asks(&wire, &packet(0, b"\x03DO 1"), &["QUERY", "DO 1"]);
    answers(
        &wire,
        b".\0\0\x01\0\x02\0\x02\0\0\0&Records: 2  Duplicates: 0  Warnings: 0",
    );
    asks(
        &wire,
        &packet(0, b"\x03SELECT bad"),
        &["QUERY", "SELECT bad"],
    );
    answers(
        &wire,
        b")\0\0\x01\xff\x1e\x04#42S22Unknown column 'bad' in 'SELECT'",
    );
}

/// `SELECT 1; SELECT 'a', 'b'; DO 1` by the client of MariaDB.
#[test]
fn a_reply_has_all_results_of_a_message() {
    let wire = begun(MARIADB, CACHED);
    asks(&wire, &packet(0, b"\x03SELECT 1;"), &["QUERY", "SELECT 1;"]);
    answers(&wire, SEVERAL);
}

const SEVERAL: &[u8] =
    b"\x02\0\0\x01\x01\x01\x18\0\0\x02\x03def\0\0\0\x011\0\0\x0c?\0\x01\0\0\0\x03\x81\0\0\0\0\
    \x05\0\0\x03\xfe\0\0\x0a\0\x02\0\0\x04\x011\x05\0\0\x05\xfe\0\0\x0a\0\
    \x02\0\0\x06\x02\x01\x18\0\0\x07\x03def\0\0\0\x01a\0\0\x0c!\0\x03\0\0\0\xfd\x01\0'\0\0\
    \x18\0\0\x08\x03def\0\0\0\x01b\0\0\x0c!\0\x03\0\0\0\xfd\x01\0'\0\0\x05\0\0\x09\xfe\0\0\x0a\0\
    \x04\0\0\x0a\x01a\x01b\x05\0\0\x0b\xfe\0\0\x0a\0\x07\0\0\x0c\0\0\0\x02\0\0\0";

/// A client that needs no ends of columns.
#[test]
fn results_end_with_what_ends_a_statement_without_rows() {
    let wire = begun(OTHER | SHORT_ENDS, 0);
    asks(&wire, &packet(0, b"\x03SELECT 1"), &["QUERY", "SELECT 1"]);
    let result = |first, status: u8| {
        let rows: [&[u8]; 5] = [b"\x01", b"\x03def\0\0\0\x011", b"\x011", b"\0ab", b"\xfb"];
        let end = [0xfe, 0, 0, status, 0, 0, 0];
        let rows = rows.into_iter().chain([&end[..]]);
        let packets = (first..).zip(rows);
        packets
            .flat_map(|(number, row)| packet(number, row))
            .collect::<Vec<_>>()
    };
    answers(&wire, &[result(1, 0x0a), result(7, 0x02)].concat());
    // An error may end the rows.
    asks(&wire, &packet(0, b"\x03SELECT 1"), &["QUERY", "SELECT 1"]);
    let mut result = result(1, 0x02);
    result.truncate(result.len() - 11);
    result.extend(packet(6, b"\xff\x25\x05#70100interrupted"));
    answers(&wire, &result);
}

#[test]
fn a_statement_is_known_by_its_text() {
    for (can, more) in [(OTHER | SHORT_ENDS, 0), (OTHER, 0), (MARIADB, CACHED)] {
        let wire = begun(can, more);
        asks(
            &wire,
            &packet(0, b"\x16SELECT ?, ?"),
            &["PREPARE", "SELECT ?, ?"],
        );
        let (column, end) = (packet(2, b"\x03def"), packet(3, b"\xfe\0\0\x02\0"));
        let end = if can & SHORT_ENDS == 0 {
            end
        } else {
            Vec::new()
        };
        let prepared = packet(1, b"\0\x07\0\0\0\x01\0\x02\0\0\0\0");
        let twice = [&column[..], &column, &end].concat();
        answers(&wire, &[&prepared[..], &twice, &column, &end].concat());
        let words = ["EXECUTE", "SELECT ?, ?", "\0\x01\0\0\0two values"];
        asks(
            &wire,
            &packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0two values"),
            &words,
        );
        let last = if can & SHORT_ENDS == 0 {
            packet(5, b"\xfe\0\0\x02\0")
        } else {
            packet(5, b"\xfe\0\0\x02\0\0\0")
        };
        let columns = if more == 0 {
            [packet(1, b"\x01"), column].concat()
        } else {
            packet(1, b"\x01\0")
        };
        answers(
            &wire,
            &[&columns[..], &end, &packet(4, b"\0\0row"), &last].concat(),
        );
        asks(
            &wire,
            &packet(0, b"\x19\x07\0\0\0"),
            &["CLOSE", "SELECT ?, ?"],
        );
        asks(&wire, &packet(0, b"\x16?"), &["PREPARE", "?"]);
        answers(&wire, &packet(1, b"\xff\x28\x04#42000wrong"));
        asks(&wire, &packet(0, b"\x17\x07\0\0\0"), &["EXECUTE", "", ""]);
    }
}

#[test]
fn other_commands_have_a_number() {
    let wire = begun(OTHER, 0);
    asks(&wire, &packet(0, b"\x1f"), &["COM31"]);
    answers(&wire, &packet(1, b"\0\0\0\x02\0\0\0"));
    asks(&wire, &packet(0, b"\x04t\0"), &["COLUMNS"]);
    answers(
        &wire,
        &[packet(1, b"\x03def"), packet(2, b"\xfe\0\0\x02\0")].concat(),
    );
}

/// A connection that is past its login.
fn begun(flags: u32, more: u32) -> MySql {
    let wire = MySql::default();
    answers(
        &wire,
        &packet(0, b"\n5.5.5-10.11.19-MariaDB\0\x03\0\0\0d5x}"),
    );
    asks(&wire, &packet(1, &can(flags, more)), &["LOGIN"]);
    answers(&wire, &packet(2, b"\0\0\0\x02@\0\0\0"));
    wire
}

/// The first packet of a client.
fn can(flags: u32, more: u32) -> Vec<u8> {
    let (flags, more) = (flags.to_le_bytes(), more.to_le_bytes());
    let parts: [&[u8]; 6] = [
        &flags,
        b"\0\0\0\x10",
        b"!",
        &[0; 19],
        &more,
        b"test\0\x04hash",
    ];
    parts.concat()
}

fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).expect("it is short");
    [&[length, 0, 0, number], body].concat()
}

/// Sends a request whose bytes come one by one.
fn asks(wire: &MySql, bytes: &[u8], words: &[&str]) {
    for length in 0..bytes.len() {
        assert!(matches!(wire.request(&bytes[..length]), Parsed::Incomplete));
    }
    let Parsed::Whole(request, length) = wire.request(&[bytes, b"\x01\0"].concat()) else {
        panic!("{words:?} is no request");
    };
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    assert_eq!(request.args.iter().map(text).collect::<Vec<_>>(), words);
    assert_eq!(length, bytes.len());
    wire.sent(request.ticket, ReplyFate::Arrives);
}

/// Sends a reply whose bytes come one by one.
fn answers(wire: &MySql, bytes: &[u8]) {
    for length in 0..bytes.len() {
        assert!(
            matches!(wire.reply(&bytes[..length]), Parsed::Incomplete),
            "{length}"
        );
    }
    match wire.reply(&[bytes, b"\x05\0"].concat()) {
        Parsed::Whole(Said::Reply(_), length) if length == bytes.len() => {}
        _ => panic!("another reply than {:?}", bytes.escape_ascii().to_string()),
    }
}

const TLS: u32 = 1 << 11;
const MARIADB: u32 = 0;
const OTHER: u32 = 1;
const SHORT_ENDS: u32 = 1 << 24;
const CACHED: u32 = 1 << 4;
