//! lastwords: testkit
