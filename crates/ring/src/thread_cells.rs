//! Thread-local cells, also under the model checker.

/// Cells of each thread. The model checker's threads are not threads of the system and get their
/// cells from it.
macro_rules! thread_cells {
    ($($name:ident: $type:ty = $first:expr;)*) => {
        #[cfg(not(loom))]
        std::thread_local! { $(static $name: $type = const { $first };)* }
        #[cfg(loom)]
        loom::thread_local! { $(static $name: $type = $first;)* }
    };
}

pub(crate) use thread_cells;
