use super::super::protocol::Parsed;

/// What both sides send once a connection is begun: a letter, a length, and the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn fields(self) -> Fields<'a> {
        Fields(self.body)
    }
}

/// The messages up to and with the first that `ends` them.
pub(super) fn up_to(bytes: &[u8], ends: impl Fn(Message<'_>) -> bool) -> Parsed<Vec<Message<'_>>> {
    let (mut messages, mut rest) = (Vec::new(), bytes);
    loop {
        match first(rest) {
            Parsed::Foreign => return Parsed::Foreign,
            Parsed::Incomplete => return Parsed::Incomplete,
            Parsed::Whole(message, length) => {
                messages.push(message);
                rest = &rest[length..];
                if ends(message) {
                    return Parsed::Whole(messages, bytes.len() - rest.len());
                }
            }
        }
    }
}

fn first(bytes: &[u8]) -> Parsed<Message<'_>> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Parsed::Incomplete;
    };
    match body(rest) {
        Parsed::Foreign => Parsed::Foreign,
        Parsed::Incomplete => Parsed::Incomplete,
        Parsed::Whole(body, length) => Parsed::Whole(Message { kind: *kind, body }, 1 + length),
    }
}

/// What follows a length, which counts itself; the first message of a connection has no letter.
pub(super) fn body(bytes: &[u8]) -> Parsed<&[u8]> {
    let Some(length) = bytes.first_chunk() else {
        return Parsed::Incomplete;
    };
    let Ok(length @ 4..=LONGEST) = usize::try_from(i32::from_be_bytes(*length)) else {
        return Parsed::Foreign;
    };
    match bytes.get(4..length) {
        Some(body) => Parsed::Whole(body, length),
        None => Parsed::Incomplete,
    }
}

/// The fields of a message that are not read yet.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn int(&mut self) -> Option<i32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*bytes))
    }

    /// A text that ends with a zero.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (text, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Some(text)
    }
}

/// The longest message in bytes, above what tests send. What begins with a TLS record would be
/// longer.
const LONGEST: usize = 16 << 20;
