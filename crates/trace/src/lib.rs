//! lastwords: trace
