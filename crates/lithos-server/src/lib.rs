//! HTTP around the protocols.
