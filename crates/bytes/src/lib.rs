//! lastwords: bytes
