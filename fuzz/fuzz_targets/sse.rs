//! Any cut of any bytes gives the same events, and none makes the parser panic.
#![no_main]

use crab_core::sse::{Event, Parser};
use libfuzzer_sys::fuzz_target;

fn events(pieces: &[&[u8]]) -> (Vec<Event>, Option<Vec<u8>>, Option<String>) {
    let mut parser = Parser::default();
    let mut events = vec![];
    for piece in pieces {
        parser.feed(piece);
        events.extend(std::iter::from_fn(|| parser.next()));
    }
    events.extend(parser.finish());
    (events, parser.foreign().map(<[u8]>::to_vec), parser.stray().map(str::to_owned))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, body) = input;
    let whole = events(&[body]);
    let pieces: Vec<&[u8]> = body.chunks(usize::from(step).max(1)).collect();
    assert_eq!(whole, events(&pieces));
});
