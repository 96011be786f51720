//! Tests of the Markdown styler: what the styles are, and what holds for any text cut anywhere.

use super::*;

const TAGS: Theme = Theme {
    heading: "<h>",
    strong: "<b>",
    emphasis: "<i>",
    strike: "<s>",
    code: "<c>",
    marker: "<m>",
    quote: "<q>",
    faint: "<f>",
    link: "<a>",
    keyword: "<kw>",
    string: "<str>",
    comment: "<com>",
    number: "<num>",
    inserted: "<ins>",
    deleted: "<del>",
};

const COLOURS: Theme = Theme {
    heading: "\x1b[1;36m",
    strong: "\x1b[1m",
    emphasis: "\x1b[3m",
    strike: "\x1b[9m",
    code: "\x1b[36m",
    marker: "\x1b[33m",
    quote: "\x1b[3;2m",
    faint: "\x1b[2m",
    link: "\x1b[4;34m",
    keyword: "\x1b[35m",
    string: "\x1b[32m",
    comment: "\x1b[2m",
    number: "\x1b[33m",
    inserted: "\x1b[32m",
    deleted: "\x1b[31m",
};

fn styled(theme: Theme, pieces: &[&str]) -> String {
    let mut markdown = Markdown::new(theme);
    let out: String = pieces.iter().map(|piece| markdown.push(piece)).collect();
    out + &markdown.finish()
}

/// With tags for the openers and `</>` for the reset.
#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(styled(TAGS, &[input]).replace(RESET, "</>"), expected, "{input}");
    let letters: Vec<&str> = input.split_inclusive(|_| true).collect();
    assert_eq!(styled(TAGS, &letters).replace(RESET, "</>"), expected, "{input}, letter by letter");
}

#[track_caller]
fn check_plain(input: &str) {
    check(input, input);
}

/// The text without its sequences, none of which may be on at the end of a line or be anything but SGR.
#[track_caller]
fn stripped(styled: &str) -> String {
    let (mut out, mut rest, mut is_on) = (String::new(), styled, false);
    while let Some((before, after)) = rest.split_once('\x1b') {
        assert!(!(is_on && before.contains('\n')), "a style crosses a line in {styled:?}");
        let (code, tail) = after.split_once('m').expect("a sequence that ends");
        let is_sgr =
            code.strip_prefix('[').is_some_and(|it| it.bytes().all(|it| b"0123456789;".contains(&it)));
        assert!(is_sgr, "{code:?} in {styled:?}");
        is_on = code != "[0";
        out.push_str(before);
        rest = tail;
    }
    assert!(!is_on, "a style is left on in {styled:?}");
    out + rest
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn text(&mut self) -> String {
        // Apart by `¦`, which is none of them.
        const BITS: &str = "\n¦\n¦\n¦\n\n¦ ¦ ¦  ¦    ¦\t¦a¦word¦fn¦if ¦h¦ht¦http://¦https://x.y/z¦12¦1.5¦*¦**¦***¦****¦_¦__¦~¦~~¦\
            ~~~¦`¦``¦```¦````¦```rs\n¦```py\n¦```diff\n¦~~~sh x\n¦> ¦>¦>> ¦- ¦+ ¦* ¦1. ¦23) ¦[ ] ¦[x] ¦# ¦###### ¦#¦|¦---¦|-¦:¦[¦](¦\
            ]¦(¦)¦\\¦\"¦\"\"\"¦'¦r#\"¦/*¦*/¦//¦é¦漢¦“¦👩‍🚀¦+¦-¦.¦,¦<b>¦src/*.rs¦snake_case¦_x¦x_";
        let bits: Vec<&str> = BITS.split('¦').collect();
        (0..self.below(60)).map(|_| bits[self.below(bits.len())]).collect()
    }

    fn cut<'a>(&mut self, text: &'a str) -> Vec<&'a str> {
        let often = 1 + self.below(12);
        text.split_inclusive(|_| self.below(often) == 0).collect()
    }
}

#[test]
fn any_cut_of_any_text_gives_the_same_styles_on_the_same_text() {
    let mut random = Random(0x5eed_cafe);
    for _ in 0..20_000 {
        let text = random.text();
        let whole = styled(COLOURS, &[&text]);
        assert_eq!(stripped(&whole), text);
        let pieces = random.cut(&text);
        assert_eq!(styled(COLOURS, &pieces), whole, "{pieces:?}");
    }
}

#[test]
fn what_is_held_back_is_bounded_for_any_text() {
    let mut random = Random(0xb0a7);
    for _ in 0..2_000 {
        let text = random.text().repeat(1 + random.below(4));
        let mut markdown = Markdown::new(COLOURS);
        for piece in random.cut(&text) {
            markdown.push(piece);
            assert!(markdown.held.len() <= 2 * 512 + 8, "{:?}", markdown.held);
        }
    }
    for run in ["*", "`", "-", "1", "_a", "|", "> ", "#", "~", "https://", "a."] {
        for start in ["", "x ", "```rs\n", "http://", "`"] {
            let mut markdown = Markdown::new(COLOURS);
            markdown.push(&(start.to_owned() + &run.repeat(10_000)));
            assert!(markdown.held.len() <= 2 * 512 + 8, "{start:?} {run:?}: {}", markdown.held.len());
        }
    }
}

#[test]
fn prose_is_printed_as_it_comes() {
    let mut markdown = Markdown::new(COLOURS);
    for letter in "So this (with *all* its **strong** words, `code` and https://a.b/c) is a line"
        .split_inclusive(|_| true)
    {
        markdown.push(letter);
        assert!(markdown.held.len() <= "https://".len(), "{:?}", markdown.held);
    }
}

#[test]
fn a_message_that_is_finished_leaves_nothing_to_the_next() {
    let mut markdown = Markdown::new(TAGS);
    assert_eq!(markdown.push("```rs\nfn **") + &markdown.finish(), "<f>```rs\x1b[0m\n<kw>fn\x1b[0m **");
    assert_eq!(markdown.push("fn") + &markdown.finish(), "fn");
    assert_eq!(markdown.finish(), "");
}

#[test]
fn an_empty_theme_adds_nothing() {
    let none = Theme { heading: "", faint: "", strong: "", ..TAGS };
    assert_eq!(styled(none, &["# a **b**\n---"]), "# a **b**\n---");
}

#[test]
fn inline_styles_open_and_close_with_their_marks() {
    check(
        "a **b** *c* _d_ ~~e~~.",
        "a <f>**</><b>b</><f>**</> <f>*</><i>c</><f>*</> <f>_</><i>d</><f>_</> <f>~~</><s>e</><f>~~</>.",
    );
    check("***a*** **b *c***", "<f>***</><b><i>a</><f>***</> <f>**</><b>b </><f>*</><b><i>c</><f>***</>");
    check("**_a_ b**", "<f>**_</><b><i>a</><f>_</><b> b</><f>**</>");
    check(
        "是**重**点 (*a*) **✅ b**",
        "是<f>**</><b>重</><f>**</>点 (<f>*</><i>a</><f>*</>) <f>**</><b>✅ b</><f>**</>",
    );
    check("**a\nb**", "<f>**</><b>a</>\nb**");
}

#[test]
fn a_mark_that_opens_again_is_believed_so_that_one_wrong_guess_does_not_turn_the_line_inside_out() {
    check("pass **kw or **b** c", "pass <f>**</><b>kw or </><f>**</><b>b</><f>**</> c");
}

#[test]
fn marks_that_are_something_else_stay_as_they_are() {
    check_plain("2 * 3, a*b*c, a ** b, f(x)*y, 5*, *, \"*\", '*', (*) and ** too");
    check_plain("src/*.rs **/*.rs lib/**/x *.md *_test.go /*c*/ SELECT *, COUNT(*)");
    check_plain("a_b_c __init__ snake_case _private_name self._x ~/x ~a~ <b class=\"x\">");
    check_plain("#1 #[derive] #!/bin\n-x --flag\n1.5 2)x\n>=2 arr[0](x)\n    # not a heading\n");
}

#[test]
fn code_within_a_line_is_nothing_else() {
    check("`**a** \\` b", "<f>`</><c>**a** \\</><f>`</> b");
    check("``a ` b`` http `", "<f>``</><c>a ` b</><f>``</> http <f>`</>");
    check("```a``` *b", "<f>```</><c>a</><f>```</> <f>*</><i>b</>");
    check("`a\nb", "<f>`</><c>a</>\nb");
}

#[test]
fn an_escaped_mark_is_text() {
    check("\\*a\\* \\` C:\\dir", "<f>\\</>*a<f>\\</>* <f>\\</>` C:\\dir");
}

#[test]
fn links_and_urls_end_where_they_end() {
    check("[a **b**](x(y)/z) c", "[a <f>**</><b>b</><f>**](x(y)/z)</> c");
    check(
        "see https://a.b/c_d?e=1. (http://f) xhttp://g http:/h",
        "see <a>https://a.b/c_d?e=1</>. (<a>http://f</>) xhttp://g http:/h",
    );
    check("**https://a.b**, <https://c>", "<f>**</><b><a>https://a.b</><f>**</>, <<a>https://c</>>");
    check("[a](see below)", "[a<f>](see</> below)");
}

#[test]
fn lines_are_told_by_what_they_start_with() {
    check(
        "## A `b` *c*\n#\n####### d",
        "<f>##</><h> A </><f>`</><c>b</><f>`</><h> </><f>*</><h><i>c</><f>*</>\n<f>#</>\n####### d",
    );
    check("- a\n  * [x] b\n 12) + c\n", "<m>-</> a\n  <m>*</> <m>[x]</> b\n <m>12)</> <m>+</> c\n");
    check(
        "> a\n>> **b**\n> - c",
        "<q>></> <q>a</>\n<q>>></> <f>**</><q><b>b</><f>**</>\n<q>></> <m>-</> <q>c</>",
    );
    check("---\n* * *\n- - x\n___\n--", "<f>---</>\n<f>* * *</>\n<m>-</> <m>-</> x\n<f>___</>\n--");
    check(
        "| a | `b` |\n|:--|---|\n| - | c\\|d |",
        "<f>|</> a <f>|</> <f>`</><c>b</><f>`</> <f>|</>\n<f>|:--|---|</>\n<f>|</> - <f>|</> c<f>\\</>|d <f>|</>",
    );
    check("a | b\n--- | ---", "a | b\n<f>--- | ---</>");
}

#[test]
fn a_fence_closes_with_one_at_least_as_long() {
    check("````\n**a**\n```\n````\n*b*", "<f>````</>\n**a**\n```\n<f>````</>\n<f>*</><i>b</><f>*</>");
    check("~~~ rs x\nlet\n~~~~ \n", "<f>~~~ rs x</>\n<kw>let</>\n<f>~~~~ </>\n");
    check("```rs\n/* a\n\n b */\n```", "<f>```rs</>\n<com>/* a</>\n\n<com> b */</>\n<f>```</>");
    check("```sh\n``` x\n    ```\n", "<f>```sh</>\n``` x\n    ```\n");
}

#[test]
fn a_fence_in_an_item_or_a_quote_is_stripped_of_its_prefix() {
    check(
        "1. ```diff\n   +a\n    +b\n   ```\n- c",
        "<m>1.</> <f>```diff</>\n   <ins>+a</>\n    +b\n   <f>```</>\n<m>-</> c",
    );
    check(
        "> ```py\n> if 1:\n> ```\nif",
        "<q>></> <f>```py</>\n<q>></> <kw>if</> <num>1</>:\n<q>></> <f>```</>\nif",
    );
    check("> ```\n> *a*\n*b*", "<q>></> <f>```</>\n<q>></> *a*\n<f>*</><i>b</><f>*</>");
}

#[test]
fn a_long_answer_looks_right() {
    let answer = "\
## What went wrong

The parser in `src/frame.rs` treats an **empty** line as the *end*, see https://example.com/rfc#4.

1. Read the frame:
   ```rust
   // Don't stop here.
   let n = buf.len() + 0x1F;
   ```
2. [x] Run `cargo test`

> Note: 2 * 3 is _not_ 5.

| file | lines |
|------|-------|
| a_b.rs | 12 |

```diff
-let a = 1;
+let a = 2;
```
Done \\o/ ~~maybe~~";
    let expected = "\
<f>##</><h> What went wrong</>

The parser in <f>`</><c>src/frame.rs</><f>`</> treats an <f>**</><b>empty</><f>**</> line as the <f>*</><i>end</><f>*</>, see <a>https://example.com/rfc#4</>.

<m>1.</> Read the frame:
   <f>```rust</>
   <com>// Don't stop here.</>
   <kw>let</> n = buf.len() + <num>0x1F</>;
   <f>```</>
<m>2.</> <m>[x]</> Run <f>`</><c>cargo test</><f>`</>

<q>></> <q>Note: 2 * 3 is </><f>_</><q><i>not</><f>_</><q> 5.</>

<f>|</> file <f>|</> lines <f>|</>
<f>|------|-------|</>
<f>|</> a_b.rs <f>|</> 12 <f>|</>

<f>```diff</>
<del>-let a = 1;</>
<ins>+let a = 2;</>
<f>```</>
Done \\o/ <f>~~</><s>maybe</><f>~~</>";
    check(answer, expected);
    let plain = styled(COLOURS, &[answer]);
    assert_eq!(stripped(&plain), answer);
}
