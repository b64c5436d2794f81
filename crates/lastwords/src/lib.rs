//! What an application links to keep its last words: sessions and channels, events and markers, contexts, clock,
//! snapshots, the `tracing` layer and the crash handlers.

pub mod registry;
