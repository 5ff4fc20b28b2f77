use super::super::protocol::Parsed;

/// A packet: a length of three bytes, a number that counts from 0 in each exchange, and the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) number: u8,
    pub(super) body: &'a [u8],
}

/// The packets that are not read yet.
pub(super) struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// None if it is not complete.
    pub(super) fn next(&mut self) -> Option<Packet<'a>> {
        let (header, rest) = self.0.split_first_chunk::<4>()?;
        let length =
            usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
        let (body, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        let number = header[3];
        Some(Packet { number, body })
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}

/// What the first packets of the bytes are, if `read` finds them complete.
pub(super) fn read<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Packets<'a>) -> Option<T>,
) -> Parsed<T> {
    let mut packets = Packets::new(bytes);
    match read(&mut packets) {
        Some(read) => Parsed::Whole(read, bytes.len() - packets.left()),
        None => Parsed::Incomplete,
    }
}

/// The fields of a packet that are not read yet.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn int(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A number whose first byte says how long it is.
    pub(super) fn number(&mut self) -> Option<u64> {
        let [first] = self.bytes()?;
        match first {
            0xfc => self.short().map(u64::from),
            0xfd => {
                let [low, middle, high] = self.bytes()?;
                Some(u32::from_le_bytes([low, middle, high, 0]).into())
            }
            0xfe => self.bytes().map(u64::from_le_bytes),
            small => Some(small.into()),
        }
    }
}
