//! lastwords: abi
