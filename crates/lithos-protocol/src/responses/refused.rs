//! Fields that ask for what is not there, refused by name.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::{refuse_fields, refused};

const REFUSED: [(&str, &str); 5] = [
    (
        "previous_response_id",
        "responses are not kept; send the whole conversation as input, as with store=false",
    ),
    ("conversation", "conversations are not kept; send the whole of it as input"),
    ("prompt", "there are no stored prompts"),
    ("background", "responses are made while the client waits"),
    ("top_logprobs", "log probabilities are not given out yet"),
];

/// What `include` may not ask for. Other names ask for what there never is, such as encrypted thoughts.
const LOGPROBS: &str = "message.output_text.logprobs";

/// Refuses a request that asks for what is not there.
pub(super) fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    refuse_fields(fields, &REFUSED)?;
    let include: Option<Vec<String>> = fields.take("include", "a list of texts")?;
    if include.is_some_and(|include| include.iter().any(|name| name == LOGPROBS)) {
        return Err(refused("include", "log probabilities are not given out yet"));
    }
    Ok(())
}
