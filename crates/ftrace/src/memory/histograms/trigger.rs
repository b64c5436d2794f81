//! A histogram's trigger: its fields, and its text (`event_hist_trigger_print` of
//! kernel/trace/trace_events_hist.c).

use super::field::{Bits, Field};
use super::{damaged, text as full};
use lastwords_kernel::{Error, Kernel, Object};
use std::fmt::Write as _;

/// Most fields of a histogram; the kernel has 22.
const FIELDS_MAX: u64 = 256;
/// Most actions, and most parameters of one.
const ACTIONS_MAX: u64 = 64;

/// A trigger `hist:keys=…`.
#[derive(Debug)]
pub(super) struct Trigger<'k> {
    /// Its `struct event_trigger_data`.
    trigger: Object<'k>,
    /// Its `struct hist_trigger_data`.
    pub(super) data: Object<'k>,
    pub(super) bits: Bits,
    /// The keys.
    pub(super) keys: Vec<Field<'k>>,
    /// The values, the count first, and behind them the variables.
    values: Vec<Field<'k>>,
    pub(super) has_hitcount: bool,
    pub(super) actions: Vec<Action<'k>>,
    /// The variables that the action `save` keeps: the variable, and the field that it is of.
    pub(super) saved: Vec<(Field<'k>, Field<'k>)>,
    variables: u64,
}

/// What a histogram does with a value (`struct action_data`).
#[derive(Debug)]
pub(super) struct Action<'k> {
    object: Object<'k>,
    pub(super) handler: Handler,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handler {
    Match,
    Max,
    Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Save,
    Trace,
    Snapshot,
}

impl<'k> Trigger<'k> {
    /// Reads the fields of a trigger. `stack` is the name of a stack that is a key.
    pub(super) fn new(
        kernel: &'k Kernel,
        trigger: Object<'k>,
        bits: Bits,
        stack: &str,
    ) -> Result<Self, Error> {
        let data = kernel.object("hist_trigger_data", trigger.address("private_data")?)?;
        let [values, keys, all, variables] =
            [data.u64("n_vals")?, data.u64("n_keys")?, data.u64("n_fields")?, data.u64("n_vars")?];
        if keys == 0 || all > FIELDS_MAX || values.checked_add(keys) != Some(all) {
            return Err(damaged(&data, all, "the number of fields of a histogram"));
        }
        if values.checked_sub(variables).is_none_or(|values| values == 0) {
            return Err(damaged(&data, variables, "a number of variables"));
        }
        let field = |path: &str| Field::new(data.pointer(path)?, &bits, stack);
        let mut fields = Vec::new();
        for at in 0..all {
            fields.push(field(&format!("fields[{at}]"))?);
        }
        let keys = fields.split_off(usize::try_from(values).unwrap_or(usize::MAX));
        let first = fields.first().is_some_and(|first| first.is(bits.hitcount));
        // The variables are the last of the values.
        let count = usize::try_from(values.saturating_sub(variables)).unwrap_or(usize::MAX);
        let sorted =
            fields.iter().enumerate().all(|(at, field)| field.is(bits.var) == (at >= count));
        if !first || !sorted || !keys.iter().all(|key| key.is(bits.key)) {
            return Err(damaged(&data, all, "values and keys of a histogram"));
        }
        let mut saved = Vec::new();
        for at in 0..data.u64("n_save_vars")?.min(FIELDS_MAX) {
            let pair = data.pointer(&format!("save_vars[{at}]"))?;
            let field = |path: &str| Field::new(pair.pointer(path)?, &bits, stack);
            saved.push((field("var")?, field("val")?));
        }
        let mut actions = Vec::new();
        for at in 0..data.u64("n_actions")?.min(ACTIONS_MAX) {
            actions.push(Action::new(data.pointer(&format!("actions[{at}]"))?)?);
        }
        // Linux 6.3 added the member.
        let attributes = data.pointer("attrs")?;
        if attributes.address("keys_str")? == 0 {
            return Err(damaged(&attributes, 0, "the attributes of a histogram"));
        }
        let has_hitcount = !attributes.has("no_hitcount") || !attributes.bool("no_hitcount")?;
        let values = fields;
        Ok(Self { trigger, data, bits, keys, values, has_hitcount, actions, saved, variables })
    }

    /// The values that are sums, the count first.
    pub(super) fn sums(&self) -> &[Field<'k>] {
        let variables = usize::try_from(self.variables).unwrap_or_default();
        self.values.get(..self.values.len().saturating_sub(variables)).unwrap_or_default()
    }

    /// All fields whose names a row or the trigger has.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field<'k>> {
        let saved = self.saved.iter().flat_map(|(variable, value)| [variable, value]);
        self.keys.iter().chain(&self.values).chain(saved)
    }

    /// Returns `active` or `paused`.
    pub(super) fn state(&self) -> Result<&'static str, Error> {
        Ok(if self.trigger.bool("paused")? { "paused" } else { "active" })
    }

    /// The trigger without its actions and its filter.
    pub(super) fn head(&self, part: &mut dyn FnMut(Result<String, Error>) -> String) -> String {
        let mut text = "hist:".to_owned();
        match self.trigger.address("name") {
            Ok(0) => {}
            name => text += &(part(name.and_then(|_| full(&self.trigger, "name"))) + ":"),
        }
        let mut list = |fields: &mut dyn Iterator<Item = &Field<'k>>| {
            let words: Vec<String> = fields.map(|field| part(self.spec(field))).collect();
            words.join(",")
        };
        text += &format!("keys={}", list(&mut self.keys.iter()));
        let (sums, variables) = self.values.split_at(self.sums().len());
        let skipped = usize::from(!self.has_hitcount);
        text += &format!(":vals={}", list(&mut sums.iter().skip(skipped)));
        if !variables.is_empty() {
            text += &format!(":{}", list(&mut variables.iter()));
        }
        text += &format!(":sort={}", part(self.sort()));
        text += &format!(":size={}", part(self.size()));
        match self.clock() {
            Ok(None) => {}
            clock => text += &format!(":clock={}", part(clock.map(Option::unwrap_or_default))),
        }
        if !self.has_hitcount {
            text.push_str(":nohitcount");
        }
        text
    }

    /// The actions and the filter of the trigger.
    pub(super) fn tail(&self, part: &mut dyn FnMut(Result<String, Error>) -> String) -> String {
        let mut text = String::new();
        for action in &self.actions {
            text += &part(action.spec(&self.saved));
        }
        match self.trigger.address("filter_str").map(|at| at != 0) {
            Ok(false) => {}
            Ok(true) => text += &format!(" if {}", part(full(&self.trigger, "filter_str"))),
            Err(error) => text += &format!(" if {}", part(Err(error))),
        }
        text
    }

    fn spec(&self, field: &Field<'k>) -> Result<String, Error> {
        let is_key = field.is(self.bits.key);
        match &field.missing {
            None if field.is(self.bits.stack) && is_key && field.is_field => {
                Ok(format!("{}.stacktrace", field.name))
            }
            None if field.is(self.bits.stack) && is_key => Ok(field.name.clone()),
            // Without modifiers: those of a first value stand at others.
            None if field.is(self.bits.hitcount) && self.is_first(field) => {
                Ok("hitcount".to_owned())
            }
            _ => field.spec(&self.bits),
        }
    }

    fn is_first(&self, field: &Field<'k>) -> bool {
        self.values.first().is_some_and(|first| std::ptr::eq(first, field))
    }

    fn sort(&self) -> Result<String, Error> {
        let mut words = Vec::new();
        for (field, is_descending) in self.sort_keys()? {
            let index = usize::try_from(field).unwrap_or(usize::MAX);
            let sums = self.sums().len();
            let field = match index.checked_sub(sums) {
                None => self.values.get(index),
                Some(key) => self.keys.get(key),
            };
            let field = field.ok_or_else(|| damaged(&self.data, index as u64, "a sort key"))?;
            let word = match index {
                0 => "hitcount".to_owned(),
                _ => field.spec(&self.bits)?,
            };
            words.push(word + if is_descending { ".descending" } else { "" });
        }
        Ok(words.join(","))
    }

    /// The fields by which rows are sorted, by index among the sums and keys; true: the greatest
    /// first.
    pub(super) fn sort_keys(&self) -> Result<Vec<(u64, bool)>, Error> {
        let count = self.data.u64("n_sort_keys")?;
        if !(1..=self.data.count("sort_keys")?).contains(&count) {
            return Err(damaged(&self.data, count, "a number of sort keys"));
        }
        let key = |at: u64| {
            let key = self.data.element("sort_keys", at)?;
            Ok((key.u64("field_idx")?, key.bool("descending")?))
        };
        (0..count).map(key).collect()
    }

    fn size(&self) -> Result<String, Error> {
        let bits = self.data.pointer("map")?.fit("map_bits")?;
        Ok(1u64.checked_shl(bits).unwrap_or_default().to_string())
    }

    fn clock(&self) -> Result<Option<String>, Error> {
        if !self.data.bool("enable_timestamps")? {
            return Ok(None);
        }
        full(&self.data.pointer("attrs")?, "clock").map(Some)
    }
}

impl<'k> Action<'k> {
    fn new(object: Object<'k>) -> Result<Self, Error> {
        // Linux 5.10 to 7.3.
        let handler = match object.u64("handler")? {
            1 => Handler::Match,
            2 => Handler::Max,
            3 => Handler::Change,
            other => return Err(damaged(&object, other, "the handler of an action")),
        };
        let kind = match object.u64("action")? {
            1 => Kind::Save,
            2 => Kind::Trace,
            3 => Kind::Snapshot,
            other => return Err(damaged(&object, other, "an action")),
        };
        Ok(Self { object, handler, kind })
    }

    /// The variable in which an action keeps a value by itself.
    pub(super) fn tracked(&self) -> Result<u64, Error> {
        self.object.pointer("track_data.track_var")?.u64("var.idx")
    }

    fn spec(&self, saved: &[(Field<'k>, Field<'k>)]) -> Result<String, Error> {
        let text = |path: &str| full(&self.object, path);
        let head = match self.handler {
            Handler::Match => {
                let [system, event] = ["match_data.event_system", "match_data.event"].map(text);
                format!(":onmatch({}.{})", system?, event?)
            }
            Handler::Max => format!(":onmax({})", text("track_data.var_str")?),
            Handler::Change => format!(":onchange({})", text("track_data.var_str")?),
        };
        let mut words = Vec::new();
        match self.kind {
            Kind::Save => {
                for (variable, _) in saved {
                    words.push(variable.variable_name()?);
                }
            }
            Kind::Trace => {
                if self.object.bool("use_trace_keyword")? {
                    words.push(text("synth_event_name")?);
                }
                for at in 0..self.object.u64("n_params")?.min(ACTIONS_MAX) {
                    words.push(text(&format!("params[{at}]"))?);
                }
            }
            Kind::Snapshot => {}
        }
        let mut spec = head;
        // A String takes everything.
        let _ = write!(spec, ".{}({})", text("action_name")?, words.join(","));
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, Made, Types};
    use super::*;

    const TRIGGER: u64 = BASE;
    const DATA: u64 = BASE + 0x100;
    const MAP: u64 = BASE + 0x200;
    const COUNT: u64 = BASE + 0x300;
    const KEY: u64 = BASE + 0x400;
    const FIELD: u64 = BASE + 0x500;
    const ATTRIBUTES: u64 = BASE + 0x1000;
    const NAME: u64 = BASE + 0x2000;
    const FILTER: u64 = BASE + 0x3000;
    const CLOCK: u64 = BASE + 0x4000;
    const PID: u64 = BASE + 0x5000;
    const VARIABLE: u64 = BASE + 0x6000;
    const TYPES: Types = Types {
        structures: "event_trigger_data 24: void* private_data@0, char* name@8, char* filter_str@16
             ftrace_event_field 8: char* name@0
             hist_var 16: char* name@0, u64 idx@8
             hist_field 48: void* hist_data@0, u64 flags@8, u64 offset@16,
                 ftrace_event_field* field@24, hist_var var@32
             tracing_map_sort_key 16: u64 field_idx@0, u64 descending@8
             tracing_map 8: u64 map_bits@0
             hist_trigger_attrs 24: char* keys_str@0, char* clock@8, u64 no_hitcount@16
             hist_trigger_data 112: u64 n_vals@0, u64 n_keys@8, u64 n_fields@16, u64 n_vars@24,
                 u64 n_save_vars@32, u64 n_actions@40, u64 n_sort_keys@48, u64 enable_timestamps@56,
                 hist_field*[2] fields@64, tracing_map_sort_key[1] sort_keys@80,
                 tracing_map* map@96, hist_trigger_attrs* attrs@104",
        enumerations: &[(
            "hist_field_flags",
            &[("HIST_FIELD_FL_HITCOUNT", 1), ("HIST_FIELD_FL_KEY", 2)],
        )],
    };

    /// The trigger `hist:x:keys=v=pid:vals=hitcount:clock=mono:nohitcount if pid > 1`.
    fn made() -> Made {
        let mut made = Made::new(0x7000);
        let words = [
            (TRIGGER, &[DATA, NAME, FILTER][..]),
            // Values, keys, all fields, variables, saved ones, actions, sort keys, time stamps.
            (DATA, &[1, 1, 2, 0, 0, 0, 1, 1, COUNT, KEY, 0, 0, MAP, ATTRIBUTES]),
            (MAP, &[7]),
            (COUNT, &[DATA, 1]),
            (KEY, &[DATA, 2, 0, FIELD, VARIABLE]),
            (FIELD, &[PID]),
            (ATTRIBUTES, &[PID, CLOCK, 1]),
        ];
        for (at, words) in words {
            (0..).zip(words).for_each(|(n, word)| made.put(at + n * 8, *word));
        }
        for (at, text) in
            [(NAME, "x"), (FILTER, "pid > 1"), (CLOCK, "mono"), (PID, "pid"), (VARIABLE, "v")]
        {
            made.text(at, text.as_bytes());
        }
        made
    }

    /// The text of the trigger, with `?` for what is not known, and the number of that.
    fn text(made: &Made) -> Result<(String, usize), Error> {
        let kernel = made.kernel(&TYPES, &[]);
        let object = kernel.object("event_trigger_data", TRIGGER)?;
        let trigger = Trigger::new(&kernel, object, Bits::new(&kernel), "stack")?;
        let mut missing = 0;
        let mut part = |text: Result<String, Error>| {
            text.unwrap_or_else(|_| {
                missing += 1;
                "?".to_owned()
            })
        };
        let text = trigger.head(&mut part) + &trigger.tail(&mut part);
        Ok((text, missing))
    }

    /// A text that reads as zero is not known, and not empty: name, filter, clock, fields. Attributes
    /// that read as zero would hide `nohitcount`.
    #[test]
    fn a_page_of_a_trigger_that_reads_as_zero_is_not_known() {
        let whole =
            "hist:x:keys=v=pid:vals=:sort=hitcount:size=128:clock=mono:nohitcount if pid > 1";
        assert_eq!(text(&made()).unwrap(), (whole.to_owned(), 0));
        for (page, is, becomes) in [
            (NAME, "hist:x:", "hist:?:"),
            (FILTER, "if pid > 1", "if ?"),
            (CLOCK, "clock=mono", "clock=?"),
            (PID, "keys=v=pid", "keys=?"),
            (VARIABLE, "keys=v=pid", "keys=?"),
        ] {
            let mut made = made();
            made.zero(page, 0x1000);
            assert_eq!(text(&made).unwrap(), (whole.replace(is, becomes), 1));
        }
        let mut made = made();
        made.zero(ATTRIBUTES, 0x1000);
        let error = text(&made).unwrap_err().to_string();
        assert!(error.contains("the attributes of a histogram"), "{error}");
    }
}
