//! The pictures of the README: a real session on a pseudo-terminal, drawn as SVG. `make pictures` draws them anew.

use std::fmt::Write as _;
use std::path::Path;

use portable_pty::CommandBuilder;

use crate::crab::Crab;
use crate::terminal::Terminal;

const ROWS: u16 = 37;
const COLUMNS: u16 = 100;
/// A character's width and height, in pixels.
const CELL: (f32, f32) = (8.4, 18.0);
const MARGIN: f32 = 14.0;

/// The colours of a terminal.
struct Palette {
    ground: &'static str,
    text: &'static str,
    /// The 16 colours that a user may have set.
    sixteen: [&'static str; 16],
}

const DARK: Palette = Palette {
    ground: "#16181d",
    text: "#d8dadd",
    sixteen: [
        "#16181d", "#e06c5f", "#7fb56a", "#d9a94e", "#6a9fd8", "#c07fc4", "#4fb3b0", "#c8cace", "#6d7178",
        "#f08a7d", "#9ad184", "#ecc476", "#8bbaf0", "#d69bda", "#75cdca", "#f2f3f4",
    ],
};

const LIGHT: Palette = Palette {
    ground: "#fbfaf7",
    text: "#2b2d31",
    sixteen: [
        "#2b2d31", "#b3372a", "#3c7d2b", "#8f6410", "#2a62a8", "#8d3f93", "#14706d", "#55585e", "#7c8087",
        "#c44a3c", "#4c8f3a", "#a5761a", "#3a75bd", "#a052a6", "#22827f", "#1a1b1e",
    ],
};

#[test]
#[ignore = "writes into docs/, for `make pictures`"]
fn draw_the_pictures_of_the_readme() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::create_dir_all(&docs).unwrap();
    let screen = session();
    for (name, palette) in [("session-dark.svg", DARK), ("session-light.svg", LIGHT)] {
        std::fs::write(docs.join(name), svg(&screen, &palette)).unwrap();
    }
}

#[test]
fn a_session_can_be_drawn_as_it_stands() {
    let picture = svg(&session(), &DARK);
    for seen in [
        "greet the world",
        "edit greet.sh",
        "run it? [y/n/a]",
        "Hello, world!",
        "command run",
        "and in German",
    ] {
        assert!(picture.contains(seen), "`{seen}` is not in\n{picture}");
    }
    assert!(picture.contains("rgb(207,92,54)") && picture.contains(DARK.sixteen[2]), "{picture}");
}

/// A task from the prompt to the next prompt.
fn session() -> vt100::Screen {
    let crab = Crab::new();
    crab.put("greet.sh", "#!/bin/sh\n# Greets by name.\necho \"Hello, $1!\"\n");
    crab.put("test.sh", "sh greet.sh\nsh greet.sh crab\n");
    let answer = "**Done.** Without a name `greet.sh` falls back to the *world*:\n\n```sh\nsh greet.sh         # Hello, world!\n\
                  sh greet.sh crab    # Hello, crab!\n```\n\n- both are in the test now\n- nothing else changed\n";
    let usage = |input: u32, output: u32| serde_json::json!({"input": input, "output": output, "cache_read": input - 300, "cost_usd": 0.0021});
    let call = |name: &str, arguments: serde_json::Value| serde_json::json!([{"name": name, "arguments": arguments}]);
    let edit = serde_json::json!({"path": "greet.sh", "edits": [{"old": "$1!", "new": "${1:-world}!"}]});
    let script = [
        serde_json::json!({"text": "I'll read it first.\n", "usage": usage(1_904, 41),
            "tool_calls": call("read", serde_json::json!({"path": "greet.sh"}))}),
        serde_json::json!({"tool_calls": call("edit", edit), "usage": usage(2_011, 64)}),
        serde_json::json!({"tool_calls": call("bash", serde_json::json!({"command": "sh test.sh"})), "usage": usage(2_120, 38)}),
        serde_json::json!({"text": answer, "usage": usage(2_190, 96)}),
    ];
    crab.script(&script.each_ref().map(|line| line.to_string()).each_ref().map(String::as_str));
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
    command.args(["--provider", "mock"]);
    let mut terminal = Terminal::run(&crab, (ROWS, COLUMNS), &[("COLORTERM", "truecolor")], command);
    terminal.prompt();
    terminal.press("greet the world when nobody is named, and try it\r");
    for n in 1..=2 {
        terminal.until("the question", |screen| screen.contents().matches("[y/n/a]").count() == n);
        terminal.press("y");
    }
    terminal.text("nothing else changed");
    terminal.prompt();
    terminal.press("and in German?");
    terminal.text("and in German?");
    assert_eq!(crab.get("greet.sh"), "#!/bin/sh\n# Greets by name.\necho \"Hello, ${1:-world}!\"\n");
    let screen = terminal.screen();
    terminal.press("\x15");
    terminal.prompt();
    terminal.leave();
    screen
}

/// What stands on a screen, in the colours of a palette.
fn svg(screen: &vt100::Screen, palette: &Palette) -> String {
    let (columns, rows) = (f32::from(COLUMNS), f32::from(ROWS));
    let (width, height) = (columns * CELL.0 + 2.0 * MARGIN, rows * CELL.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{}\"/>\n",
        palette.ground
    );
    for row in 0..ROWS {
        let mut column = 0;
        while column < COLUMNS {
            column += run(screen, (row, column), palette, &mut out);
        }
    }
    let (row, column) = screen.cursor_position();
    let (x, y) = (MARGIN + f32::from(column) * CELL.0, MARGIN + f32::from(row) * CELL.1);
    let (text, cell) = (palette.text, CELL.0);
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{cell}\" height=\"17\" fill=\"{text}\" opacity=\".6\"/>"
    );
    out + "</svg>\n"
}

/// Draws the cells from here on that look alike. Gives how many columns they are.
fn run(screen: &vt100::Screen, (row, column): (u16, u16), palette: &Palette, out: &mut String) -> u16 {
    let look = |column| screen.cell(row, column).map(|cell| style(cell, palette)).unwrap_or_default();
    let first = look(column);
    let width = (column..COLUMNS).take_while(|column| look(*column) == first).count();
    let columns = u16::try_from(width).unwrap_or(1);
    let text: String = (column..column + columns)
        .filter_map(|column| screen.cell(row, column))
        .map(|cell| if cell.has_contents() || cell.is_wide_continuation() { cell.contents() } else { " " })
        .collect();
    if !text.trim().is_empty() {
        let x = MARGIN + f32::from(column) * CELL.0;
        let y = MARGIN + f32::from(row) * CELL.1 + 13.5;
        let blank = text.len() - text.trim_end().len();
        let length = f32::from(columns - u16::try_from(blank).unwrap_or(0)) * CELL.0;
        let text = text.trim_end().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{first}>{text}</text>"
        );
    }
    columns
}

/// The attributes that make a text look like a cell.
fn style(cell: &vt100::Cell, palette: &Palette) -> String {
    let colour = match cell.fgcolor() {
        vt100::Color::Default => palette.text.to_owned(),
        vt100::Color::Idx(index) => {
            palette.sixteen.get(usize::from(index)).copied().unwrap_or(palette.text).to_owned()
        }
        vt100::Color::Rgb(red, green, blue) => format!("rgb({red},{green},{blue})"),
    };
    let mut style = format!(" fill=\"{colour}\"");
    for (is_on, attribute) in [
        (cell.bold(), " font-weight=\"bold\""),
        (cell.italic(), " font-style=\"italic\""),
        (cell.underline(), " text-decoration=\"underline\""),
        (cell.dim(), " opacity=\".62\""),
    ] {
        style.push_str(if is_on { attribute } else { "" });
    }
    style
}
