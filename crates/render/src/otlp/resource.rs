//! The resource of a trace: what recorded it, as far as the trace proves that.

use super::attributes::Attributes;
use lastwords_ctf::read::Trace;
use lastwords_ctf::uuid_text;
use lastwords_trace::class::TraceClass;

/// What made a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracer {
    Lastwords,
    Ftrace,
    Lttng,
    Other,
}

impl Tracer {
    fn from_class(class: &TraceClass) -> Self {
        match class.text("tracer_name") {
            Some("lastwords") => Self::Lastwords,
            Some("ftrace") => Self::Ftrace,
            Some(name) if name.starts_with("lttng") => Self::Lttng,
            _ => Self::Other,
        }
    }
}

/// Returns the attributes of the resource, by OpenTelemetry's semantic conventions.
pub(super) fn resource(trace: &Trace) -> Attributes {
    let class = trace.class();
    let tracer = Tracer::from_class(class);
    let mut attributes = Attributes::default();
    let mut text = |key: &str, value: Option<&str>| {
        value.filter(|value| !value.is_empty()).into_iter().for_each(|v| attributes.text(key, v));
    };
    let name = class.text("trace_name").or(class.identity.name.as_deref());
    if tracer == Tracer::Lastwords {
        text("service.name", name);
        let uuid = class.uuid.filter(|uuid| *uuid != [0; 16]).map(|uuid| uuid_text(&uuid));
        text("service.instance.id", uuid.as_deref());
        let program = class.text("program");
        text("process.executable.path", program);
        text("process.executable.name", program.and_then(|program| program.rsplit('/').next()));
    }
    text("host.name", class.text("hostname"));
    if tracer == Tracer::Ftrace {
        text("os.description", class.text("uname"));
        text("os.version", class.text("kernel_release"));
        text("host.arch", class.text("machine").map(architecture));
    }
    text("os.type", (tracer != Tracer::Other).then_some("linux"));
    text("lastwords.trace", Some(name.unwrap_or_else(|| trace.name())));
    text("lastwords.tracer", class.text("tracer_name"));
    let clock = class.clocks.first().filter(|clock| !clock.is_since_epoch());
    text("lastwords.clock", clock.map(|clock| clock.to_clock().name).as_deref());
    if let Some(pid) = class.number("vpid").filter(|_| !class.is_ftrace()) {
        attributes.number("process.pid", pid);
    }
    attributes
}

/// Returns the name of an architecture by the conventions.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
