use super::protocol::{Messages, Parsed, Protocol, ReplyFate, Request, Said};

/// No protocol that is known here: bytes pass, and the faults of bytes apply.
#[derive(Default)]
pub(super) struct Bytes;

impl Protocol for Bytes {
    type Ticket = ();

    const MESSAGES: Messages = Messages::InOrder;

    fn request(&self, _: &[u8]) -> Parsed<Request<()>> {
        Parsed::Foreign
    }

    fn sent(&self, (): (), _: ReplyFate) {}

    fn reply(&self, _: &[u8]) -> Parsed<Said> {
        Parsed::Foreign
    }
}
