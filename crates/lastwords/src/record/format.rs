//! The checks of names and format strings that the macros make while a program is compiled.

/// The name of a field, without the `r#` of a raw identifier.
#[must_use]
pub const fn plain_name(name: &str) -> &str {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => match core::str::from_utf8(rest) {
            Ok(plain) => plain,
            Err(_) => name,
        },
        _ => name,
    }
}

/// Returns true if a marker's format string has a `{}` for each argument without a name (these are called `arg0`, `arg1`, …) and no
/// names but those of arguments.
#[must_use]
pub const fn fits(format: &str, names: &[&str]) -> bool {
    let mut rest = format.as_bytes();
    let mut places = 0;
    loop {
        rest = match rest {
            [] => return places == unnamed(names),
            [b'{', b'{', after @ ..] | [b'}', b'}', after @ ..] => after,
            [b'{', after @ ..] => {
                let len = key_len(after);
                let (key, after) = after.split_at(len);
                if key.is_empty() {
                    places += 1;
                } else if !is_one_of(key, names) {
                    return false;
                }
                match behind_brace(after) {
                    Some(after) => after,
                    None => return false,
                }
            }
            [_, after @ ..] => after,
        };
    }
}

/// Bytes up to the `:` or `}`.
const fn key_len(text: &[u8]) -> usize {
    let mut len = 0;
    while len < text.len() && text[len] != b':' && text[len] != b'}' {
        len += 1;
    }
    len
}

const fn behind_brace(mut text: &[u8]) -> Option<&[u8]> {
    while let [first, after @ ..] = text {
        if *first == b'}' {
            return Some(after);
        }
        text = after;
    }
    None
}

const fn unnamed(names: &[&str]) -> usize {
    let (mut count, mut rest) = (0, names);
    while let [name, others @ ..] = rest {
        if matches!(name.as_bytes(), [b'a', b'r', b'g', b'0'..=b'9'] | [b'a', b'r', b'g', b'1', b'0'..=b'5']) {
            count += 1;
        }
        rest = others;
    }
    count
}

const fn is_one_of(key: &[u8], names: &[&str]) -> bool {
    let mut rest = names;
    while let [name, others @ ..] = rest {
        if is_equal(key, name.as_bytes()) {
            return true;
        }
        rest = others;
    }
    false
}

const fn is_equal(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, a_rest @ ..], [y, b_rest @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (a_rest, b_rest);
    }
    a.is_empty() && b.is_empty()
}
