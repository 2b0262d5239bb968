//! The JSON Schema of the document, made from its types.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{SCHEMA, Status};

/// The JSON Schema (draft 2020-12) of the document as a daemon writes it.
pub fn json_schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Status>();
    schema.insert("title".into(), SCHEMA.into());
    schema.into()
}
