//! A reader of JSON, for judges: as strict as the project's own output is regular.

/// A value. Numbers stay as their digits, so that no float is rounded.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The digits.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// The members of an object, in their order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Returns the member of this name.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the text of a string.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// Reads one value, which is all of the text.
///
/// # Errors
/// The text is not JSON, has a blank between tokens, or has two members of one name in an object;
/// the error says where.
pub fn parse(text: &str) -> Result<Json, String> {
    let mut rest = text;
    let json = value(&mut rest).map_err(|error| {
        format!("not JSON: {error}, before {:?}", rest.chars().take(60).collect::<String>())
    })?;
    ensure(rest.is_empty(), "the text goes on")?;
    Ok(json)
}

fn ensure(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

fn take(rest: &mut &str, prefix: &str) -> bool {
    let found = rest.strip_prefix(prefix);
    *rest = found.unwrap_or(rest);
    found.is_some()
}

/// One value. What is written has no blanks between tokens.
fn value(rest: &mut &str) -> Result<Json, String> {
    if take(rest, "{") {
        let mut members: Vec<(String, Json)> = Vec::new();
        while !take(rest, "}") {
            ensure(members.is_empty() || take(rest, ","), "no comma")?;
            let Json::Text(name) = value(rest)? else {
                return Err("a name that is no text".into());
            };
            ensure(take(rest, ":"), "no colon")?;
            ensure(
                members.iter().all(|(other, _)| *other != name),
                &format!("two members {name}"),
            )?;
            members.push((name, value(rest)?));
        }
        return Ok(Json::Object(members));
    }
    if take(rest, "[") {
        let mut list = Vec::new();
        while !take(rest, "]") {
            ensure(list.is_empty() || take(rest, ","), "no comma")?;
            list.push(value(rest)?);
        }
        return Ok(Json::List(list));
    }
    if take(rest, "\"") {
        return string(rest).map(Json::Text);
    }
    for (word, json) in
        [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
    {
        if take(rest, word) {
            return Ok(json);
        }
    }
    let end =
        rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
    ensure(end > 0, "no value")?;
    let (digits, after) = rest.split_at(end);
    *rest = after;
    Ok(Json::Number(digits.to_owned()))
}

/// A string after its opening quote.
fn string(rest: &mut &str) -> Result<String, String> {
    let mut text = String::new();
    let mut high = None;
    loop {
        let c = rest.chars().next().ok_or("a string without an end")?;
        *rest = &rest[c.len_utf8()..];
        match c {
            '"' => {
                ensure(high.is_none(), "half a surrogate pair")?;
                return Ok(text);
            }
            '\\' => {
                let c = rest.chars().next().ok_or("an escape without an end")?;
                *rest = &rest[c.len_utf8()..];
                match c {
                    '"' | '\\' | '/' => text.push(c),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    'u' => {
                        let digits = rest.get(..4).ok_or("four digits")?;
                        let unit = u32::from_str_radix(digits, 16).map_err(|_| "four digits")?;
                        *rest = &rest[4..];
                        match (high.take(), unit) {
                            (None, 0xd800..0xdc00) => high = Some(unit),
                            (Some(high), 0xdc00..0xe000) => {
                                let code = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
                                text.push(char::from_u32(code).ok_or("a character")?);
                            }
                            (None, _) => text.push(char::from_u32(unit).ok_or("a character")?),
                            _ => return Err("half a surrogate pair".into()),
                        }
                    }
                    _ => return Err(format!("the escape \\{c}")),
                }
            }
            _ => {
                ensure(u32::from(c) >= 32, "a bare control character")?;
                text.push(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_written() {
        let json = parse("{\"a\":[1.50,-2e3,null],\"b\":\"\\u00e9\\ud83d\\ude00\\n\"}").unwrap();
        let number = |digits: &str| Json::Number(digits.to_owned());
        assert_eq!(
            json.get("a"),
            Some(&Json::List(vec![number("1.50"), number("-2e3"), Json::Null]))
        );
        assert_eq!(json.get("b").and_then(Json::text), Some("é😀\n"));
    }

    #[test]
    fn what_is_no_json() {
        for text in ["", "{", "[1", "\"a", "{\"a\":1,\"a\":2}", "1 2", "\"\\ud800\"", "\"\u{1}\""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
