//! OpenAI Chat Completions as pure state machines, without input or output.
