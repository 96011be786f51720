//! One place of configuration: TOML text, checked against the table of keys, as a list of settings.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Error;
use super::keys::{self, Found, Key, Kind, Untrusted};

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Count(u32),
    Flag(bool),
    Number(f64),
    List(Vec<String>),
}

/// A key that one place sets.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<String>,
    pub(super) key: &'static Key,
    pub(super) value: Value,
    /// Where it is set, for people.
    pub(super) origin: String,
}

/// All that one place sets.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) items: Vec<Item>,
    pub(super) warnings: Vec<String>,
    /// Values of the wrong type, in the order of the text.
    pub(super) faults: Vec<Fault>,
}

/// A value of the wrong type. It stops crab, unless the key has no say where it stands.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<String>,
    pub(super) untrusted: Untrusted,
    pub(super) error: Error,
}

impl Layer {
    /// The layer, when all its values have the right type.
    pub(super) fn sound(mut self) -> Result<Self, Error> {
        if self.faults.is_empty() { Ok(self) } else { Err(self.faults.remove(0).error) }
    }
}

/// Reads a file; a missing one sets nothing.
pub(super) fn read(file: &Path) -> Result<Layer, Error> {
    match text_of(file) {
        Ok(None) => Ok(Layer::default()),
        Ok(Some(bytes)) => parse_bytes(&bytes, &format!("`{}`", file.display())),
        Err(why) => Err(Error::Invalid(format!("cannot read the configuration `{}`: {why}", file.display()))),
    }
}

fn text_of(file: &Path) -> Result<Option<Vec<u8>>, String> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    const LIMIT: u64 = 1024 * 1024;
    let meta = match file.metadata() {
        Err(err) if matches!(err.kind(), NotFound | NotADirectory) => return Ok(None),
        meta => meta.map_err(|err| err.to_string())?,
    };
    // A pipe or a device that a repository links to would never end.
    if !meta.is_file() {
        return Err("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    let handle = std::fs::File::open(file).map_err(|err| err.to_string())?;
    handle.take(LIMIT + 1).read_to_end(&mut bytes).map_err(|err| err.to_string())?;
    if bytes.len() as u64 > LIMIT {
        return Err("it is larger than 1 MB".into());
    }
    Ok(Some(bytes))
}

fn parse_bytes(bytes: &[u8], name: &str) -> Result<Layer, Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, name),
        Err(err) => {
            let line = bytes[..err.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(Error::Invalid(format!("{name} line {line}: the text is not UTF-8")))
        }
    }
}

/// Reads TOML text; `name` is how messages call it.
pub(super) fn parse(text: &str, name: &str) -> Result<Layer, Error> {
    let table = DeTable::parse(text).map_err(|err| {
        let place = err.span().map_or_else(|| name.to_owned(), |span| place(name, text, &span));
        Error::Invalid(format!("{place}: not valid TOML: {}", err.message().replace('\n', "; ")))
    })?;
    let mut reader = Reader { text, name, layer: Layer::default() };
    reader.table(table.get_ref(), &mut Vec::new());
    Ok(reader.layer)
}

/// Reads `KEY=VALUE` of the command line. A value that is no TOML is a string, so that nobody has to quote twice.
pub(super) fn parse_override(text: &str) -> Result<Layer, Error> {
    let usage =
        || Error::Invalid(format!("`--config {text}`: expected KEY=VALUE, such as `--config max_turns=5`"));
    let (key, value) = text.split_at(equals(text).ok_or_else(usage)?);
    let (key, value) = (key.trim(), value[1..].trim());
    let path = key_path(key).ok_or_else(usage)?;
    let kind = match keys::find(&path) {
        Found::Key(key) => Some(key.kind),
        _ => None,
    };
    let name = "--config";
    let quoted = serde_json::Value::String(value.to_owned()).to_string();
    let parts = || value.split(',').map(|part| serde_json::Value::String(part.trim().into()).to_string());
    let is_array = value.starts_with('[');
    let is_string = value.starts_with(['"', '\'']);
    let value = match kind {
        Some(Kind::Text | Kind::Choice(_)) if !is_string => quoted,
        Some(Kind::Names) if !is_array => format!("[{}]", parts().collect::<Vec<_>>().join(",")),
        Some(Kind::Rules) if !is_array => format!("[{quoted}]"),
        _ if DeTable::parse(&format!("x = {value}")).is_err() => quoted,
        _ => value.to_owned(),
    };
    let layer = parse(&format!("{key} = {value}"), name)?.sound()?;
    // A line break in the value would let it set other keys.
    if layer.items.iter().all(|item| item.path.starts_with(&path)) { Ok(layer) } else { Err(usage()) }
}

/// Where the first `=` stands that is not in quotes.
fn equals(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, c)| {
        match (quote, c) {
            (None, '=') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        None
    })
}

fn key_path(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    if text.contains(['\n', '\r', '#']) || key.starts_with('[') {
        return None;
    }
    let table = DeTable::parse(&text).ok()?;
    let mut table = table.get_ref();
    let mut path = Vec::new();
    loop {
        let (name, value) = table.iter().next()?;
        path.push(name.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}

/// `FILE line L, column C`.
fn place(name: &str, text: &str, span: &Range<usize>) -> String {
    let before = &text[..text.floor_char_boundary(span.start.min(text.len()))];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{name} line {line}, column {column}")
}

struct Reader<'a> {
    text: &'a str,
    name: &'a str,
    layer: Layer,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &mut Vec<String>) {
        // In the order of the text, so that the first fault is the one that is told.
        let mut fields: Vec<_> = table.iter().collect();
        fields.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in fields {
            path.push(name.get_ref().to_string());
            match (keys::find(path), value.get_ref()) {
                (Found::Key(key), _) => self.value(key, path, value),
                (Found::Table, DeValue::Table(inner)) => self.table(inner, path),
                (Found::Table, _) => self.wrong(path, value, ("a table", keys::below(path))),
                (Found::Unknown, _) => {
                    let warning = self.unknown(path, &name.span());
                    self.layer.warnings.push(warning);
                }
            }
            path.pop();
        }
    }

    fn value(&mut self, key: &'static Key, path: &[String], value: &Spanned<DeValue<'_>>) {
        match check(key.kind, value.get_ref()) {
            Some(checked) => {
                let origin = self.origin(&value.span());
                self.layer.items.push(Item { path: path.to_vec(), key, value: checked, origin });
            }
            None => self.wrong(path, value, (&key.kind.expected(), key.untrusted)),
        }
    }

    fn wrong(
        &mut self,
        path: &[String],
        value: &Spanned<DeValue<'_>>,
        (expected, untrusted): (&str, Untrusted),
    ) {
        let place = self.place(&value.span());
        let key = keys::shown(path);
        let error = Error::Invalid(format!(
            "{place}: `{key}` must be {expected}, and is {}",
            described(value.get_ref(), expected)
        ));
        self.layer.faults.push(Fault { path: path.to_vec(), untrusted, error });
    }

    fn unknown(&self, path: &[String], span: &Range<usize>) -> String {
        let (place, key) = (self.place(span), keys::shown(path));
        if path.last().is_some_and(|name| name == "api_key") {
            return format!(
                "{place}: unknown key `{key}`: a key belongs into `auth.json` of crab's home, or into the environment"
            );
        }
        let hint = keys::nearest(path).map(|meant| format!(", did you mean `{meant}`?")).unwrap_or_default();
        format!("{place}: unknown key `{key}`{hint}")
    }

    fn place(&self, span: &Range<usize>) -> String {
        if self.name.starts_with("--") { self.name.to_owned() } else { place(self.name, self.text, span) }
    }

    fn origin(&self, span: &Range<usize>) -> String {
        let place = self.place(span);
        place.rsplit_once(", column").map_or(place.clone(), |(line, _)| line.to_owned())
    }
}

fn check(kind: Kind, value: &DeValue<'_>) -> Option<Value> {
    match kind {
        Kind::Text => Some(Value::Text(value.as_str()?.to_owned())),
        Kind::Choice(words) => {
            let text = value.as_str()?;
            words.contains(&text).then(|| Value::Text(text.to_owned()))
        }
        Kind::Flag => value.as_bool().map(Value::Flag),
        Kind::Count(least) => {
            let whole = value.as_integer()?;
            let count = u32::from_str_radix(whole.as_str(), whole.radix()).ok()?;
            (count >= least).then_some(Value::Count(count))
        }
        Kind::Seconds => number(value).filter(|seconds| *seconds > 0.0).map(Value::Number),
        Kind::Dollars => number(value).filter(|dollars| *dollars >= 0.0).map(Value::Number),
        Kind::Names | Kind::Rules => {
            let texts = value.as_array()?.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<_>>().map(Value::List)
        }
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    /// Thirty years: more than that is a slip, and the clock cannot take much more.
    const MOST: f64 = 1e9;
    let number: f64 = match value {
        DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number <= MOST).then_some(number)
}

fn described(value: &DeValue<'_>, expected: &str) -> String {
    match value {
        DeValue::Integer(whole) if whole.radix() == 10 => format!("the integer {}", whole.as_str()),
        DeValue::Integer(_) => "an integer".into(),
        DeValue::Float(float) => format!("the number {}", float.as_str()),
        DeValue::Boolean(truth) => format!("the boolean {truth}"),
        // Not the string itself: it may be a key in the wrong place.
        DeValue::String(_) if expected.starts_with("a string") => "another string".into(),
        DeValue::String(_) => "a string".into(),
        DeValue::Datetime(_) => "a date or time".into(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}
