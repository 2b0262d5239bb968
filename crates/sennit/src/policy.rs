//! How a class uses the links, and what becomes of packets without a tunnel, in the words of
//! configs and of the status.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sennit_core::Word;
use serde::{Deserialize, Serialize};

pub use sennit_core::{Congestion, Delivery, Headers, Policy};

/// What becomes of packets that belong into the tunnel while there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Leak {
    /// They go nowhere, and whoever sends them is told so.
    Block,
    /// They leave by the host's other routes.
    Allow,
}

/// A word of the tunnel in documents: `#[serde(with = "word")]`.
pub(crate) mod word {
    use std::borrow::Cow;

    use sennit_core::Word;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<T: Word, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.word())
    }

    pub(crate) fn deserialize<'de, T: Word, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let word = Cow::<str>::deserialize(deserializer)?;
        let unknown = |_| D::Error::custom(format!("`{word}` is no {}", T::NAME));
        word.parse().map_err(unknown)
    }
}

/// What a schema says of it: `#[schemars(with = "Words<T>")]`.
pub(crate) struct Words<T>(PhantomData<T>);

impl<T: Word> JsonSchema for Words<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = T::VALUES.iter().map(|value| value.word()).collect();
        json_schema!({ "description": T::MEANING, "type": "string", "enum": words })
    }
}
