//! Model architectures as graphs, and the text around them: tokenizer, chat template, generation defaults.
