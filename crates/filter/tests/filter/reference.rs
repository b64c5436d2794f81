//! A naive evaluator of operators: it shares nothing with the library.

/// A value as the oracle sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Val {
    Int(i128),
    Real(f64),
    Truth(bool),
    Text(Vec<u8>),
    Enum(i128, Option<Vec<u8>>),
}

pub(crate) fn truth(value: Option<Val>) -> Option<bool> {
    match value? {
        Val::Real(number) => Some(number != 0.0),
        value => Some(int(&value)? != 0),
    }
}

pub(crate) fn int(value: &Val) -> Option<i128> {
    match value {
        Val::Int(number) | Val::Enum(number, _) => Some(*number),
        Val::Truth(value) => Some(i128::from(*value)),
        _ => None,
    }
}

pub(crate) fn infix(operator: &str, left: &Val, right: &Val) -> Option<Val> {
    let as_text = |value: &Val| match value {
        Val::Text(text) => Some(Some(text.clone())),
        Val::Enum(_, label) => Some(label.clone()),
        _ => None,
    };
    if let (Some(l), Some(r)) = (int(left), int(right)) {
        let shift = |l: i128| (0..64).contains(&r).then_some(l);
        let wrap = |l: i128| if l < 0 { i128::from(l as u64 as i64) } else { i128::from(l as u64) };
        return Some(match operator {
            "==" => Val::Truth(l == r),
            "!=" => Val::Truth(l != r),
            "<" => Val::Truth(l < r),
            "<=" => Val::Truth(l <= r),
            ">" => Val::Truth(l > r),
            ">=" => Val::Truth(l >= r),
            "|" => Val::Int(l | r),
            "&" => Val::Int(l & r),
            "^" => Val::Int(l ^ r),
            // Halving towards minus infinity, and doubling within 64 bits, one step at a time.
            ">>" => Val::Int((0..shift(r)?).fold(l, |l, _| l.div_euclid(2))),
            _ => {
                let sign = if l < 0 { -1 } else { 1 };
                let bits = (0..shift(r)?).fold(l as u64, |bits, _| bits.wrapping_add(bits));
                Val::Int(if sign < 0 { i128::from(bits as i64) } else { wrap(i128::from(bits)) })
            }
        });
    }
    if let (Val::Real(_), _) | (_, Val::Real(_)) = (left, right) {
        let order = match (left, right) {
            (Val::Real(l), Val::Real(r)) => l.partial_cmp(r),
            (Val::Real(l), r) => exact(int(r)?, *l).map(std::cmp::Ordering::reverse),
            (l, Val::Real(r)) => exact(int(l)?, *r),
            _ => return None,
        };
        return Some(Val::Truth(match operator {
            "==" => order.is_some_and(|o| o.is_eq()),
            "!=" => !order.is_some_and(|o| o.is_eq()),
            "<" => order.is_some_and(|o| o.is_lt()),
            "<=" => order.is_some_and(|o| o.is_le()),
            ">" => order.is_some_and(|o| o.is_gt()),
            ">=" => order.is_some_and(|o| o.is_ge()),
            _ => return None,
        }));
    }
    let (l, r) = (as_text(left)?, as_text(right)?);
    let same = l.is_some() && l == r;
    match operator {
        "==" => Some(Val::Truth(same)),
        "!=" => Some(Val::Truth(!same)),
        _ => None,
    }
}

/// Compares an integer of at most 67 bits with a float by the float's mantissa and exponent.
fn exact(integer: i128, float: f64) -> Option<std::cmp::Ordering> {
    if float.is_nan() {
        return None;
    }
    let bits = float.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i128;
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    let mantissa = if float.is_sign_negative() { -mantissa } else { mantissa };
    let exponent = exponent.max(1) - 1075;
    let beyond = |sign: i128| 0i128.cmp(&sign);
    Some(match exponent {
        70.. => beyond(mantissa),
        0..70 => integer.cmp(&(mantissa << exponent)),
        -56..0 => (integer << -exponent).cmp(&mantissa),
        // Less than one in size.
        _ => integer.cmp(&0).then(beyond(mantissa)),
    })
}

/// `*` and `?` alone.
pub(crate) fn glob_matches(glob: &str, text: &[u8]) -> bool {
    fn matches(glob: &[char], text: &[char]) -> bool {
        match (glob.first(), text.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                matches(&glob[1..], text) || !text.is_empty() && matches(glob, &text[1..])
            }
            (Some('?'), Some(_)) => matches(&glob[1..], &text[1..]),
            (Some(g), Some(t)) => g == t && matches(&glob[1..], &text[1..]),
            _ => false,
        }
    }
    let text: Vec<char> = String::from_utf8_lossy(text).chars().collect();
    matches(&glob.chars().collect::<Vec<_>>(), &text)
}
