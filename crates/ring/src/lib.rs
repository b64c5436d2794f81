//! lastwords: ring
