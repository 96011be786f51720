//! The turns of a session, over all its branches.

use super::entry::Body;
use super::load::Tree;
use crate::message::text_of;

/// A prompt and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// From 1, in the order of the file.
    pub number: usize,
    /// The turn that it follows; `None` for the beginning of a conversation.
    pub parent: Option<usize>,
    /// What was asked.
    pub prompt: String,
    /// The entry behind which the conversation can go on.
    pub end: String,
    /// Whether it is part of the conversation as it stands.
    pub is_current: bool,
}

/// Every turn of a tree.
pub(super) fn turns(tree: &Tree) -> Vec<Turn> {
    let current: Vec<String> = tree.path().iter().map(|entry| entry.id.clone()).collect();
    let mut turns: Vec<Turn> = vec![];
    // For each entry the number of its turn; what stands before the first prompt belongs to none.
    let mut numbers: Vec<Option<usize>> = vec![];
    for (index, entry) in tree.entries.iter().enumerate() {
        let before = tree.parent(index).and_then(|parent| numbers[parent]);
        let number = match &entry.body {
            Body::User { content } => {
                let number = turns.len() + 1;
                turns.push(Turn {
                    number,
                    parent: before,
                    prompt: text_of(content),
                    end: entry.id.clone(),
                    is_current: current.contains(&entry.id),
                });
                Some(number)
            }
            Body::Unknown { .. } => before,
            _ => {
                if let Some(turn) = before.and_then(|number| turns.get_mut(number - 1)) {
                    turn.end.clone_from(&entry.id);
                }
                before
            }
        };
        numbers.push(number);
    }
    turns
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::message::Part;
    use crate::session::{Body, Session, Transcript};

    #[test]
    fn a_session_goes_on_from_any_turn_and_keeps_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.jsonl");
        let mut session = Session::open(&file, folder.path(), Arc::default()).unwrap();
        let ask = |session: &mut Session, text: &str| {
            session.append(Body::User { content: vec![Part::text(text)] }).unwrap();
            session.append(Body::note("answered")).unwrap();
        };
        ask(&mut session, "one");
        ask(&mut session, "two");
        let turns = |file| Transcript::read(file).unwrap().turns;
        session.go_to(&turns(&file)[0].end, None).unwrap();
        ask(&mut session, "three");
        let found: Vec<_> = turns(&file)
            .into_iter()
            .map(|turn| (turn.number, turn.parent, turn.prompt, turn.is_current))
            .collect();
        let expected = [(1, None, "one", true), (2, Some(1), "two", false), (3, Some(1), "three", true)];
        assert_eq!(
            found,
            expected.map(|(number, parent, prompt, is)| (number, parent, prompt.to_owned(), is))
        );
        // Where it goes on is known to the next run, also when nothing was said there yet.
        session.go_to(&turns(&file)[1].end, None).unwrap();
        drop(session);
        let current: Vec<_> = turns(&file).into_iter().map(|turn| turn.is_current).collect();
        assert_eq!(current, [true, true, false]);
        let mut session = Session::open(&file, folder.path(), Arc::default()).unwrap();
        assert!(session.go_to("nowhere", None).is_err());
    }
}
