//! Writes fields of random classes.

use super::{Class, Place};
use lastwords_testkit::random::Random;
use std::collections::HashMap;

/// Writes fields, and collects the text that a reader must show for them.
#[derive(Default)]
pub(super) struct Encoder {
    pub(super) bytes: Vec<u8>,
    pub(super) bits: u64,
    pub(super) values: HashMap<Place, i64>,
    pub(super) scope: usize,
    pub(super) names: Vec<String>,
    pub(super) roles: HashMap<&'static str, u64>,
}

impl Encoder {
    pub(super) fn pad(&mut self, align: u64) {
        self.bits = self.bits.next_multiple_of(align);
        self.bytes.resize(self.bits.div_ceil(8) as usize, 0);
    }

    pub(super) fn put(&mut self, raw: &[u8]) {
        self.pad(8);
        self.bytes.extend(raw);
        self.bits += 8 * raw.len() as u64;
    }

    pub(super) fn length(&self, length: &Result<u64, Place>) -> u64 {
        length.clone().unwrap_or_else(|place| self.values[&place] as u64)
    }

    pub(super) fn integer(&mut self, r: &mut Random, class: &Class) -> String {
        let Class::Int { length, align, big, signed, small, labels, role } = class else {
            return String::new();
        };
        self.pad(*align);
        let value = if *small {
            r.below(4)
        } else {
            self.roles.get(role).copied().unwrap_or_else(|| r.bits())
        };
        let value = value & (u64::MAX >> (64 - length));
        if *align == 1 {
            (0..*length).for_each(|bit| {
                self.bytes.resize((self.bits / 8 + 1) as usize, 0);
                self.bytes[(self.bits / 8) as usize] |=
                    ((value >> bit & 1) as u8) << (self.bits % 8);
                self.bits += 1;
            });
        } else {
            let mut raw = value.to_le_bytes()[..(length / 8) as usize].to_vec();
            if *big {
                raw.reverse();
            }
            self.put(&raw);
        }
        self.values.insert((self.scope, self.names.clone()), value as i64);
        let shown = if *signed {
            ((value << (64 - length)) as i64 >> (64 - length)).to_string()
        } else {
            value.to_string()
        };
        if labels.is_empty() {
            return shown;
        }
        let label = labels.iter().find(|(_, low, high)| (*low..=*high).contains(&(value as i64)));
        let label = label.map_or("<unknown>".to_owned(), |(label, ..)| format!("\"{label}\""));
        format!("( {label} : container = {shown} )")
    }

    pub(super) fn class(&mut self, r: &mut Random, class: &Class) -> String {
        match class {
            Class::Int { .. } => self.integer(r, class),
            Class::Float { length } => {
                let value = r.below(64) as f64 / 8.0;
                let raw = if *length == 32 {
                    (value as f32).to_le_bytes().to_vec()
                } else {
                    value.to_le_bytes().to_vec()
                };
                self.put(&raw);
                format!("{value}")
            }
            Class::Text => {
                let text = *r.pick(&["x", "a text", "tab"]);
                self.put(text.as_bytes());
                self.put(&[0]);
                format!("\"{text}\"")
            }
            Class::Bytes { kind, length } => {
                let raw: Vec<u8> =
                    (0..self.length(length)).map(|_| b'a' + r.below(26) as u8).collect();
                self.put(&raw);
                if *kind == "string" {
                    return format!("\"{}\"", String::from_utf8_lossy(&raw));
                }
                list(raw.iter().map(|byte| format!("0x{byte:X}")).collect())
            }
            Class::Bool => {
                let value = r.below(2) as u8;
                self.put(&[value]);
                value.to_string()
            }
            Class::Array { length, element } => {
                self.pad(element.align());
                let elements = (0..self.length(length)).map(|_| self.class(r, element)).collect();
                list(elements)
            }
            Class::Struct { members, .. } => {
                self.pad(class.align());
                let mut shown = Vec::new();
                for (name, class) in members {
                    self.names.push(name.clone());
                    shown.push(format!("{name} = {}", self.class(r, class)));
                    self.names.pop();
                }
                if shown.is_empty() {
                    "{ }".to_owned()
                } else {
                    format!("{{ {} }}", shown.join(", "))
                }
            }
            Class::Variant { selector, options } => {
                let value = self.values[selector];
                let option = options
                    .iter()
                    .find(|(_, low, high, _)| (*low..=*high).contains(&value))
                    .expect("an option");
                format!("{{ {} }}", self.class(r, &option.3))
            }
            Class::Optional { selector, class } => {
                if (1..=9).contains(&self.values[selector]) {
                    self.class(r, class)
                } else {
                    "<none>".into()
                }
            }
        }
    }
}

fn list(elements: Vec<String>) -> String {
    if elements.is_empty() {
        return "[ ]".into();
    }
    let numbered: Vec<String> =
        elements.iter().enumerate().map(|(n, element)| format!("[{n}] = {element}")).collect();
    format!("[ {} ]", numbered.join(", "))
}
