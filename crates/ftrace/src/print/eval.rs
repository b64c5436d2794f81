//! Evaluates an expression for a payload.

use super::arith::{self, Int, Op, Typed};
use super::bytes::{PayloadRange, Value, locate, read};
use super::tree::Expr;
use super::{Env, Fault, helpers};

impl Expr {
    /// Returns the value of the expression for the event in `env`.
    pub(crate) fn value<'p>(&'p self, env: &mut Env<'_, '_>) -> Result<Value<'p>, Fault> {
        Ok(match self {
            Self::Int(value, kind) => Value::Int((*value, *kind)),
            Self::Text(text) => Value::Text(text),
            Self::Unknown(_) => return Err(Fault::Unknown),
            Self::Field { offset, kind } => {
                Value::Int((read(env.payload, *offset as usize, *kind, env.machine.order)?, *kind))
            }
            Self::Payload { offset, length, element } => {
                Value::Payload(place(env, *offset, *length, *element)?)
            }
            Self::Located(locator) => Value::Payload(locate(env.payload, *locator, env.machine)?),
            Self::Length(locator) => {
                let packed =
                    read(env.payload, locator.offset as usize, Int::UINT, env.machine.order)?;
                Value::Int((packed >> 16 & 0xffff, Int::INT))
            }
            Self::Cast(kind, inner) => {
                let (value, _) = inner.value(env)?.int()?;
                Value::Int((kind.wrap(value), *kind))
            }
            Self::PointerCast(kind, inner) => match inner.value(env)? {
                Value::Payload(place) => Value::Payload(PayloadRange { element: *kind, ..place }),
                Value::Int((value, _)) => {
                    let word = Int { size: env.machine.word_size, signed: false };
                    Value::Int((word.wrap(value), word))
                }
                text => text,
            },
            Self::Structure(_, inner) => match inner.value(env)? {
                Value::Int((value, _)) => Value::Int((value, Int::U64)),
                other => other,
            },
            Self::Unary(sign, inner) => Value::Int(arith::unary(*sign, inner.value(env)?.int()?)),
            Self::Not(inner) => truth(!inner.value(env)?.truth()),
            Self::Both(parts) => {
                let [left, right] = &**parts;
                truth(left.value(env)?.truth() && right.value(env)?.truth())
            }
            Self::Either(parts) => {
                let [left, right] = &**parts;
                truth(left.value(env)?.truth() || right.value(env)?.truth())
            }
            Self::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                return if condition.value(env)?.truth() { yes } else { no }.value(env);
            }
            Self::Binary(op, parts) => {
                let [left, right] = &**parts;
                let (left, right) = (left.value(env)?, right.value(env)?);
                binary(*op, &left, &right)?
            }
            Self::Index(parts) => {
                let [base, at] = &**parts;
                index(env, base, at)?
            }
            Self::Helper(helper) => {
                let mut out = std::mem::take(env.scratch);
                let begin = out.len();
                let outcome = helpers::run(helper, env, &mut out);
                let end = out.len();
                *env.scratch = out;
                outcome?;
                Value::Made(begin..end)
            }
        })
    }

    /// Returns the value as an integer.
    pub(crate) fn int(&self, env: &mut Env<'_, '_>) -> Result<Typed, Fault> {
        match self {
            Self::Field { offset, kind } => {
                Ok((read(env.payload, *offset as usize, *kind, env.machine.order)?, *kind))
            }
            other => other.value(env)?.int(),
        }
    }
}

fn truth<'p>(value: bool) -> Value<'p> {
    Value::Int((u64::from(value), Int::INT))
}

fn place(env: &Env<'_, '_>, offset: u32, length: u32, element: Int) -> Result<PayloadRange, Fault> {
    let at = offset as usize;
    let end = if length == 0 { env.payload.len() } else { at.saturating_add(length as usize) };
    if at > end || end > env.payload.len() {
        Err(Fault::Outside)
    } else {
        Ok(PayloadRange { at, end, element })
    }
}

fn binary<'p>(op: Op, left: &Value<'p>, right: &Value<'p>) -> Result<Value<'p>, Fault> {
    Ok(match (op, left, right) {
        (Op::Add, Value::Payload(place), Value::Int((by, _)))
        | (Op::Add, Value::Int((by, _)), Value::Payload(place)) => {
            Value::Payload(place.moved(*by)?)
        }
        (Op::Sub, Value::Payload(place), Value::Int((by, _))) => {
            Value::Payload(place.moved(by.wrapping_neg())?)
        }
        (Op::Sub, Value::Payload(a), Value::Payload(b)) => {
            let bytes = (a.at as u64).wrapping_sub(b.at as u64).cast_signed();
            let elements = bytes.checked_div(i64::from(a.element.size)).ok_or(Fault::Division)?;
            Value::Int((elements.cast_unsigned(), Int::S64))
        }
        (Op::Eq, Value::Payload(_), Value::Int((0, _))) => truth(false),
        (Op::Ne, Value::Payload(_), Value::Int((0, _))) => truth(true),
        _ => Value::Int(arith::binary(op, left.int()?, right.int()?)?),
    })
}

fn index<'p>(env: &mut Env<'_, '_>, base: &'p Expr, at: &Expr) -> Result<Value<'p>, Fault> {
    let (at, _) = at.int(env)?;
    match base.value(env)? {
        Value::Payload(place) => {
            let place = place.moved(at)?;
            place.bytes(env, usize::from(place.element.size))?;
            Ok(Value::Int((
                read(env.payload, place.at, place.element, env.machine.order)?,
                place.element,
            )))
        }
        Value::Text(text) => {
            let byte = usize::try_from(at)
                .ok()
                .and_then(|at| text.get(at))
                .copied()
                .ok_or(Fault::Outside)?;
            Ok(Value::Int((Int::CHAR.wrap(u64::from(byte)), Int::CHAR)))
        }
        Value::Int(_) => Err(Fault::KernelPointer),
        Value::Made(_) => Err(Fault::Kind),
    }
}

/// Returns the value of an expression that reads nothing of an event.
pub(crate) fn constant(expr: &Expr) -> Option<Typed> {
    let both = |[left, right]: &[Expr; 2]| Some((constant(left)?, constant(right)?));
    match expr {
        Expr::Int(value, kind) => Some((*value, *kind)),
        Expr::Cast(kind, inner) => constant(inner).map(|(value, _)| (kind.wrap(value), *kind)),
        Expr::PointerCast(_, inner) | Expr::Structure(_, inner) => constant(inner),
        Expr::Unary(sign, inner) => constant(inner).map(|typed| arith::unary(*sign, typed)),
        Expr::Not(inner) => constant(inner).map(|(value, _)| (u64::from(value == 0), Int::INT)),
        Expr::Binary(op, parts) => both(parts).and_then(|(a, b)| arith::binary(*op, a, b).ok()),
        Expr::Both(parts) => both(parts).map(|(a, b)| (u64::from(a.0 != 0 && b.0 != 0), Int::INT)),
        Expr::Either(parts) => {
            both(parts).map(|(a, b)| (u64::from(a.0 != 0 || b.0 != 0), Int::INT))
        }
        Expr::Choice(parts) => {
            let [condition, yes, no] = &**parts;
            constant(if constant(condition)?.0 != 0 { yes } else { no })
        }
        _ => None,
    }
}
