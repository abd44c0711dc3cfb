//! Fields that ask for what is not there, refused by name.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::refuse_fields;

const REFUSED: [(&str, &str); 2] = [
    ("mcp_servers", "there is no connector to MCP servers"),
    ("container", "there are no containers"),
];

/// Refuses a request that asks for what is not there.
pub(super) fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    refuse_fields(fields, &REFUSED)
}
