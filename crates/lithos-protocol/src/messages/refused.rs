//! Fields that ask for what is not there, refused by name.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::{CONSTRAINED, NO_TOOLS, refuse_fields, refused};

const REFUSED: [(&str, &str); 5] = [
    ("tools", NO_TOOLS),
    ("mcp_servers", "there is no connector to MCP servers"),
    ("container", "there are no containers"),
    ("output_format", CONSTRAINED),
    ("output_schema", CONSTRAINED),
];

/// Refuses a request that asks for what is not there.
pub(super) fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    refuse_fields(fields, &REFUSED)?;
    if let Some(choice) = fields.value("tool_choice") {
        let mut choice = Fields::new(choice, "tool_choice")?;
        let kind: Option<String> = choice.take("type", "a text")?;
        if !matches!(kind.as_deref(), Some("auto" | "none")) {
            return Err(refused("tool_choice", NO_TOOLS));
        }
    }
    Ok(())
}
