//! Highlighter: what each piece of a code block is, told from its letters alone while it arrives.

/// No run of characters is waited for beyond this many bytes, so that little is held back and each byte is
/// looked at a bounded number of times.
const LIMIT: usize = 512;

/// Text that has arrived and is not printed yet. A look past what is there answers `None`, for "wait";
/// once the input has ended, its end looks like the end of a line. Whatever is decided with these looks
/// is decided the same way wherever the input was cut.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'a> {
    /// The text itself.
    pub(crate) rest: &'a str,
    /// Whether nothing comes after it.
    pub(crate) is_end: bool,
}

impl Ahead<'_> {
    /// The character at this byte.
    pub(crate) fn at(self, at: usize) -> Option<char> {
        self.rest[at..].chars().next().or_else(|| self.is_end.then_some('\n'))
    }

    /// Where the run of characters that starts at this byte ends.
    pub(crate) fn run(self, at: usize, is_in: impl Fn(char) -> bool) -> Option<usize> {
        let tail = self.rest[at..].char_indices();
        let end = tail.into_iter().find(|&(len, it)| !is_in(it) || len >= LIMIT).map(|(len, _)| at + len);
        end.or_else(|| self.is_end.then_some(self.rest.len()))
    }

    /// Whether the text starts with the mark.
    pub(crate) fn starts(self, mark: &str) -> Option<bool> {
        let is_open = !self.is_end && self.rest.len() < mark.len() && mark.starts_with(self.rest);
        (!is_open).then(|| self.rest.starts_with(mark))
    }

    /// Where the line ends, as far as it is there.
    pub(crate) fn line(self) -> usize {
        self.rest.find('\n').unwrap_or(self.rest.len())
    }
}

/// Whether names are made of it.
pub(crate) fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// Whether it is a blank within a line.
pub(crate) fn is_blank(it: char) -> bool {
    it == ' ' || it == '\t'
}

/// What a piece of code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing that stands out.
    Plain,
    /// A word of the language.
    Keyword,
    /// Text in quotes, with them.
    String,
    /// A comment, with its marks.
    Comment,
    /// A number.
    Number,
    /// A line that a diff adds.
    Inserted,
    /// A line that a diff removes.
    Deleted,
}

/// Colours one code block.
pub(crate) struct Highlighter {
    language: Option<&'static Language>,
    keywords: Vec<&'static str>,
    inside: Option<Delimiter>,
    previous: char,
}

impl Highlighter {
    /// For the language that this info string starts with; nothing stands out in one that is not known.
    pub(crate) fn new(info: &str) -> Self {
        let name = info.trim_start_matches([' ', '\t', '{', '.']);
        let name = name.split(|it: char| !is_word(it) && !"+#-".contains(it)).next().unwrap_or_default();
        let is_named = |it: &&Language| it.names.split(' ').any(|known| known.eq_ignore_ascii_case(name));
        let language = LANGUAGES.iter().find(is_named);
        let mut keywords: Vec<_> = language.map_or("", |it| it.keywords).split_whitespace().collect();
        keywords.sort_unstable();
        Self { language, keywords, inside: None, previous: '\n' }
    }

    /// The length of the next piece and what it is, or `None` to wait for more. Pieces do not reach over the
    /// end of a line: whoever asks takes `\n` and calls [`Self::newline`].
    pub(crate) fn piece(&mut self, ahead: Ahead) -> Option<(usize, Kind)> {
        let Some(language) = self.language else { return Some((ahead.line(), Kind::Plain)) };
        let (len, kind) = match self.inside {
            Some(delimiter) => self.within(ahead, delimiter)?,
            None => self.without(ahead, language)?,
        };
        self.previous = ahead.rest[..len].chars().next_back().unwrap_or(self.previous);
        Some((len, kind))
    }

    /// A line has ended.
    pub(crate) fn newline(&mut self) {
        self.inside = self.inside.filter(|it| it.spans_lines);
        self.previous = '\n';
    }

    fn within(&mut self, ahead: Ahead, delimiter: Delimiter) -> Option<(usize, Kind)> {
        let Delimiter { close, kind, escapes, .. } = delimiter;
        let Some(stop) = close.chars().next() else { return Some((ahead.line(), kind)) };
        if ahead.starts(close)? {
            self.inside = None;
            return Some((close.len(), kind));
        }
        let first = ahead.at(0)?;
        if escapes && first == '\\' {
            let next = ahead.at(1)?;
            return Some((if next == '\n' { 1 } else { 1 + next.len_utf8() }, kind));
        }
        let tail = &ahead.rest[first.len_utf8()..];
        let len = tail.find([stop, '\\', '\n']).unwrap_or(tail.len());
        Some((first.len_utf8() + len, kind))
    }

    fn without(&mut self, ahead: Ahead, language: &Language) -> Option<(usize, Kind)> {
        let first = ahead.at(0)?;
        let byte = ahead.rest.as_bytes().first();
        for delimiter in language.delimiters.iter().filter(|it| it.open.as_bytes().first() == byte) {
            if ahead.starts(delimiter.open)? && delimiter.opens(self.previous, ahead)? {
                self.inside = Some(*delimiter);
                return Some((delimiter.open.len(), delimiter.kind));
            }
        }
        if is_blank(first) {
            return Some((
                ahead.rest.bytes().take_while(|it| is_blank(char::from(*it))).count(),
                Kind::Plain,
            ));
        }
        if !is_word(first) {
            return Some((first.len_utf8(), Kind::Plain));
        }
        let len = ahead.run(0, is_word)?;
        if is_word(self.previous) || self.keywords.is_empty() {
            return Some((len, Kind::Plain));
        }
        if first.is_ascii_digit() {
            let is_fraction = ahead.at(len)? == '.' && ahead.at(len + 1)?.is_ascii_digit();
            let len = if is_fraction { ahead.run(len + 1, is_word)? } else { len };
            return Some((len, Kind::Number));
        }
        let is_keyword = self.is_keyword(&ahead.rest[..len], language.folds_case);
        Some((len, if is_keyword { Kind::Keyword } else { Kind::Plain }))
    }

    /// `a.type`, `$if` and `for-in` are names, whatever word they end in.
    fn is_keyword(&self, word: &str, folds_case: bool) -> bool {
        let is_known = |word: &str| self.keywords.binary_search(&word).is_ok();
        !".$-".contains(self.previous)
            && (is_known(word) || folds_case && is_known(&word.to_ascii_lowercase()))
    }
}

/// A stretch between two marks. An empty `close` is the end of the line.
#[derive(Clone, Copy)]
struct Delimiter {
    open: &'static str,
    close: &'static str,
    kind: Kind,
    escapes: bool,
    spans_lines: bool,
    place: Place,
}

/// Where a delimiter counts.
#[derive(Clone, Copy)]
enum Place {
    Anywhere,
    AfterBlank,
    LineStart,
    /// Around one character or one escape: in many languages `'` is other things too.
    Character,
}

impl Delimiter {
    const fn comment(open: &'static str, close: &'static str) -> Self {
        let spans_lines = !close.is_empty();
        Self { open, close, kind: Kind::Comment, escapes: false, spans_lines, place: Place::Anywhere }
    }

    const fn string(open: &'static str, close: &'static str) -> Self {
        let place = Place::Anywhere;
        Self { open, close, kind: Kind::String, escapes: true, spans_lines: false, place }
    }

    const fn line(open: &'static str, kind: Kind) -> Self {
        Self { open, close: "", kind, escapes: false, spans_lines: false, place: Place::LineStart }
    }

    const fn raw(self) -> Self {
        Self { escapes: false, ..self }
    }

    const fn long(self) -> Self {
        Self { spans_lines: true, ..self }
    }

    const fn only(self, place: Place) -> Self {
        Self { place, ..self }
    }

    fn opens(&self, previous: char, ahead: Ahead) -> Option<bool> {
        Some(match self.place {
            Place::Anywhere => true,
            Place::AfterBlank => previous.is_whitespace(),
            Place::LineStart => previous == '\n',
            Place::Character => match ahead.at(1)? {
                '\\' => true,
                '\n' => false,
                other => ahead.at(1 + other.len_utf8())? == '\'',
            },
        })
    }
}

const SLASHES: Delimiter = Delimiter::comment("//", "");
const SLASH_STAR: Delimiter = Delimiter::comment("/*", "*/");
const DASHES: Delimiter = Delimiter::comment("--", "");
const HASH: Delimiter = Delimiter::comment("#", "").only(Place::AfterBlank);
const SEMICOLON: Delimiter = Delimiter::comment(";", "").only(Place::AfterBlank);
const TAGGED: Delimiter = Delimiter::comment("<!--", "-->");
const DOUBLE: Delimiter = Delimiter::string("\"", "\"");
const SINGLE: Delimiter = Delimiter::string("'", "'");
const CHARACTER: Delimiter = SINGLE.only(Place::Character);
const SINGLE_RAW: Delimiter = SINGLE.raw();
/// For text with apostrophes in it.
const SINGLE_APART: Delimiter = SINGLE_RAW.only(Place::AfterBlank);
const DOUBLE_LONG: Delimiter = DOUBLE.long();
const BACKTICK: Delimiter = Delimiter::string("`", "`").long();
const TRIPLE_DOUBLE: Delimiter = Delimiter::string("\"\"\"", "\"\"\"").long();
const TRIPLE_SINGLE: Delimiter = Delimiter::string("'''", "'''").long();

/// What there is to know of a language. One without keywords is text with marks in it: its numbers are plain.
struct Language {
    names: &'static str,
    /// Of two delimiters that start alike, the longer one comes first.
    delimiters: &'static [Delimiter],
    folds_case: bool,
    keywords: &'static str,
}

const fn language(names: &'static str, delimiters: &'static [Delimiter], keywords: &'static str) -> Language {
    Language { names, delimiters, folds_case: false, keywords }
}

const LANGUAGES: &[Language] = &[
    language(
        "rust rs",
        &[SLASHES, SLASH_STAR, Delimiter::string("r#\"", "\"#").raw().long(), DOUBLE_LONG, CHARACTER],
        "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match \
         mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    ),
    language(
        "python py python3 pyi",
        &[HASH, TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE],
        "False None True and as assert async await break case class continue def del elif else except finally \
         for from global if import in is lambda match nonlocal not or pass raise return try while with yield",
    ),
    language(
        "javascript js jsx mjs cjs typescript ts tsx mts",
        &[SLASHES, SLASH_STAR, DOUBLE, SINGLE, BACKTICK],
        "abstract any as async await boolean break case catch class const continue debugger declare default \
         delete do else enum export extends false finally for from function if implements import in instanceof \
         interface keyof let namespace never new null number of private protected public readonly return \
         static string super switch this throw true try type typeof undefined unknown var void while yield",
    ),
    language(
        "bash sh shell zsh ksh fish",
        &[HASH, DOUBLE, SINGLE_RAW],
        "case do done elif else esac exit export fi for function if in local readonly return select set shift \
         source then trap unset until while",
    ),
    language("console shell-session terminal", &[DOUBLE], ""),
    language(
        "c h cpp c++ cc cxx hpp hh objc",
        &[SLASHES, SLASH_STAR, DOUBLE, CHARACTER],
        "alignas auto bool break case catch char class const constexpr continue default define delete do double \
         elif else endif enum explicit extern false final float for friend goto if ifdef ifndef include inline \
         int long mutable namespace new noexcept nullptr NULL operator override private protected public return \
         short signed sizeof static struct switch template this throw true try typedef typename undef union \
         unsigned using virtual void volatile while",
    ),
    language(
        "go golang",
        &[SLASHES, SLASH_STAR, DOUBLE, CHARACTER, BACKTICK.raw()],
        "any bool break byte case chan const continue default defer else error fallthrough false float64 for func \
         go goto if import int int64 interface map nil package range return rune select string struct switch true \
         type uint uint64 var",
    ),
    language(
        "java kotlin kt kts scala groovy",
        &[SLASHES, SLASH_STAR, TRIPLE_DOUBLE, DOUBLE, CHARACTER],
        "abstract as boolean break by case catch char class companion const continue data def default do double \
         else enum extends false final finally float for fun if implements import in instanceof int interface \
         internal is lateinit long match new null object open override package private protected public record \
         return sealed short static super suspend switch this throw throws trait true try val var void when while \
         with yield",
    ),
    language(
        "csharp cs c#",
        &[SLASHES, SLASH_STAR, Delimiter::string("@\"", "\"").raw().long(), DOUBLE, CHARACTER],
        "abstract as async await base bool break byte case catch char class const continue decimal default \
         delegate do double else enum event false finally float for foreach get if in int interface internal is \
         lock long namespace new null object out override params private protected public readonly record ref \
         return sealed set static string struct switch this throw true try typeof using var virtual void while \
         yield",
    ),
    language(
        "swift",
        &[SLASHES, SLASH_STAR, TRIPLE_DOUBLE, DOUBLE],
        "actor any as associatedtype async await break case catch class continue default defer do else enum \
         extension fallthrough false fileprivate for func guard if import in init inout internal is let mutating \
         nil open override private protocol public repeat return self Self some static struct super switch throw \
         throws true try typealias var where while",
    ),
    language(
        "ruby rb",
        &[
            HASH,
            Delimiter { place: Place::LineStart, ..Delimiter::comment("=begin", "=end") },
            DOUBLE,
            SINGLE,
        ],
        "alias and begin break case class def defined do else elsif end ensure extend false for if in include \
         module next nil not or raise redo require require_relative rescue retry return self super then true undef \
         unless until when while yield",
    ),
    language(
        "php",
        &[SLASHES, SLASH_STAR, HASH, DOUBLE, SINGLE],
        "abstract and array as break case catch class const continue declare default do echo else elseif extends \
         false final finally fn for foreach function if implements instanceof interface match namespace new null \
         or private protected public readonly require require_once return static switch this throw trait true try \
         use var while yield",
    ),
    Language {
        folds_case: true,
        ..language(
            "sql sqlite postgres postgresql mysql",
            &[DASHES, SLASH_STAR, SINGLE_RAW, DOUBLE.raw()],
            "add all alter and as asc begin between by case check column commit constraint create cross default \
             delete desc distinct drop else end exists explain false foreign from full group having if in index \
             inner insert into is join key left like limit not null offset on or order outer primary references \
             returning right rollback select set table then true union unique update using values view when where \
             with",
        )
    },
    language("json jsonc json5", &[SLASHES, SLASH_STAR, DOUBLE], "false null true"),
    language("yaml yml", &[HASH, DOUBLE, SINGLE_APART], "false null true"),
    language("toml", &[HASH, TRIPLE_DOUBLE, TRIPLE_SINGLE.raw(), DOUBLE, SINGLE_RAW], "false inf nan true"),
    language("ini cfg conf properties", &[HASH, SEMICOLON, DOUBLE], "false no off on true yes"),
    language("html xml svg vue svelte", &[TAGGED, Delimiter::string("=\"", "\"").raw()], ""),
    language(
        "css scss sass less",
        &[SLASHES.only(Place::AfterBlank), SLASH_STAR, DOUBLE, SINGLE],
        "charset container extend forward import important include keyframes layer media mixin property supports \
         use",
    ),
    language(
        "dockerfile docker containerfile",
        &[HASH, DOUBLE, SINGLE_APART],
        "ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL USER VOLUME \
         WORKDIR",
    ),
    language(
        "makefile make mk",
        &[HASH, DOUBLE, SINGLE_APART],
        "PHONY define else endef endif export ifdef ifeq ifndef ifneq include override unexport",
    ),
    language(
        "diff patch",
        &[
            Delimiter::line("+", Kind::Inserted),
            Delimiter::line("-", Kind::Deleted),
            Delimiter::line("@@", Kind::Comment),
        ],
        "",
    ),
    language(
        "lua",
        &[
            Delimiter::comment("--[[", "]]"),
            DASHES,
            DOUBLE,
            SINGLE,
            Delimiter::string("[[", "]]").raw().long(),
        ],
        "and break do else elseif end false for function goto if in local nil not or repeat return then true until \
         while",
    ),
    language(
        "zig",
        &[SLASHES, Delimiter::string("\\\\", "").raw(), DOUBLE, CHARACTER],
        "and anytype bool break catch comptime const continue defer else enum errdefer error export extern false \
         fn for if inline null or orelse packed pub return struct switch test true try undefined union unreachable \
         usize var void while",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that are not plain, as `kind:text`, with the code fed in steps of this many characters.
    fn pieces(language: &str, code: &str, step: usize) -> String {
        let (mut highlighter, mut held, mut out) = (Highlighter::new(language), String::new(), String::new());
        let (mut found, mut last) = (Vec::<(Kind, String)>::new(), Kind::Plain);
        let letters: Vec<char> = code.chars().collect();
        let mut chunks = letters.chunks(step).map(|it| it.iter().collect::<String>());
        loop {
            let chunk = chunks.next();
            held.push_str(chunk.as_deref().unwrap_or_default());
            loop {
                let (len, kind) = match held.chars().next() {
                    None => break,
                    Some('\n') => {
                        highlighter.newline();
                        (1, Kind::Plain)
                    }
                    Some(_) => match highlighter.piece(Ahead { rest: &held, is_end: chunk.is_none() }) {
                        Some(piece) => piece,
                        None => break,
                    },
                };
                let text: String = held.drain(..len).collect();
                out.push_str(&text);
                match found.last_mut() {
                    Some((kind_before, before)) if *kind_before == kind && last == kind => {
                        before.push_str(&text)
                    }
                    _ if kind == Kind::Plain => {}
                    _ => found.push((kind, text)),
                }
                last = kind;
            }
            assert!(held.len() <= LIMIT + 4, "held back: {held}");
            if chunk.is_none() {
                break;
            }
        }
        assert_eq!(out, code);
        found.iter().map(|(kind, text)| format!("{kind:?}:{text}\n")).collect()
    }

    #[track_caller]
    fn check(language: &str, code: &str, expected: &str) {
        let expected: String = expected.lines().map(|it| format!("{}\n", it.trim_start())).collect();
        for step in [1, 2, 3, 5, 1000] {
            assert_eq!(pieces(language, code, step), expected, "in steps of {step}");
        }
    }

    #[test]
    fn rust_tells_a_lifetime_from_a_character() {
        check(
            "rust,ignore",
            "fn a<'a>(x: &'a str) -> char { '\\'' } // it's\nlet r#\"b\"# = 'c' + r#\"\"q\"\"#;",
            "Keyword:fn
             String:'\\''
             Comment:// it's
             Keyword:let
             String:r#\"b\"#
             String:'c'
             String:r#\"\"q\"\"#",
        );
    }

    #[test]
    fn a_block_comment_and_a_triple_quote_go_on_over_lines() {
        check(
            "c",
            "/* a\n \"b\" */ int x = 0x1F;",
            "Comment:/* a\nComment: \"b\" */\nKeyword:int\nNumber:0x1F",
        );
        check("py", "x = \"\"\"a\nif \"\" b\"\"\" if", "String:\"\"\"a\nString:if \"\" b\"\"\"\nKeyword:if");
    }

    #[test]
    fn an_open_string_ends_with_its_line_where_the_language_says_so() {
        check("js", "a = 'b\nreturn 1.5", "String:'b\nKeyword:return\nNumber:1.5");
        check("bash", "echo 'a\\' $# ${x#y} # c", "String:'a\\'\nComment:# c");
    }

    #[test]
    fn a_keyword_is_a_whole_word_that_is_no_member() {
        check("TS", "x.type = iffy + $if + if_ + 1..max", "Number:1");
        check("SQL", "Select 'it''s' from t", "Keyword:Select\nString:'it''s'\nKeyword:from");
    }

    #[test]
    fn a_diff_colours_whole_lines_by_their_first_character() {
        let diff = "@@ -1 +1 @@\n-a + b\n+c - d\n +e\n";
        check("diff", diff, "Comment:@@ -1 +1 @@\nDeleted:-a + b\nInserted:+c - d");
    }

    #[test]
    fn markup_colours_its_attributes_and_not_its_prose() {
        check(
            "html",
            "<a href=\"x\">7 \"for\" it's</a> <!-- -\n-- -->",
            "String:=\"x\"\nComment:<!-- -\nComment:-- -->",
        );
        check("yaml", "a: it's true # no\nb: 'x' # y", "Keyword:true\nComment:# no\nString:'x'\nComment:# y");
    }

    #[test]
    fn an_unknown_language_and_an_endless_word_stay_plain() {
        check("brainfuck", "if \"x\" // 1", "");
        check("", "if \"x\" // 1", "");
        check("rs", &"if".repeat(2000), "");
    }

    #[test]
    fn the_table_is_consistent() {
        for language in LANGUAGES {
            for (at, first) in language.delimiters.iter().enumerate() {
                assert!(!first.open.is_empty(), "{}", language.names);
                for later in &language.delimiters[at + 1..] {
                    assert!(!later.open.starts_with(first.open), "{}: {}", language.names, later.open);
                }
            }
            for name in language.names.split(' ') {
                assert_eq!(
                    Highlighter::new(name).language.map(|it| it.names),
                    Some(language.names),
                    "{name}"
                );
            }
        }
    }
}
