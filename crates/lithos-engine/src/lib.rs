//! Slots, rounds, sampling and limits: from a prompt to tokens.
