use super::packets::{Fields, Packets};

/// What answers a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::proxy) enum Answer {
    /// Packet by packet what nobody asked for, or what belongs to the authentication.
    None,
    /// One packet.
    Packet,
    /// A statement that is prepared, with its arguments and its columns.
    Prepared,
    /// Results of one statement or of several.
    Results,
}

/// What both sides have agreed upon that matters for how an answer ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialect {
    /// Columns have no end of their own, and rows end like a statement without rows.
    pub(super) short_ends: bool,
    /// A result may come without its columns, and says so.
    pub(super) cached_columns: bool,
}

impl Dialect {
    /// Passes the packets of an answer. None if it is not complete.
    pub(super) fn pass(self, answer: Answer, packets: &mut Packets<'_>) -> Option<()> {
        match answer {
            Answer::None | Answer::Packet => packets.next().map(drop),
            Answer::Prepared => self.pass_prepared(packets),
            Answer::Results => {
                while self.pass_result(packets)? == More::Follow {}
                Some(())
            }
        }
    }

    fn pass_prepared(self, packets: &mut Packets<'_>) -> Option<()> {
        let body = packets.next()?.body;
        if body.first() != Some(&OK) {
            return Some(());
        }
        let mut fields = Fields(body.get(5..).unwrap_or_default());
        let counts = [fields.short(), fields.short()];
        for count in counts.into_iter().flatten().filter(|count| *count > 0) {
            self.pass_columns(count.into(), packets)?;
        }
        Some(())
    }

    fn pass_result(self, packets: &mut Packets<'_>) -> Option<More> {
        let body = packets.next()?.body;
        match body.first() {
            Some(&OK) => return Some(after_ok(body)),
            // A file of the client that it is asked for ends the answer as well.
            None | Some(&ERROR | &FILE) => return Some(More::Nothing),
            Some(_) => {}
        }
        let mut fields = Fields(body);
        let count = fields.number().unwrap_or_default();
        let are_cached = self.cached_columns && fields.bytes() == Some([0]);
        self.pass_columns(if are_cached { 0 } else { count }, packets)?;
        self.pass_rows(packets)
    }

    fn pass_columns(self, count: u64, packets: &mut Packets<'_>) -> Option<()> {
        for _ in 0..count {
            packets.next()?;
        }
        if !self.short_ends {
            packets.next()?;
        }
        Some(())
    }

    fn pass_rows(self, packets: &mut Packets<'_>) -> Option<More> {
        loop {
            let body = packets.next()?.body;
            match body.first() {
                Some(&ERROR) => return Some(More::Nothing),
                Some(&END) if self.short_ends && body.len() < LONGEST => {
                    return Some(after_ok(body));
                }
                // What is longer is a row that begins with a long text.
                Some(&END) if body.len() < 9 => return Some(after_end(body)),
                _ => {}
            }
        }
    }
}

/// Whether further results follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum More {
    Follow,
    Nothing,
}

impl More {
    fn of(status: Option<u16>) -> Self {
        if status.is_some_and(|status| status & MORE_RESULTS != 0) {
            Self::Follow
        } else {
            Self::Nothing
        }
    }
}

fn after_ok(body: &[u8]) -> More {
    let mut fields = Fields(&body[1..]);
    let (_affected, _last_id) = (fields.number(), fields.number());
    More::of(fields.short())
}

fn after_end(body: &[u8]) -> More {
    let mut fields = Fields(&body[1..]);
    let _warnings = fields.short();
    More::of(fields.short())
}

const OK: u8 = 0x00;
const FILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// In the status of the server.
const MORE_RESULTS: u16 = 0x0008;

/// A packet of this length goes on in the next one.
pub(super) const LONGEST: usize = 0x00ff_ffff;
