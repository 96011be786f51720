//! A command line cut into words and simple commands, as bash would cut it.

#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) written: String,
    pub(super) text: String,
    pub(super) is_quoted: bool,
    /// It holds an unquoted character that makes bash put something else in its place.
    pub(super) expands: bool,
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<Word>,
    /// Those that matter.
    pub(super) redirections: Vec<String>,
    /// What a here-string gives it to read.
    pub(super) input: Option<String>,
}

/// A command line, cut into simple commands.
#[derive(Debug, Default)]
pub(super) struct Line {
    input: Vec<char>,
    at: usize,
    word: Option<Word>,
    redirection: Option<String>,
    simple: Simple,
    pub(super) commands: Vec<Simple>,
    pub(super) nested: Vec<String>,
    pub(super) opaque: bool,
    pub(super) is_broken: bool,
    pub(super) has_document: bool,
    has_operator: bool,
}

impl Line {
    pub(super) fn lex(command: &str) -> Self {
        let mut line =
            Self { input: command.trim_matches([' ', '\t', '\n']).chars().collect(), ..Self::default() };
        while let Some(c) = line.next() {
            line.step(c);
        }
        line.end_command();
        line
    }

    pub(super) fn plain(&self) -> Option<Vec<String>> {
        let [Simple { words, redirections, .. }] = self.commands.as_slice() else { return None };
        if self.has_operator
            || self.opaque
            || self.is_broken
            || !redirections.is_empty()
            || is_assignment(&words[0].text)
        {
            return None;
        }
        Some(words.iter().map(|word| word.text.clone()).collect())
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.input.get(self.at).copied()
    }

    fn step(&mut self, c: char) {
        match c {
            ' ' | '\t' => return self.end_word(),
            '\'' => return self.single_quoted(),
            '"' => return self.double_quoted(),
            c if c.is_alphanumeric() || "-_./,:+=@%^]".contains(c) => return self.put(c),
            // Within a word it is not a home folder: `HEAD~1`.
            '~' if self.word.as_ref().is_some_and(|word| !word.written.ends_with(['=', ':'])) => {
                return self.put(c);
            }
            _ => {}
        }
        self.has_operator = true;
        match c {
            '#' if self.word.is_none() => {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            }
            '&' if self.peek() == Some('>') => self.redirect('&'),
            '\n' | ';' | '&' | '|' => self.end_command(),
            '(' | ')' => {
                self.opaque = true;
                self.end_command();
            }
            '<' | '>' => self.redirect(c),
            '$' => self.dollar(false),
            '`' => self.backquoted(),
            '\\' => match self.next() {
                Some('\n') => {}
                Some(c) => self.quote(&['\\', c], &[c]),
                None => self.is_broken = true,
            },
            '*' | '?' | '[' | '{' | '}' | '~' => {
                // A lone brace is grammar, and stands for nothing else.
                let is_lone = self.word.is_none() && self.peek().is_none_or(|c| " \t\n;".contains(c));
                self.put(c);
                self.word.get_or_insert_default().expands |= !(is_lone && matches!(c, '{' | '}'));
            }
            c => self.put(c),
        }
    }

    fn put(&mut self, c: char) {
        let word = self.word.get_or_insert_default();
        word.written.push(c);
        word.text.push(c);
    }

    fn quote(&mut self, written: &[char], text: &[char]) {
        self.has_operator |= text.iter().any(|c| c.is_control());
        let word = self.word.get_or_insert_default();
        word.is_quoted = true;
        word.written.extend(written);
        word.text.extend(text);
    }

    fn expand(&mut self, from: usize) {
        self.opaque = true;
        let written: Vec<char> = self.input[from..self.at].to_vec();
        let word = self.word.get_or_insert_default();
        word.expands = true;
        word.written.extend(&written);
        word.text.extend(&written);
    }

    fn single_quoted(&mut self) {
        let from = self.at - 1;
        self.skip_to('\'');
        let written: Vec<char> = self.input[from..self.at].to_vec();
        let text = written[1..].strip_suffix(&['\'']).unwrap_or(&written[1..]);
        self.quote(&written, text);
    }

    fn skip_to(&mut self, end: char) {
        loop {
            match self.next() {
                None => return self.is_broken = true,
                Some(c) if c == end => return,
                Some(_) => {}
            }
        }
    }

    fn double_quoted(&mut self) {
        self.quote(&['"'], &[]);
        loop {
            match self.next() {
                None => return self.is_broken = true,
                Some('"') => return self.quote(&['"'], &[]),
                Some(c @ ('$' | '`' | '\\')) => {
                    self.has_operator = true;
                    match (c, self.next_if_escaped(c)) {
                        ('\\', Some('\n')) => {}
                        ('\\', Some(escaped)) => self.quote(&['\\', escaped], &[escaped]),
                        ('$', _) => self.dollar(true),
                        ('`', _) => self.backquoted(),
                        _ => self.quote(&[c], &[c]),
                    }
                }
                Some(c) => self.quote(&[c], &[c]),
            }
        }
    }

    fn next_if_escaped(&mut self, c: char) -> Option<char> {
        let escapes = c == '\\' && self.peek().is_some_and(|next| "$`\"\\\n".contains(next));
        if escapes { self.next() } else { None }
    }

    /// The `$` is read. Within double quotes, `$'` is nothing special.
    fn dollar(&mut self, in_quotes: bool) {
        let from = self.at - 1;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.enclosed('(', ')');
                self.expand(from);
            }
            Some('{') => {
                self.at += 1;
                self.enclosed('{', '}');
                self.expand(from);
            }
            Some('\'') if !in_quotes => {
                self.at += 1;
                self.ansi_quoted();
            }
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?$!-".contains(c) => {
                self.at += 1;
                self.expand(from);
            }
            // A string to be translated: its dollar is no part of it.
            Some('"') if !in_quotes => {}
            _ => self.put('$'),
        }
    }

    /// A string in C's notation. Its escapes are resolved, so that a rule meets the program's real name.
    fn ansi_quoted(&mut self) {
        let from = self.at - 2;
        let mut text = Vec::new();
        loop {
            match self.next() {
                None => break self.is_broken = true,
                Some('\'') => break,
                Some('\\') => text.extend(self.ansi_escape()),
                Some(c) => text.push(c),
            }
        }
        self.opaque = true;
        let written: Vec<char> = self.input[from..self.at].to_vec();
        self.quote(&written, &text);
    }

    fn ansi_escape(&mut self) -> Option<char> {
        let (radix, most) = match self.next()? {
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => {
                self.at -= 1;
                (8, 3)
            }
            'n' => return Some('\n'),
            't' => return Some('\t'),
            c => return Some(c),
        };
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        char::from_u32(value)
    }

    fn backquoted(&mut self) {
        let from = self.at - 1;
        let mut inner = String::new();
        loop {
            match self.next() {
                None => break self.is_broken = true,
                Some('`') => break,
                Some('\\') => inner.extend(self.next()),
                Some(c) => inner.push(c),
            }
        }
        self.nested.push(inner);
        self.expand(from);
    }

    /// Reads to the bracket that closes the open one; what is between may run commands.
    fn enclosed(&mut self, open: char, close: char) {
        let from = self.at;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                None => {
                    self.is_broken = true;
                    self.nested.push(self.input[from..].iter().collect());
                    return;
                }
                Some('\\') => drop(self.next()),
                Some('\'') => self.skip_to('\''),
                Some(c) if c == open => depth += 1,
                Some(c) if c == close => depth -= 1,
                Some(_) => {}
            }
        }
        self.nested.push(self.input[from..self.at - 1].iter().collect());
    }

    /// The operator's first character is read.
    fn redirect(&mut self, first: char) {
        if first != '&' && self.peek() == Some('(') {
            let from = self.at - 1;
            self.at += 1;
            self.enclosed('(', ')');
            return self.expand(from);
        }
        // A number right before the operator names the file descriptor.
        let mut operator = match self.word.take() {
            Some(word) if !word.is_quoted && word.text.chars().all(|c| c.is_ascii_digit()) => word.text,
            word => {
                self.word = word;
                self.end_word();
                String::new()
            }
        };
        operator.push(first);
        while let Some(c) = self.peek().filter(|c| "<>&|-".contains(*c)) {
            if c == '-' && !operator.ends_with("<<") {
                break;
            }
            operator.push(c);
            self.at += 1;
        }
        self.has_document |= operator.contains("<<") && !operator.contains("<<<");
        self.redirection = Some(operator);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let Some(operator) = self.redirection.take() else { return self.simple.words.push(word) };
        let goes_nowhere = word.text == "/dev/null" && !operator.contains("<<") && !operator.contains("<>");
        let is_copy =
            operator.ends_with('&') && (word.text == "-" || word.text.chars().all(|c| c.is_ascii_digit()));
        if !goes_nowhere && !is_copy {
            self.opaque = true;
            if operator.ends_with("<<<") {
                self.simple.input = Some(word.text);
            }
            self.simple.redirections.push(format!("{operator} {}", word.written));
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_broken |= self.redirection.take().is_some();
        let simple = std::mem::take(&mut self.simple);
        if !simple.words.is_empty() || !simple.redirections.is_empty() {
            self.commands.push(simple);
        }
    }
}

/// Whether a word sets a variable.
pub(super) fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split('[').next().unwrap_or(name);
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
