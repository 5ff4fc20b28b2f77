//! What PostgreSQL 15 and `psql` say to each other, cut at every byte.

use super::super::protocol::{Parsed, Protocol, ReplyFate, Said};
use super::Postgres;

#[test]
fn a_start_passes_step_by_step() {
    let wire = Postgres::default();
    asks(&wire, b"\0\0\0\x08\x04\xd2\x16/", &["TLS"]);
    answers(&wire, b"N");
    asks(&wire, b"\0\0\0\x13\0\x03\0\0user\0test\0\0", &["STARTUP"]);
    answers(&wire, b"R\0\0\0\x17\0\0\0\nSCRAM-SHA-256\0\0");
    asks(&wire, b"p\0\0\0\x08n,,n", &["LOGIN"]);
    answers(&wire, b"R\0\0\0\x0c\0\0\0\x0br=yd");
    asks(&wire, b"p\0\0\0\x08c=bi", &["LOGIN"]);
    answers(
        &wire,
        b"R\0\0\0\x0c\0\0\0\x0cv=QFR\0\0\0\x08\0\0\0\0S\0\0\0\x19client_encoding\0UTF8\0Z\0\0\0\x05I",
    );
    asks(&wire, b"Q\0\0\0\x0eSELECT 1;\0", &["QUERY", "SELECT 1;"]);
    answers(
        &wire,
        b"T\0\0\0!\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0D\0\0\0\x0b\0\x01\0\0\0\x011\
          C\0\0\0\rSELECT 1\0Z\0\0\0\x05I",
    );
    asks(&wire, b"X\0\0\0\x04", &["QUIT"]);
}

#[test]
fn a_start_that_fails_ends_with_its_error() {
    let wire = Postgres::default();
    asks(&wire, b"\0\0\0\x13\0\x03\0\0user\0test\0\0", &["STARTUP"]);
    answers(&wire, &message(b'E', b"SFATAL\0C53300\0\0"));
}

#[test]
fn what_is_encrypted_passes_as_bytes() {
    let wire = Postgres::default();
    asks(&wire, b"\0\0\0\x08\x04\xd2\x16/", &["TLS"]);
    answers(&wire, b"S");
    assert!(matches!(
        wire.request(b"\x16\x03\x01\x02\0\x01\0"),
        Parsed::Foreign
    ));
    assert!(matches!(
        wire.reply(b"\x16\x03\x03\0z\x02\0"),
        Parsed::Foreign
    ));
}

/// A statement is named by the text that it was prepared with, however long ago.
#[test]
fn a_statement_is_known_by_its_text() {
    let wire = begun();
    let (sync, ready) = (message(b'S', b""), message(b'Z', b"I"));
    let prepare = [
        message(b'P', b"s1\0SELECT $1\0\0\0"),
        message(b'D', b"Ss1\0"),
    ]
    .concat();
    asks(
        &wire,
        &[&prepare[..], &sync].concat(),
        &["PREPARE", "SELECT $1"],
    );
    let prepared = [
        message(b'1', b""),
        message(b't', b"\0\0"),
        message(b'n', b""),
    ];
    answers(&wire, &[prepared.concat(), ready.clone()].concat());
    let arguments = b"\0s1\0\0\x01\0\x01\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\0";
    let execute = [message(b'B', arguments), message(b'E', b"\0\0\0\0\0")].concat();
    let words = ["EXECUTE", "SELECT $1", "a", ""];
    asks(&wire, &[&execute[..], &sync].concat(), &words);
    answers(&wire, &[message(b'2', b""), ready.clone()].concat());
    let both = [
        message(b'P', b"\0DELETE\0\0\0"),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
    ];
    asks(
        &wire,
        &[&both.concat()[..], &sync].concat(),
        &["EXECUTE", "DELETE"],
    );
    let error = message(b'E', b"SERROR\0C42601\0\0");
    answers(&wire, &[error, ready.clone()].concat());
    asks(&wire, &[message(b'C', b"Ss1\0"), sync].concat(), &["CLOSE"]);
    answers(&wire, &[message(b'3', b""), ready].concat());
}

#[test]
fn replies_follow_their_requests_when_several_are_under_way() {
    let wire = begun();
    asks_with(&wire, b"Q\0\0\0\x0cSELECT\0\0", ReplyFate::Arrives);
    asks_with(&wire, b"Q\0\0\0\x0cSELECT\0\0", ReplyFate::Swallowed);
    assert!(matches!(
        answers(&wire, b"Z\0\0\0\x05I"),
        ReplyFate::Arrives
    ));
    assert!(matches!(
        answers(&wire, b"Z\0\0\0\x05I"),
        ReplyFate::Swallowed
    ));
}

#[test]
fn a_notification_is_a_message_and_within_a_reply_a_part_of_it() {
    let wire = begun();
    let notification = b"A\0\0\0\x0c\0\0\x0cGc\0p\0";
    let Parsed::Whole(Said::Message(items), 13) = wire.reply(notification) else {
        panic!("no message");
    };
    let texts: Vec<_> = items.iter().filter_map(|item| item.text()).collect();
    assert_eq!(texts[..3], ["notification", "c", "p"]);
    asks(
        &wire,
        b"Q\0\0\0\x13NOTIFY c, 'p';\0",
        &["QUERY", "NOTIFY c, 'p';"],
    );
    answers(
        &wire,
        b"C\0\0\0\x0bNOTIFY\0A\0\0\0\x0c\0\0\x0cGc\0p\0Z\0\0\0\x05I",
    );
    // What a server says before it ends a connection answers nothing.
    answers(&wire, &message(b'E', b"SFATAL\0C57P01\0\0"));
}

#[test]
fn data_are_copied_both_ways() {
    let wire = begun();
    asks(&wire, b"Q\0\0\0\x09COPY\0", &["QUERY", "COPY"]);
    answers(&wire, b"G\0\0\0\x09\0\0\x01\0\0");
    asks(&wire, b"d\0\0\0\x061\n", &["COPY"]);
    asks(&wire, b"c\0\0\0\x04", &["COPY"]);
    answers(&wire, b"C\0\0\0\x0bCOPY 1\0");
    answers(&wire, b"Z\0\0\0\x05I");
    asks(&wire, b"Q\0\0\0\x09COPY\0", &["QUERY", "COPY"]);
    answers(
        &wire,
        b"H\0\0\0\x09\0\0\x01\0\0d\0\0\0\x061\nc\0\0\0\x04C\0\0\0\x0bCOPY 1\0Z\0\0\0\x05I",
    );
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(4 + body.len()).expect("it is short");
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A connection that is past its start.
fn begun() -> Postgres {
    let wire = Postgres::default();
    asks(&wire, b"\0\0\0\x13\0\x03\0\0user\0test\0\0", &["STARTUP"]);
    answers(&wire, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
    wire
}

/// Sends a request whose bytes come one by one.
fn asks(wire: &Postgres, bytes: &[u8], words: &[&str]) {
    for length in 0..bytes.len() {
        assert!(matches!(wire.request(&bytes[..length]), Parsed::Incomplete));
    }
    let Parsed::Whole(request, length) = wire.request(&[bytes, b"Q"].concat()) else {
        panic!("{words:?} is no request");
    };
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    assert_eq!(request.args.iter().map(text).collect::<Vec<_>>(), words);
    assert_eq!(length, bytes.len());
    wire.sent(request.ticket, ReplyFate::Arrives);
}

fn asks_with(wire: &Postgres, bytes: &[u8], fate: ReplyFate) {
    let Parsed::Whole(request, _) = wire.request(bytes) else {
        panic!("no request");
    };
    wire.sent(request.ticket, fate);
}

/// Sends a reply whose bytes come one by one.
fn answers(wire: &Postgres, bytes: &[u8]) -> ReplyFate {
    for length in 0..bytes.len() {
        assert!(matches!(wire.reply(&bytes[..length]), Parsed::Incomplete));
    }
    match wire.reply(&[bytes, b"Z"].concat()) {
        Parsed::Whole(Said::Reply(fate), length) if length == bytes.len() => fate,
        _ => panic!("another reply than {:?}", bytes.escape_ascii().to_string()),
    }
}
