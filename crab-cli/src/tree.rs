//! The turns of a session as a tree of lines.

use crab_core::session::Turn;

use crate::caret;

/// One line for each turn: those of the conversation as it stands have a full mark, and branches stand further in.
pub(crate) fn drawn(turns: &[Turn]) -> String {
    let mut out = String::new();
    let last = turns.iter().rfind(|turn| turn.is_current).map(|turn| turn.number);
    // What is still to be drawn, the next one last, and how far in.
    let mut open: Vec<(&Turn, usize)> = vec![];
    push(turns, None, 0, &mut open);
    while let Some((turn, depth)) = open.pop() {
        let mark = if turn.is_current { '●' } else { '○' };
        let here = if Some(turn.number) == last { "  ← here" } else { "" };
        let indent = "  ".repeat(depth);
        out.push_str(&format!("{:>4} {mark} {indent}{}{here}\n", turn.number, line(&turn.prompt)));
        push(turns, Some(turn.number), depth, &mut open);
    }
    out + "/tree N goes on behind turn N\n"
}

/// The turns that follow one; several are branches.
fn push<'a>(turns: &'a [Turn], parent: Option<usize>, depth: usize, open: &mut Vec<(&'a Turn, usize)>) {
    let children: Vec<&Turn> = turns.iter().filter(|turn| turn.parent == parent).collect();
    let depth = depth + usize::from(children.len() > 1);
    open.extend(children.into_iter().rev().map(|turn| (turn, depth)));
}

/// The beginning of a prompt.
pub(crate) fn line(prompt: &str) -> String {
    let words: Vec<&str> = prompt.split_whitespace().collect();
    caret::line(&words.join(" ")).chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_stand_further_in() {
        let turn = |number, parent, prompt: &str, is_current| Turn {
            number,
            parent,
            prompt: prompt.to_owned(),
            end: String::new(),
            is_current,
        };
        let turns = [
            turn(1, None, "one", true),
            turn(2, Some(1), "two\nlines", false),
            turn(3, Some(2), "three", false),
            turn(4, Some(1), "four", true),
            turn(5, Some(4), "five", true),
        ];
        insta::assert_snapshot!(drawn(&turns), @r"
           1 ● one
           2 ○   two lines
           3 ○   three
           4 ●   four
           5 ●   five  ← here
        /tree N goes on behind turn N
        ");
    }
}
