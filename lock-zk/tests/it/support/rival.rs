use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::SOON;

/// Ends a session as ZooKeeper's own clients do, from a connection of its own with the id and the
/// password of the session.
pub(crate) fn end_session(port: u16, session: i64) {
    // Its own client comes back at once, and takes the session away from this connection.
    for _ in 0..50 {
        if ends(port, session).unwrap_or(false) {
            return;
        }
    }
    panic!("the session does not end");
}

fn ends(port: u16, session: i64) -> io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    let hello = [
        &[0; 12][..],
        &4_000_i32.to_be_bytes(),
        &session.to_be_bytes(),
        &16_i32.to_be_bytes(),
        &password(session),
        &[0],
    ];
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()];
    let frames = [frame(&hello.concat()), frame(&close.concat())];
    stream.write_all(&frames.concat())?;
    let answer = receive(&mut stream)?;
    // There is no such session any more.
    if answer[8..16] == [0; 8] {
        return Ok(true);
    }
    receive(&mut stream)?;
    Ok(true)
}

/// Servers make the password of a session from its id, by the generator of `java.util.Random`.
fn password(session: i64) -> [u8; 16] {
    const SECRET: i64 = 0xB341_5C00;
    const MASK: i64 = (1 << 48) - 1;
    let mut seed = (session ^ SECRET ^ 0x5_DEEC_E66D) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_mut(4) {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        chunk.copy_from_slice(&(seed >> 16).to_le_bytes()[..4]);
    }
    password
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("it is short");
    [&length.to_be_bytes(), body].concat()
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = i32::from_be_bytes(length);
    let mut body = vec![0; usize::try_from(length).expect("a length")];
    stream.read_exact(&mut body)?;
    Ok(body)
}
