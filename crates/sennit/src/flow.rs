//! How people name a flow.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use sennit_core::FlowPattern;
use serde::{Deserialize, Serialize};

/// A flow, or several, by address, port or protocol, as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct FlowName {
    text: String,
    pattern: FlowPattern,
}

/// Why a text names no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no flow")]
pub struct NotAFlow(String);

impl FlowName {
    /// Which flows it means.
    pub fn pattern(&self) -> FlowPattern {
        self.pattern
    }
}

impl FromStr for FlowName {
    type Err = NotAFlow;

    fn from_str(text: &str) -> Result<Self, NotAFlow> {
        let pattern = text.parse().map_err(|_| NotAFlow(text.into()))?;
        Ok(Self {
            text: text.into(),
            pattern,
        })
    }
}

impl TryFrom<String> for FlowName {
    type Error = NotAFlow;

    fn try_from(text: String) -> Result<Self, NotAFlow> {
        text.parse()
    }
}

impl From<FlowName> for String {
    fn from(name: FlowName) -> Self {
        name.text
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
