//! Number formats and checkpoints: safetensors directories and GGUF files, with exact decoding of each matrix.
