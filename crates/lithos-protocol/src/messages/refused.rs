//! Fields that ask for what is not there, refused by name.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::{CONSTRAINED, refuse_fields, refused};

const REFUSED: [(&str, &str); 4] = [
    ("mcp_servers", "there is no connector to MCP servers"),
    ("container", "there are no containers"),
    ("output_format", CONSTRAINED),
    ("output_schema", CONSTRAINED),
];

/// Refuses a request that asks for what is not there.
pub(super) fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    refuse_fields(fields, &REFUSED)?;
    match fields.peek("output_config").and_then(|config| config.get("format")) {
        Some(format) if !format.is_null() && format["type"] != "text" => {
            Err(refused("output_config.format", CONSTRAINED))
        }
        _ => Ok(()),
    }
}
