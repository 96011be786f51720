//! Any body, of any protocol, cut anywhere, gives the same message and never a panic.
#![no_main]

use crab_core::message::{Assistant, Block};
use crab_core::provider::{Api, decode};
use libfuzzer_sys::fuzz_target;

/// Ids that a service left out are made up anew each time.
fn without_ids(mut message: Assistant) -> Assistant {
    for block in &mut message.content {
        if let Block::ToolCall(call) = block {
            call.id.clear();
        }
    }
    message
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (api, step, body) = input;
    let api = [Api::OpenaiChat, Api::OpenaiResponses, Api::AnthropicMessages][usize::from(api) % 3];
    let (whole, broken) = decode(api, [body]);
    let (cut, also_broken) = decode(api, body.chunks(usize::from(step).max(1)));
    assert_eq!((without_ids(whole), broken), (without_ids(cut), also_broken));
});
