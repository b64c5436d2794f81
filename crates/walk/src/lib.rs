//! lastwords: walk
