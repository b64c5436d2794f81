//! lastwords: capi
