//! What a generator makes of a `.proto` file, written by hand: the messages and their codec.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Moves money; the accounts are in the metadata.
#[derive(Clone, Copy, Message)]
pub(crate) struct Transfer {
    #[prost(uint64, tag = "1")]
    pub(crate) cents: u64,
}

/// What the accounts have then.
#[derive(Clone, Copy, Message)]
pub(crate) struct Balances {
    #[prost(uint64, tag = "1")]
    pub(crate) from: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) to: u64,
}

/// Sends `E` and receives `D`.
pub(crate) struct Proto<E, D>(PhantomData<fn(E) -> D>);

impl<E, D> Proto<E, D> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + 'static, D: Message + Default + 'static> Codec for Proto<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::new()
    }

    fn decoder(&mut self) -> Self {
        Self::new()
    }
}

impl<E: Message, D> Encoder for Proto<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, message: E, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = message.encode(buffer);
        encoded.map_err(|e| Status::internal(e.to_string()))
    }
}

impl<E, D: Message + Default> Decoder for Proto<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let decoded = D::decode(buffer);
        decoded
            .map(Some)
            .map_err(|e| Status::internal(e.to_string()))
    }
}
