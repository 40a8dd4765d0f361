//! The client of a scenario, over any of the transports.

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    cells::{Era, Transport},
    exchange::{Exchange, Outgoing},
    message::{self, Request},
    stdio::Process,
    transcript::Transcript,
};

const BOTH: &str = "application/json, text/event-stream";

/// A client with its connection.
pub(crate) struct Client {
    pub(crate) era: Era,
    wire: Wire,
}

enum Wire {
    Http(Http),
    Old(Box<Old>),
    Stdio(Box<Process>),
}

/// Streamable HTTP.
pub(crate) struct Http {
    pub(crate) transcript: Transcript,
    pub(crate) base: String,
    pub(crate) path: String,
    pub(crate) transport: Transport,
    /// Credentials, if the client has any.
    pub(crate) token: Option<String>,
    /// `Mcp-Session-Id`.
    pub(crate) id: Option<String>,
    /// `Stayput-Session` of a modern client.
    pub(crate) name: Option<String>,
}

/// HTTP+SSE of 2024-11-05: the stream, and where to post to.
struct Old {
    http: Http,
    stream: Option<Exchange>,
    endpoint: String,
}

/// A request that was sent, and where its answer comes.
pub(crate) struct Reply {
    id: String,
    exchange: Option<Exchange>,
}

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
}

impl Http {
    /// Sends a request of HTTP with the headers of this client.
    pub(crate) async fn send(
        &self,
        method: Method,
        more: Vec<(&'static str, String)>,
        body: &str,
    ) -> Exchange {
        let mut headers = Vec::new();
        headers.extend(self.token.iter().map(|it| ("authorization", format!("Bearer {it}"))));
        headers.extend(self.id.iter().map(|it| ("mcp-session-id", it.clone())));
        headers.extend(self.name.iter().map(|it| ("stayput-session", it.clone())));
        headers.extend(more);
        let (base, path) = (&*self.base, &*self.path);
        let outgoing = Outgoing { method, base, path, headers, body };
        Exchange::send(&self.transcript, outgoing).await
    }

    /// Posts a message of a legacy client.
    pub(crate) async fn post(&self, accept: &str, body: &str) -> Exchange {
        self.send(Method::POST, vec![("accept", accept.to_owned())], body).await
    }

    /// Opens an event stream.
    pub(crate) async fn get(&self, last_event: Option<&str>) -> Exchange {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        headers.extend(last_event.map(|id| ("last-event-id", id.to_owned())));
        self.send(Method::GET, headers, "").await
    }

    fn accept(&self) -> &'static str {
        if self.transport == Transport::HttpJson { "application/json" } else { BOTH }
    }

    async fn request(&self, era: Era, request: &Request, accept: &str) -> Exchange {
        let text = request.text(era);
        if era == Era::Legacy {
            return self.post(accept, &text).await;
        }
        let mut headers = vec![
            ("accept", BOTH.to_owned()),
            ("mcp-protocol-version", "2026-07-28".to_owned()),
            ("mcp-method", request.method.to_owned()),
        ];
        headers.extend(request.name.iter().map(|name| ("mcp-name", name.clone())));
        self.send(Method::POST, headers, &text).await
    }
}

impl Client {
    pub(crate) fn http(era: Era, http: Http) -> Self {
        Self { era, wire: Wire::Http(http) }
    }

    pub(crate) fn stdio(era: Era, process: Process) -> Self {
        Self { era, wire: Wire::Stdio(Box::new(process)) }
    }

    /// Opens the stream of 2024-11-05, and reads where to post to.
    pub(crate) async fn old(http: Http) -> Self {
        let mut stream = http.get(None).await;
        let endpoint = stream.next().await.unwrap();
        let old = Old { http, stream: Some(stream), endpoint };
        Self { era: Era::Legacy, wire: Wire::Old(Box::new(old)) }
    }

    /// The HTTP side of a client over Streamable HTTP.
    pub(crate) fn http_mut(&mut self) -> &mut Http {
        match &mut self.wire {
            Wire::Http(http) => http,
            _ => panic!("the client does not speak Streamable HTTP"),
        }
    }

    /// `initialize` and `notifications/initialized`.
    pub(crate) async fn initialize(&mut self, version: &str, capabilities: &str) {
        let text = message::initialize(version, capabilities);
        match &mut self.wire {
            Wire::Http(http) => {
                let mut exchange = http.post(http.accept(), &text).await;
                let headers = exchange.head().await.unwrap();
                let id = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
                exchange.finish().await;
                http.id = id;
            }
            _ => {
                self.tell(&text).await;
                self.read().await;
            }
        }
        self.tell(message::INITIALIZED).await;
    }

    /// Sends a request.
    pub(crate) async fn send(&mut self, request: &Request) -> Reply {
        let id = request.id.clone();
        let era = self.era;
        if let Wire::Http(http) = &self.wire {
            let exchange = Some(http.request(era, request, http.accept()).await);
            return Reply { id, exchange };
        }
        self.tell(&request.text(era)).await;
        Reply { id, exchange: None }
    }

    /// Sends a request whose answer is a JSON document wherever the client has the choice.
    pub(crate) async fn send_for_json(&mut self, request: &Request) -> Reply {
        let Wire::Http(http) = &self.wire else { return self.send(request).await };
        let exchange = http.request(self.era, request, "application/json").await;
        Reply { id: request.id.clone(), exchange: Some(exchange) }
    }

    /// Sends a text that is answered like a request, such as a batch.
    pub(crate) async fn send_text(&mut self, text: &str) -> Reply {
        if let Wire::Http(http) = &self.wire {
            let exchange = Some(http.post(http.accept(), text).await);
            return Reply { id: String::new(), exchange };
        }
        self.tell(text).await;
        Reply { id: String::new(), exchange: None }
    }

    /// Sends a notification or an answer.
    pub(crate) async fn tell(&mut self, text: &str) {
        match &mut self.wire {
            Wire::Http(http) => {
                let accept = http.accept();
                let exchange = match self.era {
                    Era::Legacy => http.post(accept, text).await,
                    Era::Modern => {
                        let version = ("mcp-protocol-version", "2026-07-28".to_owned());
                        let headers = vec![("accept", BOTH.to_owned()), version];
                        http.send(Method::POST, headers, text).await
                    }
                };
                exchange.finish().await;
            }
            Wire::Old(old) => old.post(text).await,
            Wire::Stdio(process) => process.write(text).await,
        }
    }

    /// Posts to the address of this client of 2024-11-05 with the token of another owner.
    pub(crate) async fn tell_as(&mut self, token: &str, text: &str) {
        let Wire::Old(old) = &mut self.wire else { panic!("the client has no address to post to") };
        let own = old.http.token.replace(token.to_owned());
        old.post(text).await;
        old.http.token = own;
    }

    /// Reads the next message on the one stream of the client.
    pub(crate) async fn read(&mut self) -> String {
        match &mut self.wire {
            Wire::Http(_) => panic!("a client over Streamable HTTP has many streams"),
            Wire::Old(old) => old.stream.as_mut().unwrap().next().await.unwrap(),
            Wire::Stdio(process) => process.read().await,
        }
    }

    /// Reads the next message for this request.
    pub(crate) async fn hear(&mut self, reply: &mut Reply) -> String {
        match &mut reply.exchange {
            Some(exchange) => exchange.next().await.expect("a message"),
            None => self.read().await,
        }
    }

    /// Reads up to the answer, or to the end of the stream where the request has its own.
    pub(crate) async fn answer(&mut self, reply: Reply) -> String {
        if let Some(exchange) = reply.exchange {
            return exchange.finish().await;
        }
        loop {
            let text = self.read().await;
            let shape: Shape<'_> = serde_json::from_str(&text).unwrap();
            if shape.method.is_none() && shape.id.is_some_and(|id| id.get() == reply.id) {
                return text;
            }
        }
    }

    /// Leaves while the request runs: closes its connection, the one stream, or standard input.
    pub(crate) async fn leave(&mut self, reply: Reply) {
        match (&mut self.wire, reply.exchange) {
            (Wire::Http(_), exchange) => exchange.unwrap().close(),
            (Wire::Old(old), _) => old.stream.take().unwrap().close(),
            (Wire::Stdio(process), _) => process.close().await,
        }
    }

    /// Ends a client that has one stream.
    pub(crate) async fn end(&mut self) {
        if let Wire::Stdio(process) = &mut self.wire {
            process.close().await;
        }
    }

    /// Answers a question of the server with this result.
    pub(crate) async fn answer_question(&mut self, question: &str, result: &str) {
        let shape: Shape<'_> = serde_json::from_str(question).unwrap();
        let id = shape.id.expect("a question has an id").get().to_owned();
        self.tell(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await;
    }
}

impl Old {
    async fn post(&self, text: &str) {
        let Http { transcript, base, token, .. } = &self.http;
        let headers = token.iter().map(|it| ("authorization", format!("Bearer {it}"))).collect();
        let (method, path) = (Method::POST, &*self.endpoint);
        let outgoing = Outgoing { method, base, path, headers, body: text };
        Exchange::send(transcript, outgoing).await.finish().await;
    }
}

impl Reply {
    /// `id:` of the last event of its stream.
    pub(crate) fn last_event(&self) -> String {
        self.exchange.as_ref().and_then(|it| it.last_event.clone()).expect("an event with an id")
    }
}
