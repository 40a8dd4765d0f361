//! Requests in flight between a client and the holder of its session, kept for the case that the holder dies.

use std::collections::{HashMap, HashSet};

use stayput_wire::{Batch, Era, Message, MessageKind};

use crate::{
    call::era,
    reply::{self, RequestRef},
};

/// Requests without an answer, in both directions.
#[derive(Default)]
pub(super) struct InFlightRequests {
    /// Requests of the client, by the raw JSON of their ids.
    asked: HashMap<Box<str>, InFlightRequest>,
    /// Requests of servers, by their ids.
    questions: HashSet<Box<str>>,
    /// `initialize` of the client, as it was sent.
    initialize_result: Option<InitializeExchange>,
    /// Id of a repeated `initialize`, whose answer the client already has.
    unwanted: Option<Box<str>>,
}

struct InFlightRequest {
    method: Box<str>,
    era: Era,
}

struct InitializeExchange {
    id: Box<str>,
    line: Vec<u8>,
}

/// Message to a client about a call that was in flight when the holder died.
const LOST: &str = "The gateway was restarted while this was under way: it may or may not have been \
                    carried out. Check before you repeat it.";

impl InFlightRequests {
    /// Records a line of the client.
    pub(super) fn sent(&mut self, line: &[u8]) {
        each(line, |message| self.sent_one(message));
    }

    fn sent_one(&mut self, line: &[u8]) {
        let Ok(message) = Message::parse(line) else { return };
        match message.kind() {
            MessageKind::Request { id, method, .. } => {
                let era = era::detect(&http::HeaderMap::new(), &message);
                if &**method == "initialize" {
                    self.initialize_result =
                        Some(InitializeExchange { id: id.as_str().into(), line: line.to_vec() });
                }
                let method = Box::from(&**method);
                self.asked.insert(id.as_str().into(), InFlightRequest { method, era });
            }
            MessageKind::Response { id, .. } | MessageKind::Error { id: Some(id), .. } => {
                self.questions.remove(id.as_str());
            }
            MessageKind::Notification { method, params }
                if &**method == "notifications/cancelled" =>
            {
                if let Some(id) = params.and_then(|params| params.find(&["requestId"])) {
                    self.asked.remove(id.as_str());
                }
            }
            _ => {}
        }
    }

    /// Whether a request of the client has no answer.
    pub(super) fn has_requests(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Records a line for the client. Returns whether to pass it on.
    pub(super) fn record_from_holder(&mut self, line: &[u8]) -> bool {
        let Ok(message) = Message::parse(line) else { return true };
        match message.kind() {
            MessageKind::Response { id, .. } | MessageKind::Error { id: Some(id), .. } => {
                if self.unwanted.as_deref() == Some(id.as_str()) {
                    self.unwanted = None;
                    return false;
                }
                self.asked.remove(id.as_str());
            }
            MessageKind::Request { id, .. } => {
                self.questions.insert(id.as_str().into());
            }
            _ => {}
        }
        true
    }

    /// Handles the death of the holder. Returns the messages for the client: failures of its requests, and
    /// cancellations of the servers' requests. Nothing is sent again except `initialize`, which can safely be repeated.
    pub(super) fn lost(&mut self) -> Vec<String> {
        let initialize_result =
            self.initialize_result.as_ref().map(|initialize_result| &initialize_result.id);
        let (waiting, gone): (Vec<_>, Vec<_>) =
            self.asked.drain().partition(|(id, _)| Some(id) == initialize_result);
        self.asked = waiting.into_iter().collect();
        self.unwanted = None;
        let failed = gone.iter().map(|(id, InFlightRequest { method, era })| {
            reply::failure(RequestRef { id, method }, *era, LOST)
        });
        let withdrawn = self.questions.drain().map(|id| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        });
        failed.chain(withdrawn).collect()
    }

    /// Returns the `initialize` to send to the next holder first, if that does not know the client.
    pub(super) fn again(&mut self, known: bool) -> Option<Vec<u8>> {
        let InitializeExchange { id, line } = self.initialize_result.as_ref()?;
        let waited_for = self.asked.contains_key(id);
        if known && !waited_for {
            return None;
        }
        if !waited_for {
            self.unwanted = Some(id.clone());
        }
        Some(line.clone())
    }
}

/// Splits a line into its messages: one, or a batch of 2025-03-26.
fn each(line: &[u8], mut with: impl FnMut(&[u8])) {
    if !Batch::is_batch(line) {
        return with(line);
    }
    for text in Batch::split(line).iter().flat_map(Batch::messages) {
        with(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sent(in_flight: &mut InFlightRequests, message: &Value) {
        in_flight.sent(message.to_string().as_bytes());
    }

    fn record_from_holder(in_flight: &mut InFlightRequests, message: &Value) -> bool {
        in_flight.record_from_holder(message.to_string().as_bytes())
    }

    fn request(id: &Value, method: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} })
    }

    fn answer(id: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} })
    }

    #[test]
    fn requests_in_flight_fail_when_the_holder_dies() {
        let mut in_flight = InFlightRequests::default();
        for (id, method) in [(json!(1), "tools/call"), (json!("1"), "tools/list"), (json!(2), "x")]
        {
            sent(&mut in_flight, &request(&id, method));
        }
        sent(&mut in_flight, &json!([request(&json!(3), "ping"), request(&json!(4), "ping")]));
        assert!(
            record_from_holder(&mut in_flight, &answer(&json!(2)))
                && record_from_holder(&mut in_flight, &answer(&json!(3)))
        );
        let back = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": 4 } });
        sent(&mut in_flight, &back);
        assert!(record_from_holder(&mut in_flight, &request(&json!(9), "elicitation/create")));
        assert!(record_from_holder(&mut in_flight, &request(&json!(8), "elicitation/create")));
        sent(&mut in_flight, &answer(&json!(8)));
        let mut lost: Vec<Value> =
            in_flight.lost().iter().map(|it| serde_json::from_str(it).unwrap()).collect();
        lost.sort_by_key(|it| it["id"].to_string());
        assert_eq!(lost.len(), 3, "{lost:?}");
        assert_eq!(lost[0]["id"], "1");
        assert_eq!(lost[0]["error"]["code"], -32_603);
        assert_eq!((&lost[1]["id"], &lost[1]["result"]["isError"]), (&json!(1), &json!(true)));
        assert_eq!(lost[2]["params"]["requestId"], 9);
        assert!(in_flight.lost().is_empty());
    }

    #[test]
    fn initialize_is_repeated_and_answered_once() {
        let mut in_flight = InFlightRequests::default();
        assert_eq!(in_flight.again(false), None);
        let hello = request(&json!(0), "initialize");
        sent(&mut in_flight, &hello);
        assert!(in_flight.lost().is_empty(), "it is sent again");
        assert!(
            in_flight.again(true).is_some()
                && record_from_holder(&mut in_flight, &answer(&json!(0)))
        );
        assert!(in_flight.lost().is_empty());
        assert_eq!(in_flight.again(true), None);
        assert_eq!(in_flight.again(false), Some(hello.to_string().into_bytes()));
        assert!(
            !record_from_holder(&mut in_flight, &answer(&json!(0))),
            "the client has that answer"
        );
        sent(&mut in_flight, &request(&json!(0), "ping"));
        assert!(record_from_holder(&mut in_flight, &answer(&json!(0))));
    }
}
