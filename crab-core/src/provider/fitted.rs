//! What of a history goes to a service, whatever it speaks: without what it was found not to take.

use std::borrow::Cow;

use super::Request;
use super::compat::Compat;
use crate::message::{Assistant, Block, Message, Part};

/// Stands where an image was.
const UNSEEN: &str = "(an image, which this model cannot see)";

/// The request without images and reasoning that the service would refuse. What is left depends on nothing that comes
/// behind it, so that the beginning of a growing history stays as it was.
pub(super) fn fitted<'a>(request: &'a Request, compat: &Compat) -> Cow<'a, Request> {
    if compat.images && compat.void_reasoning == 0 {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    for (at, message) in request.messages.iter_mut().enumerate() {
        match message {
            Message::Assistant(message) if at < compat.void_reasoning => forget(message),
            Message::User(parts) if !compat.images => parts.iter_mut().for_each(hide),
            Message::ToolResult(result) if !compat.images => result.content.iter_mut().for_each(hide),
            _ => {}
        }
    }
    Cow::Owned(request)
}

fn hide(part: &mut Part) {
    if matches!(part, Part::Image { .. }) {
        *part = Part::text(UNSEEN);
    }
}

/// Words and calls stay; what a call brought along is a piece of reasoning as well.
fn forget(message: &mut Assistant) {
    message.content.retain(|block| !matches!(block, Block::Thinking(_)));
    for block in &mut message.content {
        if let Block::ToolCall(call) = block {
            call.extra = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Api;
    use crate::provider::samples::{call, image, request, result, said, text, thought};
    use serde_json::json;

    #[test]
    fn no_protocol_sends_an_image_to_a_service_without_eyes() {
        let asked = Message::User(vec![Part::text("see"), image()]);
        let request = request(vec![asked, said("p", vec![call("c", json!({}))]), result("c", vec![image()])]);
        let compat = Compat { images: false, ..Compat::UNKNOWN };
        for api in [Api::OpenaiChat, Api::OpenaiResponses, Api::AnthropicMessages] {
            let body = (api.dialect().unwrap().body)(&fitted(&request, &compat), &compat, "p").to_string();
            assert!(!body.contains("base64"), "{body}");
            assert_eq!(body.matches(UNSEEN).count(), 2, "{body}");
        }
    }

    #[test]
    fn reasoning_is_void_up_to_a_message_and_counts_from_there() {
        let message = || said("p", vec![thought("reasoning"), text("said")]);
        let request = request(vec![message(), message()]);
        let compat = Compat { void_reasoning: 1, ..Compat::UNKNOWN };
        assert_eq!(fitted(&request, &compat).messages, [said("p", vec![text("said")]), message()]);
        assert!(matches!(fitted(&request, &Compat::UNKNOWN), Cow::Borrowed(_)));
    }
}
