//! What a request says about thinking.

use crate::error::ApiError;
use crate::fields::Fields;

/// What a request says about thinking, whatever its dialect.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thinking {
    /// Whether the model shall think; `None` leaves it to the template.
    pub(crate) enabled: Option<bool>,
    /// How much; `none` turns thinking off. Names that a template does not know are no error.
    pub(crate) effort: Option<String>,
}

impl Thinking {
    /// Takes the fields that are about thinking. Each dialect has a spelling of its own (`reasoning_effort`, `reasoning.effort`,
    /// `thinking` with `output_config.effort`), and local servers added `enable_thinking`; since their meanings do not clash,
    /// every dialect takes all of them.
    ///
    /// `thinking` of the type `adaptive` leaves it to the template, as do types that are not known here; a budget has no
    /// counterpart.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let effort = fields.take("reasoning_effort", "a text")?;
        let mut thinking = Thinking { effort, enabled: None };
        if let Some(value) = fields.value("reasoning") {
            let mut reasoning = Fields::new(value, "reasoning")?;
            thinking.effort = reasoning.take("effort", "a text")?.or(thinking.effort);
            thinking.enabled = reasoning.take("enabled", "true or false")?;
        }
        if let Some(value) = fields.value("thinking") {
            let kind: Option<String> = Fields::new(value, "thinking")?.take("type", "a text")?;
            thinking.enabled = match kind.as_deref() {
                Some("enabled") => Some(true),
                Some("disabled") => Some(false),
                _ => thinking.enabled,
            };
        }
        if let Some(value) = fields.value("output_config") {
            let mut config = Fields::new(value, "output_config")?;
            thinking.effort = config.take("effort", "a text")?.or(thinking.effort);
        }
        let switch = fields.take("enable_thinking", "true or false")?;
        thinking.enabled = switch.or(thinking.enabled);
        Ok(thinking)
    }

    /// Whether the model shall think, as far as the request says.
    pub(crate) fn switch(&self) -> Option<bool> {
        self.enabled.or((self.effort.as_deref() == Some("none")).then_some(false))
    }
}
