//! Why a text was not found: the nearest place to it, and how that differs, in words.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::clip;
use crate::text_file::{find_all, line_number};

/// Differences that are told.
const MAX_TOLD: usize = 3;
/// Characters, from the first difference on, that are compared.
const WINDOW: usize = 400;
/// Lines of the file that are shown.
const MAX_LINES: usize = 10;
/// Bytes of the wanted text that are enough to know its place.
const MAX_WANTED: usize = 4_000;

/// Says where in `body` something like `old` is and how it differs. For a miss only.
pub(crate) fn explain(body: &[u8], old: &str, cr_style: bool) -> String {
    if body.is_empty() {
        return "`old` was not found: the file is empty; `write` fills it".into();
    }
    if let Some(slip) = slip(body, old, cr_style) {
        return format!("`old` was not found as it is, but {slip}");
    }
    let Some((span, others)) = nearest(body, old) else {
        return "`old` was not found, and no place in the file is like it: read the file again".into();
    };
    let span = with_margins(body, span, old);
    let first = line_number(body, span.start, cr_style);
    let actual = breaks_as_written(&String::from_utf8_lossy(&body[span.clone()]), old, cr_style);
    let mut text = format!("`old` was not found. The nearest place is at line {first}");
    if others > 0 {
        let _ = write!(text, " ({others} more like it)");
    }
    let told = differences(old, &actual, first);
    let _ = write!(text, ":\n{}", told.join("\n"));
    let _ = write!(text, "\nthe file has there:\n{}", excerpt(body, &span, first, cr_style));
    text
}

/// A text that was meant and is in the file, spoilt on its way in a way that is well known.
fn slip(body: &[u8], old: &str, cr_style: bool) -> Option<&'static str> {
    let found = |text: &str| !text.is_empty() && find_all(body, text.as_bytes(), true, cr_style).count > 0;
    let numbered = old.lines().map(|line| {
        let (number, text) = line.split_once('\t')?;
        number.trim().parse::<usize>().ok().map(|_| text)
    });
    if numbered.collect::<Option<Vec<_>>>().is_some_and(|lines| found(&lines.join("\n"))) {
        return Some("without the line numbers of `read` it is there: give the text behind the tabs alone");
    }
    let plain = old.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\\\", "\\");
    if plain != old && found(&plain) {
        return Some(
            "with its escapes resolved it is there: `old` has a backslash and a letter (`\\n`, `\\t`, `\\\"` or `\\\\`) where \
             the file has the character itself",
        );
    }
    let plain = old.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    if plain != old && found(&plain) {
        return Some("with `<`, `>`, `\"` and `&` in place of the HTML entities in `old` it is there");
    }
    None
}

/// The place that is most like `old`, and how many more are as like it.
fn nearest(body: &[u8], old: &str) -> Option<(Range<usize>, usize)> {
    let (wanted, folded) = (folded(old.as_bytes()), folded(body));
    let same = find_all(&folded, &wanted, false, false);
    if let Some(span) = same.spans.first() {
        return Some((unfolded(body, span), same.count - 1));
    }
    Some((unfolded(body, &most_alike(&folded, &wanted)?), 0))
}

/// Each short piece of the wanted text votes for the place where the text would begin if that piece were in its
/// place. One pass, however long the lines are.
fn most_alike(folded: &[u8], wanted: &[u8]) -> Option<Range<usize>> {
    let whole = wanted.len();
    let wanted = &wanted[..whole.min(MAX_WANTED)];
    let length = if wanted.len() < 60 { 3 } else { 6 };
    let slots = 1 << 14;
    let slot = |piece: &[u8]| {
        let hash =
            piece.iter().fold(0usize, |hash, byte| hash.wrapping_mul(131).wrapping_add(usize::from(*byte)));
        hash.wrapping_mul(0x9E37_79B9) >> 7 & (slots - 1)
    };
    let mut index = vec![usize::MAX; slots];
    for (at, piece) in wanted.windows(length).enumerate().rev() {
        index[slot(piece)] = at;
    }
    // Places that are close together share a bucket, so that a small insertion does not split the vote.
    let bucket = (wanted.len() / 8).clamp(4, 64);
    let mut votes = vec![0u32; (folded.len() + wanted.len()) / bucket + 2];
    for (at, piece) in folded.windows(length).enumerate() {
        let found = index[slot(piece)];
        if found != usize::MAX && wanted[found..found + length] == *piece {
            votes[(at + wanted.len() - found) / bucket] += 1;
        }
    }
    let score = |place: usize| votes[place] + votes[place + 1];
    let best = (0..votes.len() - 1).max_by_key(|place| (score(*place), std::cmp::Reverse(*place)))?;
    let pieces = index.iter().filter(|at| **at != usize::MAX).count();
    if score(best) < 2 || (score(best) as usize) * 5 < pieces {
        return None;
    }
    let hits = folded.windows(length).enumerate().skip((best * bucket).saturating_sub(wanted.len()));
    let hits = hits.take(2 * wanted.len() + 2 * bucket).filter_map(|(at, piece)| {
        let found = Some(index[slot(piece)]).filter(|found| *found != usize::MAX)?;
        let place = (at + wanted.len() - found) / bucket;
        (wanted[found..found + length] == *piece && (best..=best + 1).contains(&place)).then_some((at, found))
    });
    let hits: Vec<_> = hits.collect();
    let ((first, before), (last, reached)) = (*hits.first()?, *hits.last()?);
    Some(first.saturating_sub(before)..(last + whole - reached).min(folded.len()))
}

/// Letters and signs without what is easily mistaken: white space, case, accents, kinds of quotes and dashes.
fn folded(text: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(text.len());
    each_folded(text, |_, piece| {
        folded.extend_from_slice(piece);
        true
    });
    folded
}

/// The bytes of the text behind a span of its folded form.
fn unfolded(text: &[u8], span: &Range<usize>) -> Range<usize> {
    let (mut at, mut start, mut end) = (0, text.len(), text.len());
    each_folded(text, |raw, piece| {
        if at <= span.start && span.start < at + piece.len() {
            start = raw.start;
        }
        at += piece.len();
        if at >= span.end {
            end = raw.end;
        }
        at < span.end
    });
    start..end
}

/// Calls `each` with every character's place and folded form until it has enough.
fn each_folded(text: &[u8], mut each: impl FnMut(Range<usize>, &[u8]) -> bool) {
    let (mut at, mut buffer) = (0, [0; 4]);
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let raw = at..at + c.len_utf8();
            at = raw.end;
            let piece = match c {
                ' ' | '\n' | '\t' | '\r' => continue,
                c if c.is_ascii() => {
                    buffer[0] = c.to_ascii_lowercase() as u8;
                    &buffer[..1]
                }
                c => match fold(c) {
                    Some(c) => c.encode_utf8(&mut buffer).as_bytes(),
                    None => continue,
                },
            };
            if !each(raw, piece) {
                return;
            }
        }
        at += chunk.invalid().len();
    }
}

/// A character beyond ASCII, or nothing for one that cannot be seen.
fn fold(c: char) -> Option<char> {
    let c = c.to_lowercase().next().unwrap_or(c);
    Some(match c {
        c if c.is_whitespace() => return None,
        '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{2060}' | '\u{FEFF}' | '\u{300}'..='\u{36F}' => return None,
        '‘' | '’' | '‚' | '‛' | '′' => '\'',
        '“' | '”' | '„' | '‟' | '″' => '"',
        '‐'..='―' | '−' => '-',
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' => 'i',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò'..='ö' | 'ō' | 'ŏ' | 'ő' => 'o',
        'ś' | 'ŝ' | 'ş' | 'š' => 's',
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(c as u32 - 0xFEE0)?.to_ascii_lowercase(),
        c => c,
    })
}

/// The span with the white space around it that belongs to what `old` begins and ends with.
fn with_margins(body: &[u8], span: Range<usize>, old: &str) -> Range<usize> {
    let lead = &old[..old.len() - old.trim_start().len()];
    let trail = &old[old.trim_end().len()..];
    let (mut start, mut end) = (span.start, span.end);
    if !lead.is_empty() {
        start -= margin(body[..start].iter().rev(), lead);
    }
    if !trail.is_empty() {
        end += margin(body[end..].iter(), trail);
    }
    start..end
}

fn margin<'a>(bytes: impl Iterator<Item = &'a u8>, model: &str) -> usize {
    let mut breaks = model.matches('\n').count();
    let belongs = |byte: &&u8| match byte {
        b' ' | b'\t' | b'\r' => true,
        b'\n' if breaks > 0 => {
            breaks -= 1;
            true
        }
        _ => false,
    };
    bytes.take_while(belongs).count()
}

/// Line breaks that `old` matches anyway are no difference.
fn breaks_as_written(actual: &str, old: &str, cr_style: bool) -> String {
    match () {
        () if old.contains('\r') => actual.to_owned(),
        () if cr_style => actual.replace('\r', "\n"),
        () => actual.replace("\r\n", "\n"),
    }
}

fn differences(old: &str, actual: &str, first: usize) -> Vec<String> {
    let common = old.chars().zip(actual.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let mut line = first + actual[..common].matches('\n').count();
    let window = |text: &str| text[common..].chars().take(WINDOW).collect::<String>();
    let (from, to) = (window(old), window(actual));
    let diff = TextDiff::configure().timeout(Duration::from_millis(20)).diff_chars(&*from, &*to);
    let (mut told, mut wanted, mut there) = (Vec::new(), String::new(), String::new());
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Delete => wanted.push_str(change.value()),
            ChangeTag::Insert => there.push_str(change.value()),
            ChangeTag::Equal => {
                tell(&mut told, &mut wanted, &mut there, &mut line);
                line += change.value().matches('\n').count();
            }
        }
    }
    tell(&mut told, &mut wanted, &mut there, &mut line);
    if told.len() > MAX_TOLD {
        let more = told.len() - MAX_TOLD;
        told.truncate(MAX_TOLD);
        told.push(format!("- and {more} or more other differences"));
    }
    told
}

/// Puts one difference into words and starts the next.
fn tell(told: &mut Vec<String>, wanted: &mut String, there: &mut String, line: &mut usize) {
    if wanted.is_empty() && there.is_empty() {
        return;
    }
    let same_letters = wanted.to_lowercase() == there.to_lowercase();
    let note = if same_letters { " (upper and lower case)" } else { "" };
    told.push(format!(
        "- line {line}: the file has {} where `old` has {}{note}",
        words(there),
        words(wanted)
    ));
    *line += there.matches('\n').count();
    wanted.clear();
    there.clear();
}

/// A piece of text in words: what cannot be seen or told apart has a name and a code.
fn words(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return "nothing".into() };
    let count = text.chars().count();
    if let Some(name) = name(first)
        && chars.all(|c| c == first)
    {
        return if count == 1 { format!("a {name}") } else { format!("{count} × {name}") };
    }
    let shown = clip::line(text, 60).replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    let mut odd: Vec<_> = text.chars().filter(|c| !c.is_ascii()).map(coded).collect();
    odd.dedup();
    odd.truncate(4);
    if odd.is_empty() { format!("`{shown}`") } else { format!("`{shown}` ({})", odd.join(", ")) }
}

fn coded(c: char) -> String {
    match name(c) {
        Some(name) => name,
        None => format!("U+{:04X}", c as u32),
    }
}

fn name(c: char) -> Option<String> {
    let name = match c {
        ' ' => return Some("space".into()),
        '\t' => return Some("tab".into()),
        '\n' => return Some("line break".into()),
        '\r' => return Some("carriage return (CR of a CRLF line end)".into()),
        '\u{A0}' => "no-break space",
        '\u{202F}' => "narrow no-break space",
        '\u{3000}' => "ideographic space",
        '\u{200B}' => "zero-width space",
        '\u{200C}' => "zero-width non-joiner",
        '\u{200D}' => "zero-width joiner",
        '\u{2060}' => "word joiner",
        '\u{FEFF}' => "byte order mark",
        '\u{AD}' => "soft hyphen",
        '‘' | '’' => "curly single quote",
        '“' | '”' => "curly double quote",
        '–' => "en dash",
        '—' => "em dash",
        '…' => "ellipsis",
        '\u{300}'..='\u{36F}' => "combining accent",
        '\u{FFFD}' => "byte that is not UTF-8",
        c if c.is_whitespace() => "special space",
        _ => return None,
    };
    Some(format!("U+{:04X} {name}", c as u32))
}

/// The lines of the place, numbered as `read` does it.
fn excerpt(body: &[u8], span: &Range<usize>, first: usize, cr_style: bool) -> String {
    let end = if cr_style { b'\r' } else { b'\n' };
    let start = body[..span.start].iter().rposition(|byte| *byte == end).map_or(0, |at| at + 1);
    // Of a line without end only what is near the place is worth a look.
    let start = start.max(span.start.saturating_sub(200));
    let last = body[start..span.end].strip_suffix(&[end]).map_or(span.end, |inside| start + inside.len());
    let stop = body[last..].iter().position(|byte| *byte == end).map_or(body.len(), |at| last + at);
    let lines: Vec<_> = body[start..stop].split(|byte| *byte == end).collect();
    let mut shown = String::new();
    for (index, line) in lines.iter().take(MAX_LINES).enumerate() {
        let line = String::from_utf8_lossy(&line[..line.len().min(4 * WINDOW)]);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        let _ = writeln!(shown, "{}\t{}", first + index, clip::line(line, WINDOW));
    }
    if lines.len() > MAX_LINES {
        let _ = writeln!(shown, "[... {} more lines]", lines.len() - MAX_LINES);
    }
    shown.truncate(shown.trim_end_matches('\n').len());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, old: &str, expected: &[&str]) {
        let cr_style = !body.contains('\n') && body.contains('\r');
        assert_eq!(find_all(body.as_bytes(), old.as_bytes(), !old.contains('\r'), cr_style).count, 0);
        let text = explain(body.as_bytes(), old, cr_style);
        for expected in expected {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
    }

    #[test]
    fn a_miss_names_what_differs() {
        check(
            "the list in\u{A0}current week\n",
            "list in current",
            &["line 1", "a U+00A0 no-break space where `old` has a space"],
        );
        check(
            "a\nsay “hi” now\n",
            "say \"hi\" now",
            &["line 2", "U+201C curly double quote", "where `old` has `\"`"],
        );
        check("x\n\tfoo();\n", "    foo();", &["line 2", "a tab where `old` has 4 × space"]);
        check(
            "foo(1);  \nbar();\n",
            "foo(1);\nbar();",
            &["line 1: the file has 2 × space where `old` has nothing"],
        );
        check(
            "foo(1);\nbar();\n",
            "foo(1); \nbar();",
            &["line 1: the file has nothing where `old` has a space"],
        );
        check("let FooBar = 1;\n", "let fooBar = 1;", &["`F` where `old` has `f` (upper and lower case)"]);
        check("cafe\u{301} au lait\n", "café au lait", &["U+0301 combining accent", "U+00E9"]);
        check("one\ntwo\nthree\n", "one\r\ntwo", &["where `old` has a carriage return"]);
        check("a – b and c\n", "a - b and c", &["U+2013 en dash where `old` has `-`"]);
        check(
            "zero\u{200B}width here\n",
            "zerowidth here",
            &["U+200B zero-width space where `old` has nothing"],
        );
    }

    #[test]
    fn a_well_known_slip_is_named() {
        check("fn a() {\n\tb();\n}\n", "1\tfn a() {\n2\t\tb();", &["without the line numbers of `read`"]);
        check("a\nb\n", "a\\nb", &["escapes resolved"]);
        check("if a < b {\n", "if a &lt; b {", &["HTML entities"]);
    }

    #[test]
    fn another_wording_finds_its_place() {
        let mut lines: Vec<_> =
            (0..500).map(|n| format!("    let value_{n} = compute_{n}(input, {n});")).collect();
        lines[321] = "    let total = sum_of_all(the_parts, weights);".into();
        let body = lines.join("\n");
        check(
            &body,
            "let total = sum_of(the_parts, weights);",
            &["nearest place is at line 322", "`_all` where `old` has nothing"],
        );
        check(&body, "fn mian()", &["no place in the file is like it"]);
        check("fn main() {\n}\n", "fn mian()", &["nearest place is at line 1"]);
        check("a\nb\n", "nowhere", &["no place in the file is like it"]);
    }

    #[test]
    fn one_enormous_line_has_places_too() {
        let body = (0..20_000).map(|n| format!("{{\"id\":{n},\"name\":\"asset-{n}\"}},")).collect::<String>();
        check(&body, "{\"id\": 777,\"name\":\"asset-777\"}", &["line 1", "nothing where `old` has a space"]);
    }

    #[test]
    fn cr_files_are_explained_by_their_lines() {
        check("one\rtwo  x\rthree\r", "two x\nthree", &["line 2", "2\ttwo  x"]);
    }

    #[test]
    fn a_miss_in_a_large_file_ends() {
        let body = "    some_call(with, arguments);\n".repeat(40_000);
        let text = explain(body.as_bytes(), &"    some_call(with, argument);\n".repeat(50), false);
        assert!(text.contains("nearest place"), "{text}");
        assert!(text.len() < 4_000, "{}", text.len());
    }

    proptest::proptest! {
        #[test]
        fn no_input_breaks_it(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), old in "[ab é\u{A0}\n\r\t]{1,20}") {
            let text = explain(&body, &old, false);
            proptest::prop_assert!(text.starts_with("`old` was not found"));
        }

        #[test]
        fn a_near_text_never_breaks_it(body in "[abAé“ \n\r\t]{0,60}", old in "[abA\"e \n\r\t]{1,20}") {
            for cr_style in [false, true] {
                explain(body.as_bytes(), &old, cr_style);
            }
        }
    }
}
