//! Presents the trace arrays of kernels as packets, for output that is made of events and not of
//! the kernel's own text.

use crate::kernel_log::{log, relation};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::traces::Traces;
use lastwords_ctf::read::Trace;
use lastwords_ftrace::ctf::{Form, Remarks};
use lastwords_ftrace::log as ftrace_log;
use lastwords_open::Ftrace;
use std::sync::{Arc, PoisonError};

/// The traces, their positions among all traces, and the remarks of the conversion. The log of a
/// kernel has no position.
pub(crate) type Kernels = (Vec<Trace>, Vec<Option<usize>>, Remarks);

/// Returns the trace arrays as packets. With `with_log`, the log of each kernel follows its arrays.
///
/// # Errors
/// An array does not exist; a trace.dat file has no log.
pub(crate) fn kernels(
    traces: &Traces,
    chosen: &Chosen,
    form: Form,
    with_log: bool,
) -> anyhow::Result<Kernels> {
    let (mut found, mut positions, remarks) = (Vec::new(), Vec::new(), Remarks::default());
    let arrays: Vec<&lastwords_open::Trace> = traces.arrays().collect();
    for arrays in arrays.chunk_by(|a, b| Arc::ptr_eq(&a.origin, &b.origin)) {
        let Some((first, ftrace)) = arrays.first().and_then(|first| Some((first, first.ftrace()?)))
        else {
            continue;
        };
        let path = &first.origin.path;
        let choice = |array: &Ftrace<'_>| chosen.choice(std::slice::from_ref(array));
        for (position, array) in
            arrays.iter().filter_map(|array| Some((traces.position(array), array.ftrace()?)))
        {
            positions.push(position);
            found.push(array.packets(path, &choice(&array), form, &remarks)?);
        }
        if with_log {
            let (lines, relation) = (log(first, false)?, relation(&ftrace));
            if let Some(remark) =
                relation.remark_of_trace(ftrace.array).filter(|_| !lines.is_empty())
            {
                say::note(plain(&remark));
            }
            found.push(ftrace_log::trace(
                path,
                lines,
                relation,
                &choice(&ftrace),
                ftrace.real_time(),
            )?);
            positions.push(None);
        }
    }
    Ok((found, positions, remarks))
}

/// Prints the remarks of a conversion from ftrace.
pub(crate) fn print_remarks(remarks: &Remarks) {
    let remarks = remarks.lock().unwrap_or_else(PoisonError::into_inner);
    remarks.iter().for_each(|remark| say::note(plain(remark)));
}
