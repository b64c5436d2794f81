//! lastwords: lastwords
