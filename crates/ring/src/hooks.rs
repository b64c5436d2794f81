//! Where the model checker steps in. Nothing of it is left in a build that records.

/// A place where a modelled recorder may be killed or interrupted.
macro_rules! point {
    ($name:ident) => {
        #[cfg(loom)]
        crate::model::point(crate::model::Point::$name);
    };
}

/// The model checker asks for this fault, to see that its models find it.
macro_rules! fault {
    ($name:ident) => {{
        #[cfg(loom)]
        let wanted = crate::model::wants(crate::model::Fault::$name);
        #[cfg(not(loom))]
        let wanted = false;
        wanted
    }};
}

/// This thread `writes` or `reads` ring bytes: the model checker looks for another thread at the same bytes.
macro_rules! bytes {
    ($does:ident, $at:expr, $len:expr) => {
        #[cfg(loom)]
        crate::model::$does($at, $len);
    };
}

pub(crate) use {bytes, fault, point};
