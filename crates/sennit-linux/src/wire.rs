//! How orders to the helper are written, and its answers.

use serde::Serialize;
use serde_json::Value;

use crate::{Error, error::Doing};

/// An answer, whatever it is.
pub(crate) fn value(answer: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(answer).doing(|| "write an answer".into())
}

/// A prefix.
pub(crate) mod prefix {
    use ipnet::IpNet;
    use sennit_packet::Prefix;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(prefix: &Prefix, to: S) -> Result<S::Ok, S::Error> {
        prefix.net().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Prefix, D::Error> {
        Prefix::try_from(IpNet::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Several of them.
pub(crate) mod prefixes {
    use ipnet::IpNet;
    use sennit_packet::Prefix;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(them: &[Prefix], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(them.iter().map(Prefix::net))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Prefix>, D::Error> {
        let nets = Vec::<IpNet>::deserialize(from)?.into_iter();
        nets.map(|net| Prefix::try_from(net).map_err(D::Error::custom))
            .collect()
    }
}

/// An error of the system: its number, or its text if it has none.
pub(crate) mod io_error {
    use std::io;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    type Parts = (Option<i32>, String);

    pub(crate) fn serialize<S: Serializer>(error: &io::Error, to: S) -> Result<S::Ok, S::Error> {
        let parts: Parts = (error.raw_os_error(), error.to_string());
        parts.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<io::Error, D::Error> {
        let (number, text) = Parts::deserialize(from)?;
        Ok(number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error))
    }
}
