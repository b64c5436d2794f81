//! lastwords: formats
