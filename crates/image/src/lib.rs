//! lastwords: image
