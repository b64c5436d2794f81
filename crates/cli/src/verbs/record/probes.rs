//! The options of `record` that define events.

use lastwords_tracefs::DefinitionKind;

/// Options for events that are defined for a recording, and removed with it.
#[derive(Debug, clap::Args)]
pub(in crate::verbs) struct ProbeOptions {
    /// Define and record a probe in the kernel
    ///
    /// PROBE is `p:NAME FUNCTION [ARGS]`, or `r:NAME FUNCTION [ARGS]` at the return of the
    /// function.
    #[arg(long, value_name = "PROBE")]
    kprobe: Vec<String>,

    /// Define and record a probe in a program or library
    ///
    /// PROBE is `p:NAME /PATH:FUNCTION [ARGS]`, or `r:NAME /PATH:FUNCTION [ARGS]` at the return of the
    /// function. In place of FUNCTION, an offset in the file is possible, and for `p` a static probe
    /// (USDT), PROVIDER:PROBE, or :PROBE of any provider.
    #[arg(long, value_name = "PROBE")]
    uprobe: Vec<String>,

    /// Define and record a probe of a function, cheaper than --kprobe
    ///
    /// PROBE is `NAME FUNCTION [ARGS]`, or `NAME FUNCTION%return [ARGS]`.
    #[arg(long, value_name = "PROBE")]
    fprobe: Vec<String>,

    /// Define and record a probe of a tracepoint, with its arguments
    ///
    /// PROBE is `NAME TRACEPOINT [ARGS]`.
    #[arg(long, value_name = "PROBE")]
    tprobe: Vec<String>,

    /// Define and record an event whose fields are those of another
    ///
    /// PROBE is `NAME SYSTEM:EVENT [ARGS] [if FILTER]`.
    #[arg(long, value_name = "PROBE")]
    eprobe: Vec<String>,

    /// Define and record a synthetic event
    ///
    /// EVENT is `NAME TYPE FIELD[; TYPE FIELD]...`.
    #[arg(long, value_name = "EVENT")]
    synthetic: Vec<String>,
}

impl ProbeOptions {
    /// Returns the definitions with their kinds.
    pub(in crate::verbs) fn definitions(&self) -> Vec<(DefinitionKind, String)> {
        let of = |kind, texts: &[String]| {
            texts.iter().map(move |text| (kind, text.clone())).collect::<Vec<_>>()
        };
        [
            of(DefinitionKind::Kprobe, &self.kprobe),
            of(DefinitionKind::Uprobe, &self.uprobe),
            of(DefinitionKind::Fprobe, &self.fprobe),
            of(DefinitionKind::Tprobe, &self.tprobe),
            of(DefinitionKind::Eprobe, &self.eprobe),
            of(DefinitionKind::Synthetic, &self.synthetic),
        ]
        .concat()
    }
}
