//! A codec for a request that is kept while it is sent, so that a call whose connection ended before it was sent can be
//! made again without having copied every request for that case.

use std::{marker::PhantomData, sync::Arc};

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Encodes a shared `T`, decodes a `U`.
pub struct Shared<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Shared<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for Shared<T, U> {
    type Encode = Arc<T>;
    type Decode = U;
    type Encoder = SharedEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        SharedEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<U, U>::raw_decoder(BufferSettings::default())
    }
}

/// Encodes a shared `T`.
pub struct SharedEncoder<T>(PhantomData<T>);

impl<T: Message + 'static> Encoder for SharedEncoder<T> {
    type Item = Arc<T>;
    type Error = Status;

    fn encode(&mut self, item: Arc<T>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}
