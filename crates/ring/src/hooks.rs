//! Hooks of the model checker. They are empty in a build that records.

/// A point at which the model checker may kill or interrupt a modelled recorder.
macro_rules! point {
    ($name:ident) => {
        #[cfg(loom)]
        crate::model::point(crate::model::Point::$name);
    };
}

/// True if the model checker requests this fault, to test that its models find it.
macro_rules! fault {
    ($name:ident) => {{
        #[cfg(loom)]
        let wanted = crate::model::wants(crate::model::Fault::$name);
        #[cfg(not(loom))]
        let wanted = false;
        wanted
    }};
}

/// Reports that this thread `writes` or `reads` ring bytes. The model checker then looks for
/// another thread at the same bytes.
macro_rules! bytes {
    ($does:ident, $at:expr, $len:expr) => {
        #[cfg(loom)]
        crate::model::$does($at, $len);
    };
}

pub(crate) use {bytes, fault, point};
